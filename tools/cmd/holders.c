/* SPDX-License-Identifier: MIT
 * holders.c: finds the names of the call sites in an out-of-memory report; see cmd.h.  Called by
 * stat.c and run.c. */
#include <cmd/cmd.h>

#include <read/collect/sites.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>
#include <unistd.h>

static bool holders_any(const struct gp_process *process)
{
    for (uint32_t i = 0; process->oom.count && i < process->oom.holder_count; i++)
        if (process->oom.holders[i].site)
            return true;
    return process->oom.count && process->oom.site;
}

/* Sites that are one line of source become one. */
static void holders_join(struct gp_wire_oom *oom, const struct gp_sites *sites, struct gp_symbols *symbols)
{
    uint32_t *to = calloc(sites->site_count + 1ul, sizeof(*to));
    for (uint32_t i = 0; to && i < sites->site_count; i++)
        to[i] = gp_symbols_twin(symbols, i);
    if (to)
        gp_recording_join_oom(oom, to);
    free(to);
}

static void holders_text(struct gp_process *process, struct gp_symbols *symbols)
{
    const struct gp_wire_oom *oom = &process->oom;
    const struct gp_frame_text *callers[GP_OOM_HOLDERS], *callees[GP_OOM_HOLDERS];
    uint32_t numbers[GP_OOM_HOLDERS], count = oom->holder_count;
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = oom->holders[i].site;
    gp_symbols_callers(symbols, numbers, count, callers);
    gp_symbols_callees(symbols, numbers, count, callees);
    for (uint32_t i = 0; i < count; i++)
        if (numbers[i])
            gp_symbols_line(symbols, numbers[i], callers[i], callees[i], process->oom_where[i],
                            sizeof(process->oom_where[i]) - 1);
    if (oom->site)
        gp_symbols_line(symbols, oom->site, NULL, NULL, process->oom_place, sizeof(process->oom_place));
}

static void holders_label(struct gp_process *process, const struct gp_sites *sites)
{
    /* After the process has ended, /proc/PID/root is gone, and only objects at the same path
     * here are found; their build ids are compared. */
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, access(sites->root, X_OK) == 0 ? sites->root : "");
    struct gp_symbols *symbols;
    struct gp_wire_oom *oom = &process->oom;
    if (gp_symbols_new(&symbols, &source) != 0)
        return;
    oom->site = oom->site < sites->site_count ? oom->site : 0; /* the tables were read before the failure */
    for (uint32_t i = 0; i < oom->holder_count; i++)
        oom->holders[i].site = oom->holders[i].site < sites->site_count ? oom->holders[i].site : 0;
    holders_join(oom, sites, symbols);
    holders_text(process, symbols);
    gp_symbols_free(symbols);
}

void gp_holders_name(struct gp_process *process, struct gp_sites *sites)
{
    char problem[GP_PROBLEM_BYTES];
    struct gp_sites *opened = NULL;
    memset(process->oom_where, 0, sizeof(process->oom_where));
    memset(process->oom_place, 0, sizeof(process->oom_place));
    if (!holders_any(process))
        return;
    if (!sites && gp_sites_open(&opened, process->pid, problem) == 0)
        sites = opened;
    else if (sites)
        gp_sites_update(sites, problem); /* on failure the older call sites are used */
    if (sites)
        holders_label(process, sites);
    gp_sites_close(opened);
}
