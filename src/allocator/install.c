/* SPDX-License-Identifier: MIT
 * install.c: puts the servers of all tables in front of their entry points; see internal.h. */
#include "allocator/internal.h"
#include "base/log.h"
#include "source/hooks.h"

static bool install_rows(const struct gp_serve_row *rows)
{
    for (; rows->name; rows++)
        if (!gp_hooks_serve(rows->name, rows->server)) {
            gp_log(GP_LOG_ERROR, "no hook for %s: the allocator cannot serve the program's calls", rows->name);
            return false;
        }
    return true;
}

/* Contexts and streams first: memory is served only in contexts that are known. */
bool gp_serve_install(enum gp_serve_kind kind)
{
    gp_serve_memory_kind = kind;
    return install_rows(gp_serve_context_rows) && install_rows(gp_serve_pointer_rows) &&
           install_rows(gp_serve_memory_rows) && install_rows(gp_serve_block_rows);
}
