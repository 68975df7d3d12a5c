/* SPDX-License-Identifier: MIT
 * holders.c: finds the names of the call sites in an out-of-memory report; see cmd.h.  Called by
 * stat.c and run.c. */
#include <cmd/cmd.h>

#include <collect/sites.h>
#include <stdio.h>
#include <string.h>
#include <symbol/symbol.h>
#include <unistd.h>

static bool holders_any(const struct gp_process *process)
{
    for (uint32_t i = 0; process->oom.count && i < process->oom.holder_count; i++)
        if (process->oom.holders[i].site)
            return true;
    return false;
}

static void holders_label(struct gp_process *process, const struct gp_sites *sites)
{
    /* After the process has ended, /proc/PID/root is gone, and only objects at the same path
     * here are found; their build ids are compared. */
    struct gp_symbol_source source = {
        sites->sites,      sites->frames,      sites->modules,      sites->strings,
        sites->site_count, sites->frame_count, sites->module_count, access(sites->root, X_OK) == 0 ? sites->root : ""};
    struct gp_symbols *symbols;
    if (gp_symbols_new(&symbols, &source) != 0)
        return;
    for (uint32_t i = 0; i < process->oom.holder_count && i < GP_OOM_HOLDERS; i++) {
        uint32_t site = process->oom.holders[i].site;
        if (site && site < sites->site_count)
            gp_frame_label(gp_symbols_name(symbols, site), process->oom_where[i], sizeof(process->oom_where[i]) - 1);
    }
    gp_symbols_free(symbols);
}

void gp_holders_name(struct gp_process *process, struct gp_sites *sites)
{
    char problem[GP_PROBLEM_BYTES];
    struct gp_sites *opened = NULL;
    memset(process->oom_where, 0, sizeof(process->oom_where));
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
