/* SPDX-License-Identifier: MIT
 * growth.c: see growth.h. */
#include <view/growth.h>

#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>
#include <unistd.h>
#include <view/outlook.h>

/* After the first look, what has grown since is mostly the leak and no longer the present step. */
#define GP_GROWTH_FIRST_NS 2000000000ull
#define GP_GROWTH_NEXT_NS  10000000000ull

const struct gp_row *gp_growth_first(const struct gp_model *model)
{
    const struct gp_row_list *pairs = &model->lists[GP_LIST_PAIRS];
    const struct gp_row *first = NULL;
    for (int i = 0; i < pairs->count; i++) {
        const struct gp_row *pair = &pairs->rows[i];
        if (pair->outlook && pair->device && pair->outlook->result.seconds_to_oom >= 0 &&
            (!first || pair->outlook->result.seconds_to_oom < first->outlook->result.seconds_to_oom))
            first = pair;
    }
    return first;
}

void gp_growth_fini(struct gp_growth *growth)
{
    gp_sites_close(growth->sites);
    free(growth->before);
    *growth = (struct gp_growth){0};
}

static void growth_begin(struct gp_growth *growth, const struct gp_row *pair, uint64_t now_ns)
{
    char problem[GP_PROBLEM_BYTES];
    gp_growth_fini(growth);
    growth->pid = pair->id.pid;
    growth->start_time = pair->id.start_time;
    if (pair->process->from_agent || gp_sites_open(&growth->sites, growth->pid, problem) != 0) {
        growth->sites = NULL;
        return;
    }
    growth->before = calloc(growth->sites->site_count + 1ul, sizeof(*growth->before));
    growth->before_count = growth->before ? growth->sites->site_count : 0;
    for (uint32_t i = 0; i < growth->before_count; i++)
        growth->before[i] = growth->sites->sites[i].live_bytes;
    growth->next_ns = now_ns + GP_GROWTH_FIRST_NS;
}

static void growth_label(struct gp_growth *growth, uint32_t site)
{
    const struct gp_sites *sites = growth->sites;
    struct gp_symbol_source source = {
        sites->sites,      sites->frames,      sites->modules,      sites->strings,
        sites->site_count, sites->frame_count, sites->module_count, access(sites->root, X_OK) == 0 ? sites->root : ""};
    struct gp_symbols *symbols;
    if (gp_symbols_new(&symbols, &source) != 0)
        return;
    gp_frame_label(gp_symbols_name(symbols, site), growth->site, sizeof(growth->site));
    gp_symbols_free(symbols);
}

static void growth_find(struct gp_growth *growth, int device)
{
    char problem[GP_PROBLEM_BYTES];
    int64_t most = 0;
    uint32_t best = 0;
    if (gp_sites_update(growth->sites, problem) != 0)
        return;
    for (uint32_t i = 0; i < growth->sites->site_count; i++) {
        const struct gp_rec_site *site = &growth->sites->sites[i];
        int64_t before = i < growth->before_count ? growth->before[i] : 0;
        if (site->device == device && site->live_bytes > before && site->live_bytes - before > most) {
            most = site->live_bytes - before;
            best = i;
        }
    }
    if (best)
        growth_label(growth, best);
}

void gp_growth_look(struct gp_growth *growth, const struct gp_model *model)
{
    const struct gp_row *pair = gp_growth_first(model);
    if (!pair)
        return;
    uint64_t now = model->system->time_ns;
    if (growth->pid != pair->id.pid || growth->start_time != pair->id.start_time)
        growth_begin(growth, pair, now);
    if (growth->sites && now >= growth->next_ns) {
        growth_find(growth, pair->device->index);
        growth->next_ns = now + GP_GROWTH_NEXT_NS;
    }
    memcpy(pair->outlook->site, growth->site, sizeof(pair->outlook->site));
}
