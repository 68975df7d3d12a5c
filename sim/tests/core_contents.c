/* SPDX-License-Identifier: MIT
 * Selftest: contents=none.  Device memory has no host memory behind it but for small writes, and the results of
 * kernels are zeros wherever they lie. */
#define _GNU_SOURCE
#include "core_check.h"

#include <elf.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GIB (1ull << 30)
#define MIB (1ull << 20)

static int backing = -1; /* the file behind device memory */

static void backing_find(void)
{
    for (int fd = 3; fd < 256 && backing < 0; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "memfd:simulated-gpu"))
            backing = fd;
    }
    CHECK(backing >= 0);
}

static long long backing_bytes(void)
{
    struct stat status;
    CHECK(fstat(backing, &status) == 0);
    return 512ll * status.st_blocks;
}

static long long resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %lld", &pages) == 1);
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static CUdeviceptr allocate(size_t size)
{
    CUdeviceptr p = 0;
    CHECK_OK(cuMemAlloc(&p, size));
    return p;
}

static int all(const void *bytes, size_t size, int value)
{
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)bytes)[i] != value)
            return 0;
    return 1;
}

static int reads(CUdeviceptr p, size_t size, int value)
{
    unsigned char *bytes = malloc(size);
    memset(bytes, 0xee, size);
    CHECK_OK(cuMemcpyDtoH(bytes, p, size));
    int same = all(bytes, size, value);
    free(bytes);
    return same;
}

static void writes(CUdeviceptr p, size_t size, int value)
{
    unsigned char *bytes = malloc(size);
    memset(bytes, value, size);
    CHECK_OK(cuMemcpyHtoD(p, bytes, size));
    free(bytes);
}

