/* SPDX-License-Identifier: MIT
 *
 * Expandable-segment style: many handles side by side, one unmap over several, one over a hole and
 * a mapping, none cut in two; part of a handle, which cannot be mapped; what the driver says
 * of an address; addresses freed. Leaves 2 mapped steps of 8, and a handle of 4.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

/* What the driver says of an address: the range is all that was reserved, the mapping what lies there. */
static void attributes(const char *what, CUdeviceptr at, CUdeviceptr range)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUdeviceptr start = 0, base = 0;
    size_t bytes = 0, mapping = 0;
    unsigned mapped = 0, type = 0;
    void *data[] = {&start, &bytes, &mapped, &type};
    REPORT(what, cuPointerGetAttributes(4, which, data, at));
    printf("range %d of %zu steps, mapped %u, type %u\n", start == range, bytes / STEP, mapped, type);
    REPORT("mapping", cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at));
    REPORT("mapping", cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at));
    printf("at %zu, of %zu steps\n", base != 0 ? (size_t)(base - range) / STEP : 0, mapping / STEP);
}

int main(void)
{
    CUdevice device = program_start();
    CUdeviceptr range = vmm_reserve(32 * STEP), spare = vmm_reserve(4 * STEP);
    CUmemGenericAllocationHandle handles[8], whole;
    unsigned i;
    for (i = 0; i < 8; i++) {
        handles[i] = vmm_create(device, STEP);
        CHECK(cuMemMap(range + i * STEP, STEP, 0, handles[i], 0));
        CHECK(cuMemRelease(handles[i]));
    }
    vmm_allow(device, range, 8 * STEP);
    CHECK(cuMemUnmap(range + 2 * STEP, 5 * STEP));
    REPORT("nothing is mapped", cuMemUnmap(range + 8 * STEP, STEP));
    REPORT("from a hole on", cuMemUnmap(range + 4 * STEP, 4 * STEP));

    whole = vmm_create(device, 4 * STEP);
    REPORT("half of a handle", cuMemMap(range + 16 * STEP, 2 * STEP, 0, whole, 0));
    CHECK(cuMemMap(range + 16 * STEP, 4 * STEP, 0, whole, 0));
    REPORT("cuts a mapping", cuMemUnmap(range + 16 * STEP, STEP));
    REPORT("odd address", cuMemMap(range + 20 * STEP + 4096, STEP, 0, whole, 0));
    attributes("in a mapping", range + 17 * STEP + 5, range);
    attributes("in a hole", range + 9 * STEP, range);
    CHECK(cuMemAddressFree(spare, 4 * STEP));
    return finish();
}
