/* SPDX-License-Identifier: MIT
 * ownerread.c: see ownerread.h. */
#include <read/collect/ownerread.h>

#include <base/text.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Bounds every number so that sums stay in range: no machine has 2^60 bytes. */
#define OWNER_MOST (1ll << 60)

static bool numbers_good(const int64_t *numbers, size_t count, int64_t least)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] < least || numbers[i] > OWNER_MOST)
            return false;
    return true;
}

static bool value_good(const struct gp_wire_owner_value *value)
{
    const int64_t numbers[] = {value->reserved_bytes, value->reserved_peak_bytes, value->allocated_bytes,
                               value->allocated_peak_bytes, value->live};
    return numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), 0);
}

/* The sums may be negative for an instant: frees and allocations of different threads. */
static bool framework_good(const struct gp_wire_framework *framework)
{
    const int64_t numbers[] = {framework->blocks,
                               framework->segments,
                               framework->allocated_bytes,
                               framework->reserved_bytes,
                               framework->their_allocated_bytes,
                               framework->their_reserved_bytes,
                               framework->private_bytes};
    const uint64_t counts[] = {framework->events, framework->allocated_differs, framework->reserved_differs,
                               framework->retries, framework->ooms};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] > INT64_MAX)
            return false;
    return numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), -OWNER_MOST);
}

static bool framework_take(struct gp_wire_framework *view, const struct gp_wire_framework *framework)
{
    if (!framework_good(framework))
        return false;
    *view = *framework;
    gp_text_clean(view->name, sizeof(view->name), framework->name, sizeof(framework->name));
    return true;
}

static int owners_wrong(struct gp_process *process, const char *what)
{
    snprintf(process->problem, sizeof(process->problem), "owners: %s", what);
    return -EPROTO;
}

int gp_owners_take(const struct gp_wire_owners *owners, struct gp_process *process)
{
    if (owners->count > GP_WIRE_OWNERS)
        return owners_wrong(process, "too many rows");
    process->owner_count = (int)owners->count;
    for (uint32_t i = 0; i < owners->count; i++) {
        const struct gp_wire_owner *row = &owners->rows[i];
        struct gp_wire_owner *view = &process->owners[i];
        gp_text_clean(view->owner, sizeof(view->owner), row->owner, sizeof(row->owner));
        gp_text_clean(view->library, sizeof(view->library), row->library, sizeof(row->library));
    }
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        for (uint32_t row = 0; row < owners->count; row++)
            if (!value_good(&owners->values[device->index][row]))
                return owners_wrong(process, "a number is negative or too large");
        memcpy(device->owners, owners->values[device->index], sizeof(device->owners));
        if (device->index == (int)GP_WIRE_HOST)
            continue;
        if (!framework_take(&device->framework, &owners->frameworks[device->index]) ||
            !framework_take(&device->heaps, &owners->heaps[device->index]))
            return owners_wrong(process, "a framework's number is too large");
    }
    return 0;
}

static bool door_row_good(const struct gp_wire_doors *doors, const struct gp_wire_door_row *row)
{
    const int64_t numbers[] = {row->pieces, row->pools, row->allocated_bytes, row->reserved_bytes};
    return row->door < doors->door_count && row->device >= 0 && row->device < (int)GP_WIRE_GPUS &&
           row->events <= INT64_MAX && numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), -OWNER_MOST);
}

int gp_owners_doors(const struct gp_wire_doors *doors, struct gp_process *process)
{
    bool good = doors->door_count <= GP_WIRE_DOORS && doors->row_count <= GP_WIRE_DOOR_ROWS;
    for (uint32_t i = 0; good && i < doors->door_count; i++)
        good = doors->doors[i].state < GP_WIRE_DOOR_STATES;
    for (uint32_t i = 0; good && i < doors->row_count; i++)
        good = door_row_good(doors, &doors->rows[i]);
    if (!good)
        return owners_wrong(process, "the pools of a library are damaged");
    process->doors = *doors;
    for (uint32_t i = 0; i < doors->door_count; i++) {
        const struct gp_wire_door *door = &doors->doors[i];
        struct gp_wire_door *view = &process->doors.doors[i];
        gp_text_clean(view->name, sizeof(view->name), door->name, sizeof(door->name));
        gp_text_clean(view->text, sizeof(view->text), door->text, sizeof(door->text));
    }
    return 0;
}

