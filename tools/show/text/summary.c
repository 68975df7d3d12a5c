/* SPDX-License-Identifier: MIT
 *
 * summary.c: the table of torch.cuda.memory_summary, equal in every character of layout and title,
 * so that scripts and users find each number where PyTorch has it; see write.h.
 */
#include <base/compiler.h>
#include <base/numbers.h>
#include <inttypes.h>
#include <show/text/write.h>
#include <string.h>

#define GP_SUMMARY_WIDTH 75

/* While a group's value is at least this, its cells use the next unit, so that they have at most
 * six digits. */
#define GP_SIZE_STEP  (768 * 1024)
#define GP_COUNT_STEP (750 * 1000)

struct gp_summary_row {
    unsigned stat;
    const char *name;
    bool bytes;
};

static const struct gp_summary_row summary_rows[] = {
    {GP_STAT_ALLOCATED_BYTES, "Allocated memory", true},
    {GP_STAT_ACTIVE_BYTES, "Active memory", true},
    {GP_STAT_REQUESTED_BYTES, "Requested memory", true},
    {GP_STAT_RESERVED_BYTES, "GPU reserved memory", true},
    {GP_STAT_INACTIVE_SPLIT_BYTES, "Non-releasable memory", true},
    {GP_STAT_ALLOCATION, "Allocations", false},
    {GP_STAT_ACTIVE, "Active allocs", false},
    {GP_STAT_SEGMENT, "GPU reserved segments", false},
    {GP_STAT_INACTIVE_SPLIT, "Non-releasable allocs", false},
};

static void rule_print(FILE *out, char mark)
{
    char line[GP_SUMMARY_WIDTH + 1];
    memset(line, mark, GP_SUMMARY_WIDTH);
    line[GP_SUMMARY_WIDTH] = '\0';
    fprintf(out, "|%s|\n", line);
}

/* Prints `value` in the unit that `group` needs. */
static void cell_print(FILE *out, int64_t value, int64_t group, bool bytes)
{
    static const char *const sizes[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
    static const char *const counts[] = {" ", "K", "M"};
    size_t unit = 0, last = bytes ? GP_COUNT(sizes) - 1 : GP_COUNT(counts) - 1;
    int64_t base = bytes ? 1024 : 1000, step = bytes ? GP_SIZE_STEP : GP_COUNT_STEP;
    for (; unit < last && group >= step; unit++) {
        value /= base;
        group /= base;
    }
    if (bytes)
        fprintf(out, " | %6" PRId64 " %s", value, sizes[unit]);
    else
        fprintf(out, " | %7" PRId64 " %s ", value, counts[unit]);
}

static void unknown_print(FILE *out, const char *name, bool bytes)
{
    fprintf(out, "| %-21s", name);
    for (int i = 0; i < 4; i++)
        fprintf(out, bytes ? " | %6s    " : " | %7s   ", "-");
    fprintf(out, " |\n");
}

static void line_print(FILE *out, const char *name, const struct gp_wire_value *v, const struct gp_wire_value *group,
                       bool bytes)
{
    fprintf(out, "| %-21s", name);
    cell_print(out, v->current, group->current, bytes);
    cell_print(out, v->peak, group->peak, bytes);
    cell_print(out, v->allocated, group->allocated, bytes);
    cell_print(out, v->freed, group->freed, bytes);
    fprintf(out, " |\n");
}

void gp_summary_print(FILE *out, const struct gp_device_view *device)
{
    const struct gp_wire_device *d = &device->wire;
    rule_print(out, '=');
    fprintf(out, "|%18sPyTorch CUDA memory summary, device ID %-17d |\n", "", gp_device_number(device));
    rule_print(out, '-');
    fprintf(out, "|%12sCUDA OOMs: %-12" PRId64 " | %7scudaMalloc retries: %-8" PRId64 "  |\n", "", d->num_ooms, "",
            d->num_alloc_retries);
    rule_print(out, '=');
    fprintf(out, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
    for (size_t i = 0; i < GP_COUNT(summary_rows); i++) {
        const struct gp_summary_row *row = &summary_rows[i];
        const struct gp_wire_value *pools = d->stats[row->stat];
        rule_print(out, '-');
        if (d->flags & GP_DEVICE_FRAMEWORK && !gp_stat_told(row->stat)) {
            unknown_print(out, row->name, row->bytes);
            unknown_print(out, "      from large pool", row->bytes);
            unknown_print(out, "      from small pool", row->bytes);
            continue;
        }
        line_print(out, row->name, &pools[GP_POOL_ALL], &pools[GP_POOL_ALL], row->bytes);
        line_print(out, "      from large pool", &pools[GP_POOL_LARGE], &pools[GP_POOL_ALL], row->bytes);
        line_print(out, "      from small pool", &pools[GP_POOL_SMALL], &pools[GP_POOL_ALL], row->bytes);
    }
    rule_print(out, '-');
    line_print(out, "Oversize allocations", &d->oversize_allocations, &d->oversize_allocations, false);
    rule_print(out, '-');
    line_print(out, "Oversize GPU segments", &d->oversize_segments, &d->oversize_segments, false);
    rule_print(out, '=');
}
