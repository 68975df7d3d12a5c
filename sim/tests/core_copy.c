/* SPDX-License-Identifier: MIT
 * Selftest: copies and sets move the right bytes between host, device, arrays and contexts, and refuse wrong ranges. */
#include "core_check.h"

#define N 4096

static void lines(void)
{
    static unsigned char in[N], out[N];
    CUdeviceptr a, b;
    for (int i = 0; i < N; i++)
        in[i] = (unsigned char)(i * 7);
    CHECK_OK(cuMemAlloc(&a, N));
    CHECK_OK(cuMemAlloc(&b, 3 * CHECK_MIB));
    CHECK_OK(cuMemcpyHtoD(a, in, N));
    CHECK_OK(cuMemcpyDtoD(b + 100, a, N));
    CHECK_OK(cuMemcpyDtoHAsync(out, b + 100, N, NULL));
    CHECK_OK(cuCtxSynchronize());
    CHECK(memcmp(in, out, N) == 0);
    memset(out, 0, N);
    CHECK_OK(cuMemcpy((CUdeviceptr)out, a, N));
    CHECK(memcmp(in, out, N) == 0);
    CHECK_EQ(cuMemcpyHtoD(a, in, N + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyDtoH(out, a + N - 1, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoD((CUdeviceptr)in, out, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemcpyHtoD(a, in, 0));
    CHECK_OK(cuMemFree(a));
    CHECK_EQ(cuMemcpyHtoD(a, in, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(b));
}

static void sets(void)
{
    unsigned char out[64];
    CUdeviceptr a;
    CHECK_OK(cuMemAlloc(&a, 64));
    CHECK_OK(cuMemsetD8(a, 0x11, 64));
    CHECK_OK(cuMemsetD16(a + 2, 0x2233, 2));
    CHECK_OK(cuMemsetD32Async(a + 8, 0x44556677, 1, NULL));
    CHECK_OK(cuMemsetD2D8(a + 16, 16, 0x99, 4, 3));
    CHECK_OK(cuMemcpyDtoH(out, a, 64));
    CHECK(out[0] == 0x11 && out[2] == 0x33 && out[3] == 0x22 && out[5] == 0x22 && out[6] == 0x11);
    CHECK(out[8] == 0x77 && out[11] == 0x44 && out[12] == 0x11);
    CHECK(out[16] == 0x99 && out[19] == 0x99 && out[20] == 0x11 && out[48] == 0x99 && out[52] == 0x11);
    CHECK_EQ(cuMemsetD32(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD8(a, 0, 65), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD2D8(a, 4, 0, 8, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(a));
}

static void planes(void)
{
    unsigned char in[8][32], out[8][32];
    CUdeviceptr a;
    size_t pitch;
    for (int i = 0; i < 8 * 32; i++)
        in[i / 32][i % 32] = (unsigned char)i;
    memset(out, 0, sizeof out);
    CHECK_OK(cuMemAllocPitch(&a, &pitch, 32, 8, 4));
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 32,
                        .srcXInBytes = 4,
                        .srcY = 2,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = a,
                        .dstPitch = pitch,
                        .dstXInBytes = 1,
                        .dstY = 1,
                        .WidthInBytes = 20,
                        .Height = 5};
    CHECK_OK(cuMemcpy2D(&up));
    CHECK_OK(cuMemcpyDtoH(out[0], a + pitch + 1, 20));
    CHECK(memcmp(out[0], &in[2][4], 20) == 0);
    CHECK_OK(cuMemcpyDtoH(out[0], a + 5 * pitch + 1, 20));
    CHECK(memcmp(out[0], &in[6][4], 20) == 0);
    up.Height = 9;
    CHECK_EQ(cuMemcpy2D(&up), CUDA_ERROR_INVALID_VALUE);
    up.Height = 5, up.srcPitch = 8;
    CHECK_EQ(cuMemcpy2D(&up), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemFree(a));
}

static void arrays(void)
{
    float in[64], out[64];
    CUarray array, level;
    CUmipmappedArray mipmap;
    CUDA_ARRAY3D_DESCRIPTOR box = {.Width = 4, .Height = 4, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR seen;
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    for (int i = 0; i < 64; i++)
        in[i] = (float)i;
    CHECK_OK(cuArray3DCreate(&array, &box));
    CHECK_EQ(check_kind(0, "array", "current_bytes"), 256);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = 16,
                          .Height = 4,
                          .Depth = 4};
    CHECK_OK(cuMemcpy3D(&copy));
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 4,
                          .srcY = 1,
                          .srcZ = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .WidthInBytes = 8,
                          .Height = 2,
                          .Depth = 1};
    CHECK_OK(cuMemcpy3D(&back));
    CHECK(out[0] == in[2 * 16 + 4 + 1] && out[3] == in[2 * 16 + 8 + 2]);
    copy.Depth = 5;
    CHECK_EQ(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArrayGetMemoryRequirements(&need, array, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuArrayDestroy(array));
    CHECK_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuMipmappedArrayCreate(&mipmap, &box, 3));
    CHECK_EQ(check_kind(0, "array", "current_bytes"), 256 + 32 + 4);
    CHECK_OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    CHECK_OK(cuArray3DGetDescriptor(&seen, level));
    CHECK(seen.Width == 2 && seen.Height == 2 && seen.Depth == 2);
    CHECK_EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMipmappedArrayDestroy(mipmap));
    CHECK_EQ(check_kind(0, "array", "current_bytes"), 0);
    box.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    CHECK_OK(cuArray3DCreate(&array, &box));
    CHECK_EQ(check_kind(0, "array", "current_bytes"), 0);
    CHECK_OK(cuArrayGetMemoryRequirements(&need, array, 0));
    CHECK_EQ(need.size, 65536);
    CHECK_OK(cuArrayDestroy(array));
}

static void contexts(void)
{
    CUcontext a = check_begin(0), b = check_begin(1);
    CUdeviceptr p, q;
    int value = 42, seen = 0;
    CHECK_OK(cuMemAlloc(&q, 2 * CHECK_MIB));
    CHECK_OK(cuCtxSetCurrent(a));
    CHECK_OK(cuMemAlloc(&p, 2 * CHECK_MIB));
    CHECK_OK(cuMemcpyHtoD(p, &value, sizeof value));
    CHECK_OK(cuMemcpyPeer(q, b, p, a, sizeof value));
    CHECK_OK(cuMemcpyDtoH(&seen, q, sizeof seen));
    CHECK_EQ(seen, 42);
    CHECK_EQ(cuMemcpyPeer(q, NULL, p, a, 4), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_OK(cuMemFree(q)); /* from the other context */
    CHECK_OK(cuMemFree(p));
}

/* An importing process sees the bytes of an external file, and does not own them. */
static void external(void)
{
    char path[] = "/tmp/sim-external-XXXXXX";
    int fd = mkstemp(path), value = 77, seen = 0;
    unlink(path);
    CHECK(ftruncate(fd, 65536) == 0 && pwrite(fd, &value, sizeof value, 8192 + 4) == sizeof value);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = 65536};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 8192, .size = 4096};
    CUexternalMemory handle;
    CUdeviceptr p;
    CHECK_OK(cuImportExternalMemory(&handle, &memory));
    CHECK_OK(cuExternalMemoryGetMappedBuffer(&p, handle, &buffer));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 4096);
    CHECK_OK(cuDestroyExternalMemory(handle));
    CHECK_EQ(cuDestroyExternalMemory(handle), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuMemcpyDtoH(&seen, p + 4, sizeof seen));
    CHECK_EQ(seen, 77);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    CHECK_OK(cuMemFree(p));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 0);
}

int main(void)
{
    setenv("GPUPROF_SIM", "devices=2", 1);
    check_begin(0);
    lines();
    sets();
    planes();
    arrays();
    external();
    contexts();
    return check_done();
}
