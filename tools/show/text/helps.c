/* SPDX-License-Identifier: MIT
 * helps.c: what would help a device, in sentences, for explain and for the page; see helps.h.  It is said only
 * where the numbers of this recording support it, with the most that it could save.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <jansson.h>
#include <show/text/helps.h>
#include <show/text/reportparts.h>
#include <show/text/write.h>
#include <symbol/symbol.h>

/* Below this share of the peak, or number of bytes, advice is not worth a line. */
#define GP_HELPS_SHARE 0.2
#define GP_HELPS_WORTH (64ll << 20)

struct helps {
    json_t *list;
    int64_t peak_bytes;
    bool grows; /* something on the device does: that comes first */
    int64_t uses[GP_USES];
    double sures[GP_USES];
    int64_t spared; /* activations that checkpointing may take off the peak */
};

/* Activations at the peak that are not needed again at once, and are no part of a loss. */
static int64_t helps_spared(const struct gp_report *report, const struct gp_peak *peak,
                            const struct gp_use_table *table)
{
    const struct gp_flow *flow = report->flow;
    uint32_t event = peak->event_index, spared = gp_uses_spared(table, flow, event), end;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    uint64_t sum = 0;
    while (table->trains && gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE && change.event >= spared)
            break;
        if (change.add && change.item->device == table->device && change.what & GP_FLOW_SUMMED &&
            table->rows[table->rule[change.id]].use == GP_USE_ACTIVATIONS &&
            ((end = gp_flow_end(flow, change.id)) == GP_REC_NONE || end > event) &&
            !gp_symbols_is_loss(report->symbols, change.item->site))
            sum += gp_flow_bytes(&change);
    }
    return (int64_t)(sum & INT64_MAX);
}

/* A use that is sure, and large enough to be worth a change. */
static bool helps_is_large(const struct helps *helps, enum gp_use use)
{
    int64_t bytes = use == GP_USE_ACTIVATIONS ? helps->spared : helps->uses[use];
    if (helps->grows || helps->sures[use] < GP_USE_PLAIN)
        return false;
    return bytes >= GP_HELPS_WORTH && (double)bytes > GP_HELPS_SHARE * (double)helps->peak_bytes;
}

static void helps_growth(struct helps *helps, const struct gp_report *report, uint32_t device)
{
    const struct gp_leaks *leaks = report->leaks;
    char size[GP_SIZE_TEXT], label[96];
    for (uint32_t i = 0; i < leaks->count && !helps->grows; i++) {
        if (leaks->suspects[i].device != device)
            continue;
        gp_symbols_line(report->symbols, leaks->suspects[i].site, NULL, NULL, label, sizeof(label));
        json_array_append_new(helps->list, json_sprintf("free what %s keeps: %s so far", label,
                                                        gp_size_text(size, leaks->suspects[i].live_bytes)));
        helps->grows = true;
    }
}

static void helps_fragmentation(struct helps *helps, const struct gp_report_device *device)
{
    char size[GP_SIZE_TEXT];
    int64_t reserved = 0;
    for (uint32_t i = 0; device->reserved && i < device->reserved->count; i++)
        reserved = device->reserved->points[i].high > reserved ? device->reserved->points[i].high : reserved;
    int64_t idle = reserved - helps->peak_bytes;
    if (device->fragmentation && device->fragmentation->has_segments && idle >= GP_HELPS_WORTH &&
        (double)idle > GP_HELPS_SHARE * (double)reserved)
        json_array_append_new(helps->list,
                              json_sprintf("less fragmentation (in PyTorch expandable_segments:True): at most %s",
                                           gp_size_text(size, idle)));
}

static void helps_uses(struct helps *helps)
{
    char size[GP_SIZE_TEXT];
    bool activations = helps_is_large(helps, GP_USE_ACTIVATIONS), optimizer = helps_is_large(helps, GP_USE_OPTIMIZER);
    if (activations)
        json_array_append_new(helps->list,
                              json_sprintf("smaller batches, or recomputed activations (checkpointing): of %s",
                                           gp_size_text(size, helps->spared)));
    if (optimizer)
        json_array_append_new(helps->list, json_sprintf("smaller or sharded optimizer state: of %s",
                                                        gp_size_text(size, helps->uses[GP_USE_OPTIMIZER])));
    if (activations || optimizer)
        json_array_append_new(
            helps->list,
            json_sprintf("without a GPU, 'gpuprof dryrun --try -- CMD' makes such changes and says what each saves"));
    if (helps_is_large(helps, GP_USE_KV_CACHE))
        json_array_append_new(
            helps->list, json_sprintf("a smaller KV cache: of %s", gp_size_text(size, helps->uses[GP_USE_KV_CACHE])));
}

json_t *gp_report_helps(const struct gp_report *report, uint32_t device, const struct gp_use_table *table)
{
    const struct gp_report_device *of = &report->devices[device];
    struct helps helps = {.list = json_array(), .peak_bytes = of->peak ? of->peak->bytes : 0};
    if (helps.peak_bytes <= 0)
        return helps.list;
    for (uint32_t i = 0; table && i < GP_USE_RULES; i++)
        if (table->rows[i].count && table->rows[i].use < GP_USES)
            helps.uses[table->rows[i].use] += table->rows[i].at_peak_bytes;
    for (int use = 0; table && use < GP_USES; use++)
        helps.sures[use] = gp_use_sure(table, (enum gp_use)use);
    if (table)
        helps.spared = helps_spared(report, of->peak, table);
    helps_growth(&helps, report, device);
    helps_fragmentation(&helps, of);
    helps_uses(&helps);
    return helps.list;
}
