/* SPDX-License-Identifier: MIT
 * Selftest: virtual memory management: reservations, references, mappings and their access, aliases, valid
 * ranges to unmap, and handles in another process. */
#include <sys/socket.h>
#include <sys/wait.h>

#include "core_check.h"

#define PAGE     (2 * CHECK_MIB)
#define FAR_AWAY UINT64_C(0x1f0000000000)

static const CUmemAllocationProp device_memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc both = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void check_counts(long long reserved, long long allocated, long long virtual)
{
    CHECK_EQ(check_reserved(0, "\"current\":"), reserved);
    CHECK_EQ(check_kind(0, "vmm", "current_bytes"), reserved);
    CHECK_EQ(check_allocated(0, "\"current\":"), allocated);
    CHECK_EQ(check_kind(0, "virtual", "current_bytes"), virtual);
}

static void reservations(void)
{
    CUdeviceptr p, q;

    CHECK_EQ(cuMemAddressReserve(&p, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&p, PAGE + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&p, PAGE, 3 * PAGE, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&p, PAGE, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAddressReserve(&p, 4 * PAGE, 0, 0, 0));
    CHECK_EQ(p % PAGE, 0);
    check_counts(0, 0, 4 * PAGE);
    CHECK_EQ(cuMemsetD8(p, 1, 1), CUDA_ERROR_INVALID_VALUE); /* nothing is mapped */
    CHECK_EQ(cuMemAddressFree(p, 3 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressFree(p + PAGE, 3 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAddressReserve(&q, PAGE, 0, p, 0)); /* a wish that cannot be met is passed over */
    CHECK(q && (q < p || q >= p + 4 * PAGE));
    CHECK_OK(cuMemAddressFree(q, PAGE));
    CHECK_OK(cuMemAddressFree(p, 4 * PAGE));
    CHECK_EQ(cuMemAddressFree(p, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAddressReserve(&q, PAGE, 0, p, 0)); /* one that can is granted */
    CHECK_EQ(q, p);
    CHECK_OK(cuMemAddressFree(q, PAGE));
    for (int i = 0; i < 2; i++) { /* far from everything that the driver gave out so far, as kvcached wants it */
        CHECK_OK(cuMemAddressReserve(&q, 4 * PAGE, PAGE, FAR_AWAY, 0));
        CHECK_EQ(q, FAR_AWAY);
        CHECK_OK(cuMemAddressReserve(&p, PAGE, PAGE, FAR_AWAY + PAGE, 0));
        CHECK(p && (p < q || p >= q + 4 * PAGE));
        CHECK_OK(cuMemAddressFree(p, PAGE));
        CHECK_OK(cuMemAddressFree(q, 4 * PAGE));
    }
    check_counts(0, 0, 0);
}

static void creation(void)
{
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp prop = device_memory;
    size_t granularity = 0, before, after, total;

    CHECK_OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(granularity, PAGE);
    CHECK_EQ(cuMemCreate(&h, PAGE / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&h, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&h, PAGE, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&h, PAGE, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&h, 1ull << 40, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    prop.location.id = 7;
    CHECK_EQ(cuMemCreate(&h, PAGE, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    check_counts(0, 0, 0);
    CHECK_OK(cuMemGetInfo(&before, &total));
    CHECK_OK(cuMemCreate(&h, 3 * PAGE, &device_memory, 0));
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(before - after, 3 * PAGE);
    check_counts(3 * PAGE, 0, 0);
    CHECK_OK(cuMemGetAllocationPropertiesFromHandle(&prop, h));
    CHECK_EQ(prop.location.id, 0);
    CHECK_OK(cuMemRelease(h));
    CHECK_EQ(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(before, after);
    check_counts(0, 0, 0);
}

/* Memory lives while a reference or a mapping does. */
static void references(void)
{
    CUmemGenericAllocationHandle h, again, next;
    CUdeviceptr p;

    CHECK_OK(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemCreate(&h, PAGE, &device_memory, 0));
    CHECK_OK(cuMemMap(p, PAGE, 0, h, 0));
    check_counts(PAGE, PAGE, 2 * PAGE);
    CHECK_OK(cuMemRelease(h));
    check_counts(PAGE, PAGE, 2 * PAGE);
    CHECK_EQ(cuMemMap(p + PAGE, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE); /* no handle any more */
    CHECK_EQ(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemRetainAllocationHandle(&again, (void *)(p + 12345)));
    CHECK_EQ(again, h);
    CHECK_OK(cuMemRetainAllocationHandle(&again, (void *)p));
    CHECK_OK(cuMemUnmap(p, PAGE));
    check_counts(PAGE, 0, 2 * PAGE);
    CHECK_OK(cuMemRelease(h));
    check_counts(PAGE, 0, 2 * PAGE);
    CHECK_OK(cuMemMap(p, PAGE, 0, h, 0));
    CHECK_OK(cuMemUnmap(p, PAGE));
    CHECK_OK(cuMemRelease(h));
    check_counts(0, 0, 2 * PAGE);
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)p), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemCreate(&next, PAGE, &device_memory, 0));
    CHECK_EQ(next, h); /* handles are used again at once */
    CHECK_OK(cuMemRelease(next));
    CHECK_OK(cuMemAddressFree(p, 2 * PAGE));
}

/* The range is all that was reserved; the mapping, and its type, what lies at the address: 0, nothing. */
static void range_is(CUdeviceptr at, CUdeviceptr range, size_t size, CUdeviceptr mapping, size_t mapping_size)
{
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE,     CU_POINTER_ATTRIBUTE_MAPPED,     CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUdeviceptr start = 1, base = 1;
    size_t bytes = 1, mapping_bytes = 1;
    unsigned mapped = 7, type = 7;
    void *data[] = {&start, &bytes, &base, &mapping_bytes, &mapped, &type};

    CHECK_OK(cuPointerGetAttributes(6, which, data, at));
    CHECK_EQ(start, range);
    CHECK_EQ(bytes, size);
    CHECK_EQ(base, mapping);
    CHECK_EQ(mapping_bytes, mapping_size);
    CHECK_EQ(mapped, mapping_size != 0);
    CHECK_EQ(type, mapping_size ? CU_MEMORYTYPE_DEVICE : 0);
    CHECK_OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    CHECK_EQ(start, range);
}

static void mappings(void)
{
    CUmemGenericAllocationHandle h, g;
    CUdeviceptr p;

    CHECK_OK(cuMemAddressReserve(&p, 4 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemCreate(&h, PAGE, &device_memory, 0));
    CHECK_OK(cuMemCreate(&g, 2 * PAGE, &device_memory, 0));
    CHECK_EQ(cuMemMap(p + 4096, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(p, PAGE / 2, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED); /* part of the handle */
    CHECK_EQ(cuMemMap(p, PAGE, 0, g, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuMemMap(p, 2 * PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);            /* beyond the handle */
    CHECK_EQ(cuMemMap(p + 3 * PAGE, 2 * PAGE, 0, g, 0), CUDA_ERROR_INVALID_VALUE); /* beyond the reservation */
    CHECK_EQ(cuMemMap(p + 8 * PAGE, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemMap(p, PAGE, 0, h, 0));
    CHECK_EQ(cuMemMap(p, PAGE, 0, h, 0), CUDA_ERROR_INVALID_VALUE); /* taken */
    CHECK_OK(cuMemMap(p + PAGE, 2 * PAGE, 0, g, 0));
    check_counts(3 * PAGE, 3 * PAGE, 4 * PAGE);
    CHECK_EQ(cuMemAddressFree(p, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(p, PAGE / 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(p, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(p + PAGE, PAGE), CUDA_ERROR_INVALID_VALUE); /* half of a mapping */
    CHECK_EQ(cuMemUnmap(p + 2 * PAGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(p, 2 * PAGE), CUDA_ERROR_INVALID_VALUE); /* one and a half */
    CHECK_EQ(cuMemUnmap(p, 5 * PAGE), CUDA_ERROR_INVALID_VALUE); /* beyond the reservation */
    CHECK_OK(cuMemUnmap(p + 3 * PAGE, PAGE));                    /* only a hole */
    check_counts(3 * PAGE, 3 * PAGE, 4 * PAGE);
    CHECK_OK(cuMemUnmap(p, 3 * PAGE)); /* several at once */
    CHECK_OK(cuMemUnmap(p, 3 * PAGE));
    check_counts(3 * PAGE, 0, 4 * PAGE);
    CHECK_OK(cuMemMap(p + PAGE, 2 * PAGE, 0, g, 0));
    check_counts(3 * PAGE, 2 * PAGE, 4 * PAGE);
    range_is(p + PAGE + 5, p, 4 * PAGE, p + PAGE, 2 * PAGE);
    range_is(p + 3 * PAGE, p, 4 * PAGE, 0, 0);
    CHECK_OK(cuMemUnmap(p, 4 * PAGE)); /* between holes */
    check_counts(3 * PAGE, 0, 4 * PAGE);
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemRelease(g));
    CHECK_OK(cuMemAddressFree(p, 4 * PAGE));
}

static void access_rights(void)
{
    CUmemAccessDesc desc = both;
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                  second = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUmemGenericAllocationHandle h;
    unsigned long long flags = 9;
    CUcontext first, peer;
    CUdeviceptr p;
    char bytes[16] = "over the border", back[16];

    CHECK_OK(cuMemAddressReserve(&p, 3 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemCreate(&h, PAGE, &device_memory, 0));
    CHECK_OK(cuMemMap(p, PAGE, 0, h, 0));
    CHECK_OK(cuMemMap(p + PAGE, PAGE, 0, h, 0));
    CHECK_OK(cuMemGetAccess(&flags, &place, p));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(cuMemsetD8(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemSetAccess(p, 3 * PAGE, &desc, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemSetAccess(p, PAGE / 2, &desc, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemSetAccess(p, PAGE, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    desc.flags = (CUmemAccess_flags)2;
    CHECK_EQ(cuMemSetAccess(p, PAGE, &desc, 1), CUDA_ERROR_INVALID_VALUE);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CHECK_OK(cuMemSetAccess(p, PAGE, &desc, 1));
    CHECK_EQ(cuMemsetD8(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemcpyDtoH(back, p, sizeof back));
    CHECK_EQ(cuMemcpyDtoH(back, p + PAGE - 8, sizeof back), CUDA_ERROR_INVALID_VALUE); /* the neighbour says no */
    CHECK_OK(cuMemSetAccess(p, 2 * PAGE, &both, 1));
    CHECK_OK(cuMemGetAccess(&flags, &place, p + PAGE + 5));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_OK(cuMemcpyHtoD(p + PAGE - 8, bytes, sizeof bytes)); /* over two mappings */
    CHECK_OK(cuMemcpyDtoH(back, p + PAGE - 8, sizeof back));
    CHECK(!memcmp(bytes, back, sizeof bytes));
    CHECK_EQ(cuMemsetD8(p + 2 * PAGE - 8, 1, 16), CUDA_ERROR_INVALID_VALUE); /* into the hole */
    CHECK_OK(cuCtxGetCurrent(&first));
    peer = check_begin(1);
    CHECK_EQ(cuMemsetD8(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
    desc = (CUmemAccessDesc){second, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_OK(cuMemSetAccess(p, PAGE, &desc, 1));
    CHECK_OK(cuMemsetD8(p, 1, 1));
    CHECK(peer != first);
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK_OK(cuMemUnmap(p, 2 * PAGE));
    CHECK_EQ(cuMemcpyDtoH(back, p, sizeof back), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemMap(p, PAGE, 0, h, 0)); /* rights end with the mapping */
    CHECK_EQ(cuMemsetD8(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemUnmap(p, PAGE));
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemAddressFree(p, 3 * PAGE));
    CHECK_OK(cuDevicePrimaryCtxRelease(1));
}

/* Two addresses of the same bytes: seen at both, counted once. */
static void aliases(void)
{
    CUmemGenericAllocationHandle h;
    CUdeviceptr p, q;
    int value = 77, seen = 0;

    CHECK_OK(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemAddressReserve(&q, 2 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemCreate(&h, 2 * PAGE, &device_memory, 0));
    CHECK_OK(cuMemMap(q, 2 * PAGE, 0, h, 0));
    check_counts(2 * PAGE, 2 * PAGE, 4 * PAGE);
    CHECK_OK(cuMemMap(p, 2 * PAGE, 0, h, 0));
    check_counts(2 * PAGE, 2 * PAGE, 4 * PAGE);
    CHECK_OK(cuMemSetAccess(p, 2 * PAGE, &both, 1));
    CHECK_OK(cuMemSetAccess(q, 2 * PAGE, &both, 1));
    CHECK_OK(cuMemcpyHtoD(p + 100, &value, sizeof value));
    CHECK_OK(cuMemcpyDtoH(&seen, q + 100, sizeof seen));
    CHECK_EQ(seen, 77);
    CHECK_OK(cuMemUnmap(p, 2 * PAGE));
    check_counts(2 * PAGE, 2 * PAGE, 4 * PAGE);
    CHECK_OK(cuMemcpyDtoH(&seen, q + 100, sizeof seen));
    CHECK_EQ(seen, 77);
    CHECK_OK(cuMemRelease(h));
    check_counts(2 * PAGE, 2 * PAGE, 4 * PAGE);
    CHECK_OK(cuMemUnmap(q, 2 * PAGE));
    CHECK_OK(cuMemAddressFree(p, 2 * PAGE));
    CHECK_OK(cuMemAddressFree(q, 2 * PAGE));
    check_counts(0, 0, 0);
}

/* Mapped memory belongs to no context. */
static void contexts(void)
{
    CUmemGenericAllocationHandle h;
    CUcontext context;
    CUdeviceptr p;
    int value = 5, seen = 0;

    CHECK_OK(cuCtxCreate(&context, NULL, 0, 0));
    CHECK_OK(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
    CHECK_OK(cuMemCreate(&h, PAGE, &device_memory, 0));
    CHECK_OK(cuMemMap(p, PAGE, 0, h, 0));
    CHECK_OK(cuMemSetAccess(p, PAGE, &both, 1));
    CHECK_OK(cuMemcpyHtoD(p, &value, sizeof value));
    CHECK_OK(cuCtxDestroy(context));
    check_counts(PAGE, PAGE, PAGE);
    CHECK_OK(cuMemcpyDtoH(&seen, p, sizeof seen));
    CHECK_EQ(seen, 5);
    CHECK_OK(cuMemUnmap(p, PAGE));
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemAddressFree(p, PAGE));
}

/* Memory of this process's device in both places of a team: its first call that needs the whole team waits for it. */
static void team_uses(CUmemGenericAllocationHandle team, int device)
{
    CUmemAllocationProp prop = device_memory;
    CUmemGenericAllocationHandle h;
    CUdeviceptr p;

    prop.location.id = device;
    CHECK_OK(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemMap(p, 2 * PAGE, 0, team, 0));
    CHECK_OK(cuMemCreate(&h, PAGE, &prop, 0));
    CHECK_OK(cuMulticastBindMem(team, PAGE, h, 0, PAGE, 0));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 0); /* not memory */
    CHECK_OK(cuMulticastUnbind(team, device, PAGE, PAGE));
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemUnmap(p, 2 * PAGE));
    CHECK_OK(cuMemAddressFree(p, 2 * PAGE));
    CHECK_EQ(cuMulticastAddDevice(team, 1 - device), CUDA_ERROR_INVALID_VALUE); /* it is complete */
    CHECK_OK(cuMemRelease(team));
}

static void team_joins(int line)
{
    CUmemGenericAllocationHandle team;
    CUmemAllocationProp prop;
    int fd = check_receive(line);

    CHECK_OK(cuMemImportFromShareableHandle(&team, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&prop, team), CUDA_ERROR_INVALID_VALUE);
    check_wait(line);
    usleep(20000); /* the other process waits in cuMemMap now */
    CHECK_OK(cuMulticastAddDevice(team, 1));
    team_uses(team, 1);
    check_tell(line);
}

static void team_shares(int line)
{
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 2 * PAGE};
    CUmemGenericAllocationHandle alone, team;
    CUdeviceptr p;
    int fd = -1;

    CHECK_OK(cuMulticastCreate(&alone, &prop));
    CHECK_OK(cuMulticastAddDevice(alone, 0));
    CHECK_EQ(cuMemExportToShareableHandle(&fd, alone, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
    CHECK_EQ(cuMemMap(p, 2 * PAGE, 0, alone, 0), CUDA_ERROR_INVALID_VALUE); /* nobody else can join */
    CHECK_OK(cuMemAddressFree(p, 2 * PAGE));
    CHECK_OK(cuMemRelease(alone));
    prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_OK(cuMulticastCreate(&team, &prop));
    CHECK_OK(cuMemExportToShareableHandle(&fd, team, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    check_send(line, fd);
    close(fd);
    CHECK_OK(cuMulticastAddDevice(team, 0));
    CHECK_EQ(cuMulticastAddDevice(team, 0), CUDA_ERROR_INVALID_VALUE);
    check_tell(line);
    team_uses(team, 0);
    check_wait(line);
}

/* ---- two processes ----------------------------------------------------------------------------------------------- */
static int importer(int line)
{
    CUmemGenericAllocationHandle h = 0;
    CUmemAllocationProp prop;
    CUdeviceptr p;
    int fd = check_receive(line), seen = 0, value = 22;

    check_begin(0);
    CHECK(fd >= 0);
    CHECK_EQ(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)line, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd); /* the import has its own hold on the memory */
    CHECK_OK(cuMemGetAllocationPropertiesFromHandle(&prop, h));
    CHECK_EQ(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_OK(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 0); /* counted while mapped */
    CHECK_OK(cuMemMap(p, 2 * PAGE, 0, h, 0));
    CHECK_OK(cuMemSetAccess(p, 2 * PAGE, &both, 1));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 2 * PAGE);
    check_counts(0, 0, 2 * PAGE);
    CHECK_OK(cuMemcpyDtoH(&seen, p + PAGE, sizeof seen));
    CHECK_EQ(seen, 11);
    CHECK_OK(cuMemcpyHtoD(p + PAGE + 64, &value, sizeof value));
    check_tell(line);
    check_wait(line); /* the exporter has let go of everything */
    CHECK_OK(cuMemcpyDtoH(&seen, p + PAGE, sizeof seen));
    CHECK_EQ(seen, 11);
    CHECK_OK(cuMemUnmap(p, 2 * PAGE));
    CHECK_EQ(check_kind(0, "imported", "current_bytes"), 0);
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemAddressFree(p, 2 * PAGE));
    check_tell(line);
    team_joins(line);
    return check_failed != 0;
}

static void exporter(int line)
{
    CUmemAllocationProp prop = device_memory;
    CUmemGenericAllocationHandle plain, h;
    CUdeviceptr p;
    int fd = -1, value = 11, seen = 0;

    CHECK_OK(cuMemCreate(&plain, PAGE, &prop, 0));
    CHECK_EQ(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuMemRelease(plain));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_OK(cuMemCreate(&h, 2 * PAGE, &prop, 0));
    CHECK_OK(cuMemAddressReserve(&p, 2 * PAGE, 0, 0, 0));
    CHECK_OK(cuMemMap(p, 2 * PAGE, 0, h, 0));
    CHECK_OK(cuMemSetAccess(p, 2 * PAGE, &both, 1));
    CHECK_OK(cuMemcpyHtoD(p + PAGE, &value, sizeof value));
    CHECK_OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    check_send(line, fd);
    close(fd);
    check_wait(line);
    CHECK_OK(cuMemcpyDtoH(&seen, p + PAGE + 64, sizeof seen));
    CHECK_EQ(seen, 22);
    check_counts(2 * PAGE, 2 * PAGE, 2 * PAGE);
    CHECK_OK(cuMemUnmap(p, 2 * PAGE));
    CHECK_OK(cuMemRelease(h));
    CHECK_OK(cuMemAddressFree(p, 2 * PAGE));
    check_counts(0, 0, 0);
    check_tell(line);
    check_wait(line);
}

int main(void)
{
    int line[2], status = 1;

    setenv("GPUPROF_SIM", "devices=2,memory=1GiB", 1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, line) == 0);
    pid_t child = fork(); /* before any CUDA call */
    if (child == 0) {
        close(line[0]);
        exit(importer(line[1]));
    }
    close(line[1]);
    check_begin(0);
    reservations();
    creation();
    references();
    mappings();
    access_rights();
    aliases();
    contexts();
    exporter(line[0]);
    team_shares(line[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    return check_done();
}
