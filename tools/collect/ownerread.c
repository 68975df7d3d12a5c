/* SPDX-License-Identifier: MIT
 * ownerread.c: see ownerread.h. */
#include <collect/ownerread.h>

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
                               framework->their_reserved_bytes};
    const uint64_t counts[] = {framework->events, framework->allocated_differs, framework->reserved_differs,
                               framework->retries, framework->ooms};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] > INT64_MAX)
            return false;
    return numbers_good(numbers, sizeof(numbers) / sizeof(numbers[0]), -OWNER_MOST);
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
        if (!framework_good(&owners->frameworks[device->index]))
            return owners_wrong(process, "a framework's number is too large");
        device->framework = owners->frameworks[device->index];
        gp_text_clean(device->framework.name, sizeof(device->framework.name), owners->frameworks[device->index].name,
                      sizeof(device->framework.name));
    }
    return 0;
}