/* 60 GiB of memsets and 20 GiB of copies. */
static void volume(void)
{
    const size_t piece = 256 * MIB;
    char *host = mmap(NULL, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr p[3];
    memset(host, 7, piece);
    for (int i = 0; i < 3; i++)
        p[i] = allocate(20 * GIB);
    backing_find();
    const long long before = backing_bytes(), resident = resident_bytes();
    CHECK_OK(cuMemsetD8(p[0], 0x11, 20 * GIB));
    CHECK_OK(cuMemsetD16(p[1], 0x2222, 10 * GIB));
    CHECK_OK(cuMemsetD32(p[2], 0x33333333, 5 * GIB));
    for (size_t at = 0; at < 10 * GIB; at += piece)
        CHECK_OK(cuMemcpyHtoD(p[0] + at, host, piece));
    CHECK_OK(cuMemcpyDtoD(p[1], p[0], 9 * GIB));
    CHECK_OK(cuMemcpyDtoH(host, p[1], piece));
    CHECK(all(host, piece, 0));
    memset(host, 7, piece);
    CHECK_OK(cuMemcpy((CUdeviceptr)host, p[2] + 4096, piece)); /* never written */
    CHECK(all(host, piece, 0));
    CHECK_EQ(backing_bytes() - before, 0);
    CHECK(resident_bytes() - resident < (long long)(8 * MIB));
    for (int i = 0; i < 3; i++)
        CHECK_OK(cuMemFree(p[i]));
    munmap(host, piece);
}

/* Of what was never written, pinned memory has no pages either, and registered memory has zeros. */
static void to_pinned(void)
{
    const size_t size = 64 * MIB;
    CUdeviceptr p = allocate(size);
    char *host = NULL, *own = malloc(size);
    const long long before = backing_bytes();
    CHECK_OK(cuMemHostAlloc((void **)&host, size, 0));
    memset(host, 7, size);
    CHECK(backing_bytes() - before >= (long long)size);
    writes(p + 5000, 1000, 5);
    CHECK_OK(cuMemcpyDtoH(host + 10, p, size - 20));
    CHECK(backing_bytes() - before < (long long)MIB);
    CHECK(all(host, 10, 7) && all(host + size - 10, 10, 7));
    CHECK(all(host + 10, 5000, 0) && all(host + 5010, 1000, 5) && all(host + 6010, size - 6020, 0));
    memset(own, 7, size);
    CHECK_OK(cuMemHostRegister(own, size, 0));
    CHECK_OK(cuMemcpyDtoH(own, p, size));
    CHECK(all(own, 5000, 0) && all(own + 5000, 1000, 5) && all(own + 6000, size - 6000, 0));
    CHECK_OK(cuMemHostUnregister(own));
    CHECK_OK(cuMemFreeHost(host));
    CHECK_OK(cuMemFree(p));
    free(own);
}

static void kept(void)
{
    CUdeviceptr p = allocate(64 * MIB), q = allocate(64 * MIB);
    const long long before = backing_bytes();
    writes(p + 100, 1000, 5);
    CHECK(reads(p + 100, 1000, 5) && reads(p, 100, 0) && reads(p + 1100, 5000, 0));
    writes(p + 100, MIB, 6);
    CHECK(reads(p + 100, MIB, 6));
    /* Copies on the device. */
    CHECK_OK(cuMemcpyDtoD(q + 8, p + 100, 4096));
    CHECK(reads(q + 8, 4096, 6) && reads(q, 8, 0));
    CHECK_OK(cuMemcpyDtoD(p + 108, p + 100, MIB / 2)); /* overlapping */
    CHECK(reads(p + 100, MIB, 6));
    CHECK_OK(cuMemcpyDtoD(q + 8, p + 32 * MIB, 4096)); /* what was never written comes over as zeros */
    CHECK(reads(q + 8, 4096, 0));
    CHECK_OK(cuMemsetD32(q, 0x01010101, 1000));
    CHECK(reads(q, 4000, 1) && reads(q + 4000, 1000, 0));
    /* A large write clears what it covers and nothing else. */
    writes(p + 3 * MIB, 512, 9);
    CHECK_OK(cuMemsetD8(p, 4, 3 * MIB));
    CHECK(reads(p, 3 * MIB, 0) && reads(p + 3 * MIB, 512, 9));
    CHECK_OK(cuMemsetD8(p + 3 * MIB + 8, 0, 8));
    CHECK(reads(p + 3 * MIB, 8, 9) && reads(p + 3 * MIB + 8, 8, 0) && reads(p + 3 * MIB + 16, 496, 9));
    CHECK_OK(cuMemsetD8(q, 0, 64 * MIB));
    CHECK_OK(cuMemsetD8(p, 0, 64 * MIB));
    CHECK_EQ(backing_bytes(), before);
    CHECK_OK(cuMemFree(p));
    CHECK_OK(cuMemFree(q));
}

/* Rows with gaps, and an array. */
static void shapes(void)
{
    CUdeviceptr p = allocate(4 * MIB);
    char rows[10][16], back[10][16];
    memset(rows, 3, sizeof rows);
    writes(p, MIB, 8);
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = rows,
                        .srcPitch = 16,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .dstPitch = 512,
                        .WidthInBytes = 16,
                        .Height = 10};
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .srcPitch = 512,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = back,
                         .dstPitch = 16,
                         .WidthInBytes = 16,
                         .Height = 10};
    CHECK_OK(cuMemcpy2D(&in));
    CHECK_OK(cuMemcpy2D(&out));
    CHECK(all(back, sizeof back, 3) && reads(p + 16, 496, 8));
    CHECK_OK(cuMemsetD2D8(p, 512, 0, 16, 10));
    CHECK_OK(cuMemcpy2D(&out));
    CHECK(all(back, sizeof back, 0) && reads(p + 16, 496, 8));
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 16, .Height = 10, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    CHECK_OK(cuArrayCreate(&array, &shape));
    in.dstMemoryType = out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    in.dstArray = out.srcArray = array;
    CHECK_OK(cuMemcpy2D(&in));
    CHECK_OK(cuMemcpy2D(&out));
    CHECK(all(back, sizeof back, 3));
    CHECK_OK(cuArrayDestroy(array));
    CHECK_OK(cuMemFree(p));
}