/* What no row has. The counters are summed over threads that work, so the difference may be
 * negative for an instant; the sum stays right. */
static struct gp_wire_owner_value owners_shared(const struct gp_process *process, const struct gp_device_view *device)
{
    struct gp_wire_owner_value rest = {
        .reserved_bytes = device->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current,
        .reserved_peak_bytes = -1,
        .allocated_bytes = device->wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current,
        .allocated_peak_bytes = -1,
        .live = device->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current,
    };
    for (int i = 0; i < process->owner_count; i++) {
        rest.reserved_bytes -= device->owners[i].reserved_bytes;
        rest.allocated_bytes -= device->owners[i].allocated_bytes;
        rest.live -= device->owners[i].live;
    }
    return rest;
}

int gp_owners_of(const struct gp_process *process, const struct gp_device_view *device,
                 struct gp_owner_view views[GP_OWNER_VIEWS])
{
    int count = 0;
    if (device->totals_only || !process->owner_count)
        return 0;
    for (int i = 0; i < process->owner_count; i++) {
        const struct gp_wire_owner_value *value = &device->owners[i];
        if (!value->reserved_peak_bytes && !value->allocated_peak_bytes)
            continue;
        struct gp_owner_view *view = &views[count++];
        memcpy(view->owner, process->owners[i].owner, sizeof(view->owner));
        memcpy(view->library, process->owners[i].library, sizeof(view->library));
        view->value = *value;
    }
    struct gp_wire_owner_value rest = owners_shared(process, device);
    if (rest.reserved_bytes || rest.allocated_bytes || rest.live)
        views[count++] = (struct gp_owner_view){.owner = "shared", .value = rest};
    return count;
}

static int64_t before_known(int64_t bytes)
{
    return bytes < 0 || bytes > INT64_MAX / 64 ? -1 : bytes;
}

static void blocks_take(const struct gp_wire_blocks *blocks, struct gp_process *process)
{
    process->blocks_state = blocks->state < GP_BLOCKS_STATES ? blocks->state : GP_BLOCKS_NONE;
    process->blocks_took_ns = blocks->took_ns <= INT64_MAX ? blocks->took_ns : 0;
    for (size_t i = 0; i + 1 < sizeof(process->blocks_text) && blocks->text[i]; i++)
        process->blocks_text[i] = blocks->text[i] >= ' ' && blocks->text[i] <= '~' ? blocks->text[i] : '?';
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        device->blocks = (struct gp_wire_blocks_device){-1, -1, 0};
        if (process->blocks_state != GP_BLOCKS_DONE || device->index >= (int)GP_WIRE_GPUS)
            continue;
        const struct gp_wire_blocks_device *from = &blocks->devices[device->index];
        device->blocks.count = before_known(from->count);
        device->blocks.bytes = before_known(from->bytes);
        device->blocks.differs = from->differs <= INT64_MAX ? from->differs : 0;
    }
}

void gp_before_take(const struct gp_wire_before *before, const struct gp_wire_blocks *blocks,
                    struct gp_process *process)
{
    process->attached = before->attached == 1;
    blocks_take(blocks, process);
    for (int i = 0; i < process->device_count; i++) {
        struct gp_device_view *device = &process->devices[i];
        bool known = process->attached && device->index < (int)GP_WIRE_GPUS;
        struct gp_wire_before_device *to = &device->before;
        *to = (struct gp_wire_before_device){0};
        if (!known)
            continue;
        const struct gp_wire_before_device *from = &before->devices[device->index];
        to->source = from->source <= GP_BEFORE_FRAMEWORK ? from->source : GP_BEFORE_NONE;
        to->bytes = to->source ? before_known(from->bytes) : -1;
        to->at_attach_bytes = to->source ? before_known(from->at_attach_bytes) : -1;
        to->count = to->source ? before_known(from->count) : -1;
        to->freed = from->freed <= INT64_MAX ? from->freed : 0;
        to->framework_allocated_bytes = before_known(from->framework_allocated_bytes);
        to->framework_reserved_bytes = before_known(from->framework_reserved_bytes);
    }
}

const char *gp_before_source(const struct gp_wire_before_device *before)
{
    static const char *const names[] = {
        [GP_BEFORE_DRIVER] = "driver", [GP_BEFORE_PART] = "driver, in part", [GP_BEFORE_FRAMEWORK] = "framework"};
    return before->source <= GP_BEFORE_FRAMEWORK ? names[before->source] : NULL;
}
