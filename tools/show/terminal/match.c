/* SPDX-License-Identifier: MIT
 *
 * match.c: whether a text finds a row; see ui.h.  Pure.
 */
#define _GNU_SOURCE /* strcasestr */
#include <show/terminal/ui.h>

#include <base/numbers.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <stdio.h>
#include <string.h>

static bool match_frame(const struct gp_frame_text *frame, const char *text)
{
    return frame && (strcasestr(frame->function, text) || (frame->file && strcasestr(frame->file, text)));
}

static bool match_site(const struct gp_site_row *site, const char *text)
{
    const char *kind = site->kind == GP_KIND_NONE ? NULL : gp_kind_name(site->kind);
    return match_frame(site->name, text) || match_frame(site->caller, text) || (kind && strcasestr(kind, text));
}

bool gp_match_row(const struct gp_row *row, const char *text)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)row->id.pid);
    const struct gp_process *process = row->process;
    if (row->site)
        return match_site(row->site, text) || strstr(pid, text);
    if (row->id.owner[0] && strcasestr(row->id.owner, text))
        return true;
    if (!process)
        return strcasestr(row->id.container, text) != NULL;
    return strcasestr(process->comm, text) || strcasestr(process->cmdline, text) || strcasestr(process->user, text) ||
           strcasestr(process->container, text) || strstr(pid, text);
}