/* The oldest go first. */
static void cap(void)
{
    CUdeviceptr p = allocate(256 * MIB);
    const long long before = backing_bytes();
    for (size_t i = 0; i < 128; i++)
        writes(p + 2 * i * MIB, MIB, 1 + (int)i % 100);
    CHECK(backing_bytes() - before <= (long long)(32 * MIB));
    CHECK(reads(p + 2 * 127 * MIB, MIB, 28) && reads(p + 2 * 100 * MIB, MIB, 1));
    CHECK(reads(p, MIB, 0) && reads(p + 2 * 90 * MIB, MIB, 0));
    for (size_t i = 0; i < 60000; i++) /* each piece has a page of its own */
        CHECK_OK(cuMemsetD32(p + i * 4096, 1, 1));
    CHECK(backing_bytes() - before <= (long long)(32 * MIB));
    CHECK_OK(cuMemFree(p));
    CHECK(backing_bytes() <= before);
}

/* Host memory keeps everything. */
static void host(void)
{
    CUdeviceptr managed, device = allocate(4 * MIB);
    char *pinned;
    CHECK_OK(cuMemAllocManaged(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK_OK(cuMemHostAlloc((void **)&pinned, 4 * MIB, 0));
    CHECK_OK(cuMemsetD8(managed, 3, 4 * MIB));
    CHECK(all((void *)managed, 4 * MIB, 3));
    CHECK_OK(cuMemcpy((CUdeviceptr)pinned, managed, 4 * MIB));
    CHECK(all(pinned, 4 * MIB, 3));
    CHECK_OK(cuMemcpyDtoH(pinned, device, 4 * MIB));
    CHECK(all(pinned, 4 * MIB, 0));
    CHECK_OK(cuMemFreeHost(pinned));
    CHECK_OK(cuMemFree(managed));
    CHECK_OK(cuMemFree(device));
}

/* The driver's own ways to hand memory out again. */
static void handed_out(void)
{
    CUdeviceptr p, q, other = allocate(512);
    p = allocate(1024);
    writes(p, 1024, 4);
    CHECK_OK(cuMemFree(p));
    q = allocate(1024);
    CHECK_EQ(q, p); /* a piece of one block */
    CHECK(reads(q, 1024, 0));
    CHECK_OK(cuMemFree(q));
    CHECK_OK(cuMemFree(other));
    CHECK_OK(cuMemAllocAsync(&p, 4096, NULL));
    writes(p, 4096, 4);
    CHECK(reads(p, 4096, 4));
    CHECK_OK(cuMemFreeAsync(p, NULL));
    CHECK_OK(cuMemAllocAsync(&q, 4096, NULL));
    CHECK_EQ(q, p);
    CHECK(reads(q, 4096, 0));
    CHECK_OK(cuMemFreeAsync(q, NULL));
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static const char *const ptx = ".version 8.0\n.target sm_90\n.address_size 64\n"
                               ".visible .entry fill(.param .u64 p, .param .u32 n)\n{\nret;\n}\n";
static const struct {
    struct check_fat head;
    char bytes[16];
} opaque = {CHECK_FAT(16), "anything"};

struct arrays { /* a parameter, as frameworks pass tensors */
    char kind[4];
    int sizes[25];
    CUdeviceptr data[3];
};

/* A cubin with one kernel, _Z4fillPfi(int, struct arrays), as a compiler makes it: the parameters stand in .nv.info, and
 * a function that it calls has no bank of constants. */
#define KERNEL "_Z4fillPfi"
struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr sections[6];
    char names[96];
    struct {
        uint8_t format, attribute;
        uint16_t size;
        uint32_t index;
        uint16_t ordinal, offset;
        uint32_t bits;
    } parameters[2];
    char code[128];
};

static struct cubin cubin_make(void)
{
    struct cubin c = {.header = {.e_ident = ELFMAG,
                                 .e_shoff = offsetof(struct cubin, sections),
                                 .e_shentsize = sizeof(Elf64_Shdr),
                                 .e_shnum = 6,
                                 .e_shstrndx = 1},
                      .sections = {[1] = {.sh_name = 1,
                                          .sh_type = SHT_STRTAB,
                                          .sh_offset = offsetof(struct cubin, names),
                                          .sh_size = sizeof c.names},
                                   [2] = {.sh_name = 8,
                                          .sh_type = SHT_PROGBITS,
                                          .sh_offset = offsetof(struct cubin, code),
                                          .sh_size = sizeof c.code},
                                   [3] = {.sh_name = 25,
                                          .sh_type = 0x70000000,
                                          .sh_offset = offsetof(struct cubin, parameters),
                                          .sh_size = sizeof c.parameters},
                                   [4] = {.sh_name = 45,
                                          .sh_type = SHT_PROGBITS,
                                          .sh_offset = offsetof(struct cubin, parameters),
                                          .sh_size = sizeof c.parameters},
                                   [5] = {.sh_name = 70,
                                          .sh_type = SHT_PROGBITS,
                                          .sh_offset = offsetof(struct cubin, code),
                                          .sh_size = sizeof c.code}},
                      .names =
                          "\0.names\0.text." KERNEL "\0.nv.info." KERNEL "\0.nv.constant0." KERNEL "\0.text.helper",
                      .parameters = {{4, 0x17, 12, 0, 1, 8, sizeof(struct arrays) << 18 | 0x1f000},
                                     {4, 0x17, 12, 0, 0, 0, sizeof(int) << 18 | 0x1f000}}};
    return c;
}

static size_t lz4_length(unsigned char *to, size_t rest)
{
    size_t out = 0;
    for (; rest >= 255; rest -= 255)
        to[out++] = 255;
    to[out++] = (unsigned char)rest;
    return out;
}

/* LZ4's block format, with matches for runs alone. */
static size_t pack_lz4(const unsigned char *from, size_t size, unsigned char *to)
{
    size_t at = 0, out = 0;
    while (at < size) {
        size_t run = 1, literals = 0;
        for (; at + literals < size; literals++) {
            for (run = 1; at + literals + run < size && from[at + literals + run] == from[at + literals]; run++)
                ;
            if (run > 4)
                break;
        }
        literals += at + literals < size; /* the run's first byte */
        size_t match = at + literals < size ? run - 1 - 4 : 0;
        to[out++] = (unsigned char)((literals < 15 ? literals : 15) << 4 | (match < 15 ? match : 15));
        out += literals < 15 ? 0 : lz4_length(to + out, literals - 15);
        memcpy(to + out, from + at, literals);
        out += literals;
        at += literals;
        if (at >= size)
            break;
        to[out++] = 1;
        to[out++] = 0;
        out += match < 15 ? 0 : lz4_length(to + out, match - 15);
        at += match + 4;
    }
    return out;
}

/* A Zstandard frame with one raw block. */
static size_t pack_zstd(const unsigned char *from, size_t size, unsigned char *to)
{
    const unsigned char head[] = {0x28,
                                  0xb5,
                                  0x2f,
                                  0xfd,
                                  0x60,
                                  (unsigned char)(size - 256),
                                  (unsigned char)((size - 256) >> 8),
                                  (unsigned char)(size << 3 | 1),
                                  (unsigned char)(size >> 5),
                                  (unsigned char)(size >> 13)};
    memcpy(to, head, sizeof head);
    memcpy(to + sizeof head, from, size);
    return sizeof head + size;
}

/* A fat binary of that cubin; packing: 0 none, 1 LZ4, 2 Zstandard. */
static const void *fat_make(int packing)
{
    static struct {
        struct check_fat head;
        struct check_fat_entry entry;
        unsigned char bytes[4096];
    } fat;
    struct cubin cubin = cubin_make();
    size_t size = sizeof cubin;
    memset(&fat, 0, sizeof fat);
    memcpy(fat.bytes, &cubin, size);
    if (packing)
        size = (packing == 1 ? pack_lz4 : pack_zstd)((const unsigned char *)&cubin, sizeof cubin, fat.bytes);
    fat.entry = (struct check_fat_entry)CHECK_FAT_ENTRY(2, (size + 7) / 8 * 8);
    fat.entry.packed = packing ? (uint32_t)size : 0;
    fat.entry.flags = 0x11 | (packing == 1 ? 0x2000 : packing == 2 ? 0x8000 : 0);
    fat.entry.unpacked = packing ? sizeof cubin : 0;
    fat.head = (struct check_fat)CHECK_FAT(sizeof fat.entry + fat.entry.size);
    return &fat;
}

/* As compiled code passes them: an array without its length. */
static __attribute__((noinline)) void launch_compiled(CUfunction f, CUstream stream, CUdeviceptr out, CUdeviceptr in)
{
    int n = 100;
    struct arrays arrays = {.kind = "abc", .data = {out, in, 0}};
    void *arguments[] = {&n, &arrays};
    CHECK_OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

static void launches(const void *image)
{
    CUfunction text = check_function(ptx, "fill"), compiled = check_function(image, KERNEL);
    CUdeviceptr p = allocate(32 * MIB), other = p + 16 * MIB;
    int n = 4;
    void *arguments[] = {&p, &n};
    /* A block of a caching allocator: what was written there is not the result of the kernel. */
    writes(p, 512, 5);
    writes(other, 512, 6);
    CHECK_OK(cuLaunchKernel(text, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
    CHECK(reads(p, 512, 0));
    writes(p, 512, 5);
    launch_compiled(compiled, NULL, p, other + MIB);
    CHECK(reads(p, 8, 0) && reads(other, 512, 6));
    /* A result that reaches into the next block of old. */
    writes(p + 512, 512, 5);
    writes(p + 1024, 512, 7);
    launch_compiled(compiled, NULL, p, 0);
    CHECK(reads(p + 1024, 512, 7)); /* a block of its own */
    CHECK(reads(p, 1024, 0) && reads(p + 512, 512, 0));
    CHECK(reads(p + 1024, 512, 7));
    /* A write after the launch counts. */
    launch_compiled(compiled, NULL, p, 0);
    writes(p, 512, 8);
    CHECK(reads(p, 512, 8) && reads(p, 8, 8));
    /* A pointer into a larger write. */
    launch_compiled(compiled, NULL, p + 256, 0);
    CHECK(reads(p, 256, 8) && reads(p + 256, 256, 0));
    CHECK(reads(other, 512, 6));
    CHECK_OK(cuMemFree(p));
}

/* The names in a cubin, alone and in fat binaries; in `opaque` they cannot be seen. */
static void names(const void *image, unsigned expected)
{
    CUlibrary library;
    CUkernel kernel = NULL;
    const char *name = NULL;
    unsigned count = 0;
    CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_EQ(cuLibraryGetKernelCount(&count, library), expected ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(count, expected);
    CHECK_EQ(cuLibraryEnumerateKernels(&kernel, 1, library), expected ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
    CHECK(!expected || (cuKernelGetName(&name, kernel) == CUDA_SUCCESS && !strcmp(name, KERNEL)));
    CHECK_OK(cuLibraryUnload(library));
}

static void graphs(const void *image)
{
    CUfunction compiled = check_function(image, KERNEL), unknown = check_function(&opaque, KERNEL);
    CUdeviceptr p = allocate(32 * MIB), other = p + 16 * MIB;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_compiled(compiled, stream, p, 0);
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        writes(p, 512, 5);
        writes(other, 512, 6);
        CHECK(reads(p, 512, 5));
        CHECK_OK(cuGraphLaunch(exec, stream));
        CHECK_OK(cuStreamSynchronize(stream));
        CHECK(reads(p, 512, 0) && reads(other, 512, 6));
    }
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    /* Nothing is known of what this one writes. */
    launch_compiled(unknown, stream, p + 8 * MIB, 0);
    CHECK(reads(other, 512, 0));
    writes(other, 512, 6);
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_compiled(unknown, stream, p + 8 * MIB, 0);
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(reads(other, 512, 6));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK(reads(other, 512, 0));
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuStreamDestroy(stream));
    CHECK_OK(cuMemFree(p));
}

/* What a stand-in of a library says. */
static void computed(void)
{
    void (*say)(CUdeviceptr, size_t) = (void (*)(CUdeviceptr, size_t))dlsym(RTLD_DEFAULT, "sim_memory_computed");
    CUdeviceptr p = allocate(4 * MIB);
    writes(p, 512, 5);
    writes(p + 512, 512, 6);
    CHECK(say != NULL);
    if (say)
        say(p, 512);
    CHECK(reads(p, 512, 0) && reads(p + 512, 512, 6));
    CHECK_OK(cuMemFree(p));
}

/* Numbers that a result is read as.  What the host wrote stays, and so do larger reads and other threads' reads. */
struct elsewhere {
    CUcontext context;
    CUdeviceptr p;
};
static void *told_elsewhere(void *data)
{
    const struct elsewhere *there = data;
    uint64_t value = 1;
    CHECK_OK(cuCtxSetCurrent(there->context));
    CHECK_OK(cuMemcpyDtoH(&value, there->p, sizeof value));
    return (void *)(uintptr_t)value;
}

static void told(CUcontext context)
{
    void (*say)(const uint64_t *) = (void (*)(const uint64_t *))dlsym(RTLD_DEFAULT, "sim_read_as");
    CUdeviceptr p = allocate(4 * MIB);
    uint64_t number = 0x123456789abcdefull, value = 0, pair[2] = {1, 1};
    uint32_t half = 0;
    struct elsewhere there = {context, p};
    void *other = &other;
    pthread_t thread;
    CHECK(say != NULL);
    if (!say)
        return;
    writes(p + 64, 8, 5);
    say(&number);
    CHECK_OK(cuMemcpyDtoH(&value, p, sizeof value));
    CHECK(value == number);
    CHECK_OK(cuMemcpyDtoH(&half, p, sizeof half));
    CHECK(half == (uint32_t)number);
    CHECK(reads(p + 64, 8, 5));
    CHECK_OK(cuMemcpyDtoH(pair, p, sizeof pair));
    CHECK(pair[0] == 0 && pair[1] == 0);
    CHECK(pthread_create(&thread, NULL, told_elsewhere, &there) == 0 && pthread_join(thread, &other) == 0);
    CHECK(other == NULL);
    say(NULL);
    CHECK(reads(p, 8, 0));
    CHECK_OK(cuMemFree(p));
}

int main(void)
{
    setenv("GPUPROF_SIM", "memory=80GiB,contents=none", 1);
    CUcontext context = check_begin(0);
    volume();
    to_pinned();
    kept();
    shapes();
    cap();
    host();
    handed_out();
    struct cubin cubin = cubin_make();
    launches(&cubin);
    names(&cubin, 1);
    names(&opaque, 0);
    for (int packing = 0; packing < 3; packing++)
        if (packing < 2 || dlopen("libzstd.so.1", RTLD_NOW | RTLD_NOLOAD)) {
            launches(fat_make(packing));
            names(fat_make(packing), 1);
        }
    graphs(fat_make(1));
    graphs(&cubin);
    computed();
    told(context);
    return check_done();
}
