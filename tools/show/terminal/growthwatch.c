/* SPDX-License-Identifier: MIT
 *
 * growthwatch.c: finds the call site that grows while `gpuprof top` runs; see outlook.h.
 */
#include <show/terminal/outlook.h>

#include <show/terminal/model.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>
#include <unistd.h>

/* Two seconds until the first finding: in that time, what stays is more than what a step has. Then
 * a time that reading the call sites of a large process does not fill. */
#define GP_GROWTH_LOOK_NS 1000000000ull
#define GP_GROWTH_REST_NS 9000000000ull

const struct gp_row *gp_outlook_growth_first(const struct gp_model *model)
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

void gp_outlook_growth_fini(struct gp_growth *growth)
{
    gp_sites_close(growth->sites);
    free(growth->held);
    *growth = (struct gp_growth){0};
}

static void growth_begin(struct gp_growth *growth, const struct gp_row *pair, uint64_t now_ns)
{
    char problem[GP_PROBLEM_BYTES];
    gp_outlook_growth_fini(growth);
    growth->pid = pair->id.pid;
    growth->start_time = pair->id.start_time;
    if (pair->process->from_agent || gp_sites_open(&growth->sites, growth->pid, problem) != 0) {
        growth->sites = NULL;
        return;
    }
    growth->most_ns = growth->from_ns = now_ns + GP_GROWTH_LOOK_NS;
    growth->find_ns = growth->from_ns + GP_GROWTH_LOOK_NS;
}

/* A site that was not there before has held at first what it holds now. */
static bool growth_room(struct gp_growth *growth)
{
    const struct gp_sites *sites = growth->sites;
    if (sites->site_count <= growth->held_count)
        return true;
    struct gp_growth_site *held = realloc(growth->held, sites->site_count * sizeof(*held));
    if (!held)
        return false;
    for (uint32_t i = growth->held_count; i < sites->site_count; i++)
        held[i] = (struct gp_growth_site){sites->sites[i].live_bytes, INT64_MAX};
    growth->held = held;
    growth->held_count = sites->site_count;
    return true;
}

static bool growth_sample(struct gp_growth *growth, uint64_t now_ns)
{
    char problem[GP_PROBLEM_BYTES];
    const struct gp_sites *sites = growth->sites;
    if (gp_sites_update(growth->sites, problem) != 0 || !growth_room(growth))
        return false;
    for (uint32_t i = 0; i < sites->site_count; i++) {
        struct gp_growth_site *held = &growth->held[i];
        int64_t live = sites->sites[i].live_bytes;
        if (now_ns < growth->most_ns)
            held->most = live > held->most ? live : held->most;
        else
            held->least = live < held->least ? live : held->least;
    }
    return true;
}

static void growth_label(struct gp_growth *growth, uint32_t site)
{
    const struct gp_sites *sites = growth->sites;
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, access(sites->root, X_OK) == 0 ? sites->root : "");
    struct gp_symbols *symbols;
    if (gp_symbols_new(&symbols, &source) != 0)
        return;
    gp_symbols_line(symbols, site, NULL, NULL, growth->site, sizeof(growth->site));
    gp_symbols_free(symbols);
}

static void growth_find(struct gp_growth *growth, int device)
{
    int64_t most = 0;
    uint32_t best = 0;
    for (uint32_t i = 0; i < growth->held_count; i++) {
        struct gp_growth_site *held = &growth->held[i];
        if (growth->sites->sites[i].device == device && held->least - held->most > most) {
            most = held->least - held->most;
            best = i;
        }
        held->least = INT64_MAX; /* the next looks begin with what it holds then */
    }
    if (best)
        growth_label(growth, best);
}

void gp_outlook_growth_look(struct gp_growth *growth, const struct gp_model *model)
{
    const struct gp_row *pair = gp_outlook_growth_first(model);
    if (!pair)
        return;
    uint64_t now = model->system->time_ns;
    if (growth->pid != pair->id.pid || growth->start_time != pair->id.start_time)
        growth_begin(growth, pair, now);
    bool looks = growth->sites && (now < growth->most_ns || now >= growth->from_ns);
    if (looks && growth_sample(growth, now) && now >= growth->find_ns) {
        growth_find(growth, pair->device->index);
        growth->from_ns = now + GP_GROWTH_REST_NS;
        growth->find_ns = growth->from_ns + GP_GROWTH_LOOK_NS;
    }
    memcpy(pair->outlook->site, growth->site, sizeof(pair->outlook->site));
}
