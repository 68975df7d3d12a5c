/* SPDX-License-Identifier: MIT
 * libraries.c: libraries of libraries.def on the stacks of a peak; see analyze.h. */
#include <analyze/libraries.h>
#include <base/known.h>
#include <base/numbers.h>
#include <string.h>

static const struct gp_library libraries[] = {
#define GP_LIBRARY(_name, _version, _files, _compiled, _rule, _source)                                                 \
    {_name, _version, _files, _rule, _source, _compiled},
#include <analyze/libraries.def>
#undef GP_LIBRARY
};
_Static_assert(sizeof(libraries) / sizeof(libraries[0]) == GP_LIBRARIES, "GP_LIBRARIES");

const struct gp_library *gp_library(uint32_t index)
{
    return &libraries[index];
}

/* object: the text is the path of a shared object, else that of a Python file. */
static bool library_has(const struct gp_library *library, const char *path, bool object)
{
    const char *base = object ? gp_known_base(path) : path;
    for (const char *at = library->files; *at;) {
        size_t length = strcspn(at, "|"), all = strlen(path);
        bool folder = at[0] == '/' && at[length - 1] == '/';
        if (object && at[0] != '/' && strncmp(base, at, length) == 0)
            return true;
        if (object && at[0] == '/' && !folder && all >= length && memcmp(path + all - length, at, length) == 0)
            return true;
        if (!object && folder && memmem(path, strlen(path), at, length))
            return true;
        at += length + (at[length] == '|');
    }
    return false;
}

bool gp_library_is(const struct gp_library *library, const char *path)
{
    return library_has(library, path, true);
}

static bool library_is_loaded(const struct gp_recording *recording, const struct gp_library *library)
{
    for (uint32_t i = 0; i < recording->module_count; i++)
        if (library_has(library, recording->strings + recording->modules[i].path, true))
            return true;
    return false;
}

/* Whether the memory of the site was asked for through the library.  compiled: such a library is loaded. */
static bool library_asked(const struct gp_recording *recording, const struct gp_library *library, bool compiled,
                          const struct gp_rec_site *site)
{
    for (uint32_t i = 0; i < site->frame_count; i++) {
        const struct gp_rec_frame *frame = &recording->frames[site->first_frame + i];
        bool listed = frame->module < recording->module_count;
        const char *path = listed ? recording->strings + recording->modules[frame->module].path : "";
        bool module = strchr(path, '/'); /* memory that code was written into has no path */
        if (module && library_has(library, path, true))
            return true;
        if (!module && frame->file && library_has(library, recording->strings + frame->file, false))
            return true;
        if (compiled && !module && frame->pc && !frame->named)
            return true;
    }
    return false;
}

void gp_library_bytes(const struct gp_recording *recording, const struct gp_peak *peak, int64_t bytes[GP_LIBRARIES])
{
    memset(bytes, 0, GP_LIBRARIES * sizeof(bytes[0]));
    for (uint32_t i = 0; i < GP_LIBRARIES; i++) {
        bool compiled = libraries[i].compiled && library_is_loaded(recording, &libraries[i]);
        for (uint32_t k = 0; k < peak->count; k++) {
            const struct gp_peak_part *part = &peak->parts[k];
            if (part->site && part->site < recording->site_count &&
                library_asked(recording, &libraries[i], compiled, &recording->sites[part->site]))
                bytes[i] += part->bytes;
        }
    }
}

void gp_library_bytes_live(const struct gp_recording *tables, int device, int64_t bytes[GP_LIBRARIES])
{
    memset(bytes, 0, GP_LIBRARIES * sizeof(bytes[0]));
    for (uint32_t i = 0; i < GP_LIBRARIES; i++) {
        bool compiled = libraries[i].compiled && library_is_loaded(tables, &libraries[i]);
        for (uint32_t k = 1; k < tables->site_count; k++) {
            const struct gp_rec_site *site = &tables->sites[k];
            if (site->device == device && site->live_bytes > 0 && gp_kind_sums(site->kind) & GP_SUM_ALLOCATED &&
                library_asked(tables, &libraries[i], compiled, site))
                bytes[i] += site->live_bytes;
        }
    }
}
