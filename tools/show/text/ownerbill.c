/* SPDX-License-Identifier: MIT
 * ownerbill.c: the memory of a process on one device by owner, and the rest of what NVML reports for
 * it; see write.h. Called by cmd/reconcile.c. */
#include <show/text/write.h>

#include <stdio.h>
#include <string.h>

/* Two rows for each owner, what was there before an attach, and what is beyond the counted memory. */
#define OWNERBILL_ROWS (2 * GP_OWNER_VIEWS + 2)

struct ownerbill_row {
    char owner[40];   /* "" beyond the counted memory */
    const char *what; /* allocated, cached, before attach, untracked */
    const char *why;
    int64_t bytes; /* -1 unknown */
};

static const char *ownerbill_why(const char *owner, bool seen, bool cached)
{
    static const struct {
        const char *owner, *why;
    } known[] = {
        {"program", "the program's own allocations"},
        {"nccl", "buffers of the communicators"},
        {"nvshmem", "its symmetric heap"},
        {"cublas", "workspaces of its handles"},
        {"cudnn", "workspaces"},
        {"cufft", "work areas of its plans"},
        {"unknown", "the library that asked is not known"},
        {"other", "further libraries"},
        {"shared", "gpuprof's cache, pools and graphs"},
    };
    if (seen)
        return cached ? "idle: its cache, of which empty_cache() returns whole segments, or held by CUDA graphs and "
                        "MemPools"
                      : "live blocks: the program's tensors";
    if (cached)
        return strcmp(owner, "shared") == 0 ? "kept for later by gpuprof's cache, pools and graphs"
                                            : "reserved and not in use";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(owner, known[i].owner) == 0)
            return known[i].why;
    }
    return "driver allocations of this library";
}

/* A library into whose own pools gpuprof sees. */
static bool ownerbill_pools(const struct gp_process *process, const char *owner)
{
    for (uint32_t i = 0; i < process->doors.door_count; i++)
        if (process->doors.doors[i].state == GP_WIRE_DOOR_EXACT && strcmp(process->doors.doors[i].name, owner) == 0)
            return true;
    return false;
}

static int ownerbill_rows(const struct gp_process *process, const struct gp_device_view *device,
                          struct ownerbill_row rows[OWNERBILL_ROWS])
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    int count = 0, owners = gp_peer_owners_of(process, device, views);
    for (int i = 0; i < owners; i++) {
        const struct gp_wire_owner_value *value = &views[i].value;
        bool seen = device->framework.name[0] && strcmp(device->framework.name, views[i].owner) == 0;
        int64_t parts[2] = {value->allocated_bytes, value->reserved_bytes - value->allocated_bytes};
        for (int cached = 0; cached < 2; cached++) {
            if (parts[cached] <= 0 && (cached || !seen))
                continue;
            struct ownerbill_row *row = &rows[count++];
            memcpy(row->owner, views[i].owner, sizeof(row->owner));
            row->what = cached ? "cached" : "allocated";
            row->why = ownerbill_why(views[i].owner, seen, cached);
            if (ownerbill_pools(process, views[i].owner))
                row->why = cached ? "idle in its pools" : "what its pools have handed out";
            row->bytes = parts[cached];
        }
    }
    if (process->attached && device->index != (int)GP_WIRE_HOST)
        rows[count++] = (struct ownerbill_row){.what = "before attach",
                                               .why = "held from before; blocks since then may lie inside",
                                               .bytes = device->before.bytes};
    if (device->index != (int)GP_WIRE_HOST)
        rows[count++] =
            (struct ownerbill_row){.what = "untracked",
                                   .why = "context, code, managed memory, and what the driver keeps for itself",
                                   .bytes = device->untracked_bytes};
    return count;
}

/* What NVML reports for the process; -1 unknown. */
static int64_t ownerbill_total(const struct gp_device_view *device)
{
    if (device->untracked_bytes < 0 || device->index == (int)GP_WIRE_HOST)
        return -1;
    return device->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current + device->untracked_bytes +
           (device->before.bytes > 0 ? device->before.bytes : 0);
}

json_t *gp_owner_bill_json(const struct gp_process *process, const struct gp_device_view *device)
{
    struct ownerbill_row rows[OWNERBILL_ROWS];
    json_t *list = json_array();
    if (process->owner_count == 0 || device->totals_only) {
        json_decref(list);
        return json_null();
    }
    for (int i = 0, count = ownerbill_rows(process, device, rows); i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:s,s:o,s:s}", "owner", gp_json_text(rows[i].owner), "what", rows[i].what,
                                        "bytes", gp_json_known(rows[i].bytes), "explanation", rows[i].why));
    return json_pack("{s:o,s:I,s:I,s:I,s:o}", "process_bytes", gp_json_known(ownerbill_total(device)), "reserved_bytes",
                     (json_int_t)device->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, "asleep_bytes",
                     (json_int_t)device->wire.asleep_bytes.current, "private_bytes",
                     (json_int_t)device->framework.private_bytes, "rows", list);
}

void gp_owner_bill_print(FILE *out, const struct gp_process *process, const struct gp_device_view *device)
{
    struct ownerbill_row rows[OWNERBILL_ROWS];
    char size[GP_SIZE_TEXT];
    if (process->owner_count == 0 || device->totals_only)
        return;
    if (device->index == (int)GP_WIRE_HOST)
        fprintf(out, "\nhost by owner, now\n");
    else
        fprintf(out, "\ndevice %d by owner, now\n", gp_device_number(device));
    for (int i = 0, count = ownerbill_rows(process, device, rows); i < count; i++)
        fprintf(out, "   %10s  %-14s %-9s  %s\n", gp_size_text(size, rows[i].bytes), rows[i].owner, rows[i].what,
                rows[i].why);
    if (device->index == (int)GP_WIRE_HOST)
        return;
    int64_t total = ownerbill_total(device);
    fprintf(out, "   %10s  held by the process according to NVML%s\n", gp_size_text(size, total),
            total < 0 ? ": unknown" : "");
    if (device->framework.private_bytes > 0)
        fprintf(out, "   %10s  %-14s %-9s  of these two, at least: segments of CUDA graphs and MemPools\n",
                gp_size_text(size, device->framework.private_bytes), device->framework.name, "in pools");
    if (device->wire.asleep_bytes.current)
        fprintf(out, "   %10s  %-14s %-9s  blocks without memory under them: not in the sum\n",
                gp_size_text(size, device->wire.asleep_bytes.current), device->framework.name, "asleep");
}
