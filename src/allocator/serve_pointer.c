/* SPDX-License-Identifier: MIT
 * serve_pointer.c: queries about an address: its range, its attributes, its IPC handle; see serve.h. */
#include "allocator/driver.h"
#include "allocator/mark.h"
#include "allocator/serve.h"
#include "base/log.h"
#include "base/thread.h"
#include "source/hooks.h"

/* CUpointer_attribute (cuda.h). */
enum gp_attribute {
    GP_ATTRIBUTE_CONTEXT = 1,
    GP_ATTRIBUTE_SYNC_MEMOPS = GP_CU_SYNC_MEMOPS,
    GP_ATTRIBUTE_BUFFER_ID = 7,
    GP_ATTRIBUTE_LEGACY_IPC = 10,
    GP_ATTRIBUTE_RANGE_START = 11,
    GP_ATTRIBUTE_RANGE_SIZE = 12,
    GP_ATTRIBUTE_MAPPING_SIZE = 18,
    GP_ATTRIBUTE_MAPPING_BASE = 19,
};

struct gp_served_context *gp_serve_block(uint64_t address, struct gp_grant *out)
{
    struct gp_served_context *served = gp_served_find(address, out);
    return served && address - out->address < out->requested_bytes ? served : NULL;
}

/* Can this block have a legacy IPC handle?  The handle stands for the driver's allocation, and the importer gets the
 * start of that, so the block must start there. */
static bool block_exportable(const struct gp_served_context *served, const struct gp_grant *block)
{
    uint64_t base, bytes;
    bool dedicated;
    return gp_cache_segment_of(gp_served_cache(served), block->address, &base, &bytes, &dedicated) &&
           base == block->address;
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

static uint32_t gp_serve_cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address)
{
    struct gp_serve serve;
    struct gp_grant block;
    if (!gp_serve_enter_any(&serve))
        return gp_pass_cuMemGetAddressRange_v2(base, bytes, address);
    bool live = gp_serve_block(address, &block) != NULL, ours = live || gp_served_owning(address);
    uint32_t result = ours ? gp_serve_current() : 0;
    gp_serve_leave(&serve);
    if (!ours)
        return gp_pass_cuMemGetAddressRange_v2(base, bytes, address);
    if (result || !live)
        return result ? result : GP_CU_NOT_FOUND;
    if (base)
        *base = block.address;
    if (bytes)
        *bytes = block.requested_bytes;
    return 0;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Turns the driver's answer, which is about the segment, into one about the block. */
static void attribute_of_block(int attribute, void *data, const struct gp_served_context *served,
                               const struct gp_grant *block)
{
    uint64_t id;
    switch (attribute) {
    case GP_ATTRIBUTE_CONTEXT: /* to the driver, growable memory has no context */
        *(void **)data = served->x_ctx;
        break;
    case GP_ATTRIBUTE_RANGE_START:
    case GP_ATTRIBUTE_MAPPING_BASE:
        *(uint64_t *)data = block->address;
        break;
    case GP_ATTRIBUTE_RANGE_SIZE:
    case GP_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = block->requested_bytes;
        break;
    case GP_ATTRIBUTE_LEGACY_IPC:
        *(uint32_t *)data = *(uint32_t *)data && block_exportable(served, block);
        break;
    case GP_ATTRIBUTE_BUFFER_ID:
        id = gp_mark_buffer(served, block->address);
        if (id)
            *(uint64_t *)data = id;
        break;
    case GP_ATTRIBUTE_SYNC_MEMOPS:
        *(uint32_t *)data = gp_mark_is_synced(block->address);
        break;
    default:
        break;
    }
}

/* Any context may be current: the driver answers from any. */
enum gp_address { GP_ADDRESS_FOREIGN, GP_ADDRESS_LIVE, GP_ADDRESS_DEAD };

static enum gp_address serve_address(uint64_t address, struct gp_served_context **served, struct gp_grant *block)
{
    enum gp_address what = GP_ADDRESS_FOREIGN;
    if (!gp_thread_enter_late())
        return what;
    *served = gp_serve_block(address, block);
    if (*served)
        what = GP_ADDRESS_LIVE;
    else if (gp_served_owning(address))
        what = GP_ADDRESS_DEAD;
    gp_thread_leave();
    return what;
}

static uint32_t gp_serve_cuPointerGetAttribute(void *data, int attribute, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    uint32_t result = gp_pass_cuPointerGetAttribute(data, attribute, what == GP_ADDRESS_DEAD ? GP_NOWHERE : address);
    if (what == GP_ADDRESS_LIVE && data && (result == 0 || attribute == GP_ATTRIBUTE_CONTEXT)) {
        attribute_of_block(attribute, data, served, &block);
        result = 0;
    }
    return result;
}

static uint32_t gp_serve_cuPointerGetAttributes(unsigned int count, int *attributes, void **data, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    uint32_t result =
        gp_pass_cuPointerGetAttributes(count, attributes, data, what == GP_ADDRESS_DEAD ? GP_NOWHERE : address);
    for (unsigned i = 0; result == 0 && what == GP_ADDRESS_LIVE && i < count; i++)
        attribute_of_block(attributes[i], data[i], served, &block);
    return result;
}

/* ---- SYNC_MEMOPS ------------------------------------------------------------------------------------------------- */

static uint32_t gp_serve_cuPointerSetAttribute(const void *value, int attribute, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    uint64_t base, bytes;
    bool dedicated = false;
    if (what == GP_ADDRESS_DEAD)
        address = GP_NOWHERE;
    if (what != GP_ADDRESS_LIVE || attribute != GP_ATTRIBUTE_SYNC_MEMOPS || !value)
        return gp_pass_cuPointerSetAttribute(value, attribute, address);
    bool on = *(const unsigned *)value != 0;
    gp_cache_segment_of(gp_served_cache(served), block.address, &base, &bytes, &dedicated);
    if (!on && !dedicated) {
        gp_log(GP_LOG_INFO, "SYNC_MEMOPS stays on for this memory: its segment is shared with other blocks");
        gp_mark_synced(served, block.address, false);
        return 0;
    }
    uint32_t result = gp_pass_cuPointerSetAttribute(value, attribute, address);
    if (result == 0)
        gp_mark_synced(served, block.address, on);
    return result;
}

/* ---- IPC --------------------------------------------------------------------------------------------------------- */

static uint32_t gp_serve_cuIpcGetMemHandle(const void *handle, uint64_t address)
{
    struct gp_served_context *served;
    struct gp_grant block;
    enum gp_address what = serve_address(address, &served, &block);
    if (what == GP_ADDRESS_DEAD)
        address = GP_NOWHERE;
    if (what == GP_ADDRESS_LIVE && !block_exportable(served, &block)) {
        gp_log(
            GP_LOG_WARN,
            "cuIpcGetMemHandle refused: the block of %llu bytes shares its driver allocation with other blocks, so "
            "another process would get a wrong address.  Allocate at least 2 MiB for memory that is exported, or set "
            "GPUPROF_ALLOCATOR=passthrough",
            (unsigned long long)block.requested_bytes);
        return GP_CU_NOT_SUPPORTED;
    }
    return gp_pass_cuIpcGetMemHandle(handle, address);
}

const struct gp_serve_row gp_serve_pointer_rows[] = {
    GP_SERVE_ROW(cuMemGetAddressRange_v2), GP_SERVE_ROW(cuPointerGetAttribute), GP_SERVE_ROW(cuPointerGetAttributes),
    GP_SERVE_ROW(cuPointerSetAttribute),   GP_SERVE_ROW(cuIpcGetMemHandle),     {NULL, NULL},
};
