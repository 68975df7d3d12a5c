/* SPDX-License-Identifier: MIT
 *
 * Memory bound to a logical endpoint (CUDA 13.3) lives on after its release, until it is unbound or
 * the endpoint is destroyed. Leaves 4 MiB bound by handle to one endpoint, and 2 MiB by address to
 * another one, all of it released.
 */
#include <cuda.h>
#include <stdint.h>

#include "finish.h"
#include "later.h"
#include "vmm.h"

struct endpoint_prop { /* CUlogicalEndpointProp */
    int type;
    int device; /* unicast */
    unsigned long long size;
    int handle_types;
    unsigned int flags;
};
#define UNICAST 1

typedef CUresult (*reserve_fn)(uint32_t *, uint32_t);
typedef CUresult (*create_fn)(uint32_t, const struct endpoint_prop *);
typedef CUresult (*query_fn)(uint32_t, uint32_t, int *);
typedef CUresult (*bind_fn)(uint32_t, CUdevice, uint64_t, CUmemGenericAllocationHandle, uint64_t, uint64_t,
                            unsigned long long);
typedef CUresult (*bind_addr_fn)(uint32_t, CUdevice, uint64_t, void *, uint64_t, unsigned long long);
typedef CUresult (*unbind_fn)(uint32_t, CUdevice, uint64_t, uint64_t);
typedef CUresult (*destroy_fn)(uint32_t);

static void bind_released(bind_fn bind, uint32_t id, CUdevice device, uint64_t offset, size_t bytes)
{
    CUmemGenericAllocationHandle memory = vmm_create(device, bytes);
    CHECK(LATER(bind, id, device, offset, memory, 0, bytes, 0));
    CHECK(cuMemRelease(memory));
}

int main(void)
{
    CUdevice device = later_start(13030);
    reserve_fn reserve = (reserve_fn)later("cuLogicalEndpointIdReserve", 13030);
    create_fn create = (create_fn)later("cuLogicalEndpointCreate", 13030);
    query_fn query = (query_fn)later("cuLogicalEndpointQuery", 13030);
    bind_fn bind = (bind_fn)later("cuLogicalEndpointBindMem", 13030);
    bind_addr_fn bind_addr = (bind_addr_fn)later("cuLogicalEndpointBindAddr", 13030);
    unbind_fn unbind = (unbind_fn)later("cuLogicalEndpointUnbind", 13030);
    destroy_fn destroy = (destroy_fn)later("cuLogicalEndpointDestroy", 13030);
    struct endpoint_prop shape = {.type = UNICAST, .device = device, .size = 32 * STEP};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr range = vmm_reserve(8 * STEP);
    uint32_t id = 0;
    int ready = 0;

    CHECK(LATER(reserve, &id, 3));
    for (uint32_t i = 0; i < 3; i++)
        CHECK(LATER(create, id + i, &shape));
    CHECK(LATER(query, id, 3, &ready));
    printf("ready: %d\n", ready != 0);

    bind_released(bind, id, device, 0, 2 * STEP);
    bind_released(bind, id, device, 4 * STEP, 3 * STEP);
    bind_released(bind, id, device, 7 * STEP, STEP);
    CHECK(LATER(unbind, id, device, 4 * STEP, 4 * STEP)); /* two binds at once */
    bind_released(bind, id + 1, device, 0, 5 * STEP);
    bind_released(bind, id + 1, device, 6 * STEP, 4 * STEP);
    CHECK(LATER(destroy, id + 1)); /* frees both */

    memory = vmm_create(device, STEP);
    CHECK(cuMemMap(range, STEP, 0, memory, 0));
    CHECK(cuMemRelease(memory));
    CHECK(LATER(bind_addr, id + 2, device, 0, (void *)(uintptr_t)range, STEP, 0));
    CHECK(cuMemUnmap(range, STEP));
    return finish();
}
