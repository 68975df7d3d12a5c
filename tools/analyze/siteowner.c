/* SPDX-License-Identifier: MIT
 * siteowner.c: the owner of the memory of a call site, from the modules of its stack, and a
 * peak by owner; see analyze.h.  The rules are those of the library (core/base/known.h). */
#include <analyze/analyze.h>
#include <base/known.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of a module does not tell whether it is the program: a shared object may have a name
 * without ".so" (Node's add-ons). Linux maps the program below the objects that it loads. */
static const char *siteowner_program(const struct gp_recording *recording)
{
    const char *program = "";
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < recording->module_count; i++) {
        const struct gp_rec_module *module = &recording->modules[i];
        const char *path = recording->strings + module->path;
        if (module->start >= lowest || *path != '/' || strstr(gp_known_base(path), ".so"))
            continue;
        lowest = module->start;
        program = path;
    }
    return program;
}

/* Memory of a process that code was written into has the name of no library, though it may have one. */
static bool siteowner_is_file(const char *path)
{
    return *path && strncmp(path, "/dev/zero", 9) != 0 && strncmp(path, "/SYSV", 5) != 0 &&
           (strncmp(path, "/memfd:", 7) != 0 || strstr(path, ".so"));
}

static void siteowner_find(const struct gp_recording *recording, const char *program, uint32_t site,
                           char owner[GP_SITE_OWNER])
{
    snprintf(owner, GP_SITE_OWNER, "unknown");
    if (site == 0 || site >= recording->site_count)
        return;
    const struct gp_rec_site *row = &recording->sites[site];
    bool jit = false;
    for (uint32_t i = 0; i < row->frame_count; i++) {
        const struct gp_rec_frame *frame = &recording->frames[row->first_frame + i];
        bool listed = frame->module < recording->module_count;
        const char *path = listed ? recording->strings + recording->modules[frame->module].path : "";
        bool file = listed && siteowner_is_file(path);
        jit |= frame->pc && !frame->named && !file;
        if (!file) /* Python, or code that no file has */
            continue;
        const char *known = gp_known_owner(path);
        if (!known)
            continue;
        if (!*known && strcmp(path, program) == 0)
            known = GP_KNOWN_PROGRAM;
        if (jit && strcmp(known, GP_KNOWN_PROGRAM) == 0)
            known = GP_KNOWN_JIT;
        if (*known)
            snprintf(owner, GP_SITE_OWNER, "%s", known);
        else
            gp_known_name(gp_known_base(path), owner, GP_SITE_OWNER);
        return;
    }
}

void gp_bill_site_owner(const struct gp_recording *recording, uint32_t site, char owner[GP_SITE_OWNER])
{
    siteowner_find(recording, siteowner_program(recording), site, owner);
}

static int siteowner_order(const void *one, const void *other)
{
    const struct gp_peak_owner *a = one, *b = other;
    if (a->bytes != b->bytes)
        return GP_ORDER(b->bytes, a->bytes);
    return strcmp(a->owner, b->owner);
}

struct gp_bill_peak_owners *gp_bill_peak_owners(const struct gp_recording *recording, const struct gp_peak *peak)
{
    struct gp_bill_peak_owners *owners = calloc(1, sizeof(*owners) + peak->count * sizeof(struct gp_peak_owner));
    const char *program = siteowner_program(recording);
    for (uint32_t i = 0; owners && i < peak->count; i++) {
        char owner[GP_SITE_OWNER];
        uint32_t at = 0;
        siteowner_find(recording, program, peak->parts[i].site, owner);
        while (at < owners->count && strcmp(owners->rows[at].owner, owner) != 0)
            at++;
        if (at == owners->count)
            memcpy(owners->rows[owners->count++].owner, owner, sizeof(owner));
        owners->rows[at].bytes += peak->parts[i].bytes;
        owners->rows[at].count += peak->parts[i].count;
    }
    if (owners)
        qsort(owners->rows, owners->count, sizeof(owners->rows[0]), siteowner_order);
    return owners;
}
