/* SPDX-License-Identifier: MIT
 *
 * owned.c: what the process owns of a device, by owner: gpuprof_owned of gpuprof.h.
 */
#include "account/tap.h"
#include "base/compiler.h"
#include "session/internal.h"
#include "stack/stack.h"
#include <gpuprof/gpuprof.h>
#include <string.h>

_Static_assert(GPUPROF_OWNERS == GP_WIRE_OWNERS + 1 && sizeof(struct gpuprof_owner) == 64, "gpuprof.h");

/* The whole that its rows add up to. */
static void owned_totals(struct gpuprof_owned *out, const struct gp_wire_device *device)
{
    const struct gp_wire_value *allocated = &device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL];
    const struct gp_wire_value *reserved = &device->stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL];
    out->allocated = allocated->current;
    out->allocated_peak = allocated->peak;
    out->reserved = reserved->current;
    out->reserved_peak = reserved->peak;
    out->asleep = device->asleep_bytes.current;
    out->asleep_peak = device->asleep_bytes.peak;
    out->pools = device->kinds[GP_KIND_POOL].reserved_bytes;
    out->graphs = device->kinds[GP_KIND_GRAPH].reserved_bytes;
    out->context = device->kinds[GP_KIND_CONTEXT].current_bytes;
}

static struct gpuprof_owner *owned_row(struct gpuprof_owned *out, const char *name)
{
    struct gpuprof_owner *row = &out->owners[out->count++];
    *row = (struct gpuprof_owner){.allocated_peak = -1, .reserved_peak = -1};
    memcpy(row->name, name, strnlen(name, sizeof(row->name) - 1));
    return row;
}

static void owned_rows(struct gpuprof_owned *out, const struct gp_wire_owner *names, unsigned count,
                       const struct gp_wire_owner_value *values, const char *framework)
{
    int64_t allocated = out->allocated, reserved = out->reserved;
    for (unsigned i = 0; i < count; i++) {
        bool sleeps = out->asleep && strncmp(framework, names[i].owner, sizeof(names[i].owner)) == 0;
        if (!values[i].allocated_peak_bytes && !values[i].reserved_peak_bytes && !sleeps)
            continue;
        struct gpuprof_owner *row = owned_row(out, names[i].owner);
        row->allocated = values[i].allocated_bytes;
        row->allocated_peak = values[i].allocated_peak_bytes;
        row->reserved = values[i].reserved_bytes;
        row->reserved_peak = values[i].reserved_peak_bytes;
        row->asleep = sleeps ? out->asleep : 0;
        allocated -= row->allocated;
        reserved -= row->reserved;
    }
    if (allocated || reserved) {
        struct gpuprof_owner *row = owned_row(out, "shared");
        row->allocated = allocated;
        row->reserved = reserved;
    }
}

GP_EXPORT int gpuprof_owned(int device, struct gpuprof_owned *out, size_t bytes)
{
    struct gp_wire_device is;
    struct gp_wire_owner names[GP_WIRE_OWNERS];
    struct gp_wire_owner_value values[GP_WIRE_OWNERS];
    struct gp_wire_framework framework, heaps;
    struct gpuprof_owned all = {.count = 0};
    int saved_errno;
    if (!out || device < 0 || device >= (int)GP_WIRE_GPUS || !gp_session_api_enter(&saved_errno))
        return -1;
    gp_session_api_poll();
    bool is_there = gp_tap_owned((unsigned)device, &is, values);
    gp_tap_framework((unsigned)device, &framework, &heaps);
    unsigned count = gp_owner_rows(names);
    gp_session_api_leave(saved_errno);
    if (!is_there)
        return -1;
    owned_totals(&all, &is);
    owned_rows(&all, names, count, values, framework.name);
    memcpy(out, &all, bytes < sizeof(all) ? bytes : sizeof(all));
    return 0;
}
