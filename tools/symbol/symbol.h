/* SPDX-License-Identifier: MIT
 *
 * symbol.h: looks up addresses: function, file and line of each frame, including inlined calls, by
 * elfutils. Never used in the profiled process. Objects are found by path and checked by build ID;
 * debug files are found in /usr/lib/debug, and through debuginfod if DEBUGINFOD_URLS is set.
 * Threads: one at a time.
 */
#ifndef GP_SYMBOL_SYMBOL_H
#define GP_SYMBOL_SYMBOL_H

#include <recording/recording.h>

/* Strings are valid UTF-8 without control characters, at most 1 KiB each. */
struct gp_frame_text {
    const char *function;  /* demangled; "libfoo.so+0x1234" (offset in the file) or "0x7f..." if unknown */
    const char *file;      /* "" unknown */
    const char *module;    /* base name of the object; "" Python */
    uint32_t line;         /* 0 unknown */
    uint32_t module_index; /* in the source's modules; GP_REC_NONE */
    uint64_t pc;           /* native: as recorded, shared by all frames inlined there; 0 Python */
    bool python;
    bool inlined; /* into the frame that follows */
};

struct gp_symbols;

/* The data to look up. The arrays stay the caller's and must outlive it. root: prefix of the
 * objects' paths ("" or /proc/PID/root). */
struct gp_symbol_source {
    const struct gp_rec_site *sites;
    const struct gp_rec_frame *frames;
    const struct gp_rec_module *modules;
    const char *strings;
    uint32_t site_count, frame_count, module_count;
    const char *root;
};

/* 0 or -ENOMEM. */
int gp_symbols_new(struct gp_symbols **out, const struct gp_symbol_source *source);
void gp_symbols_free(struct gp_symbols *symbols);
/* Call when the arrays have grown or moved; old entries must be unchanged. Strings returned earlier
 * stay valid. 0 or -ENOMEM (nothing changes then, and the old arrays must stay). */
int gp_symbols_update(struct gp_symbols *symbols, const struct gp_symbol_source *source);

/* The stack of a site for display, innermost first: without the frames of the driver and of gpuprof
 * at its inner end (libcuda, libcupti, libgpuprof and their callbacks; libcudart's entry point
 * stays), and with Python frames in place of the interpreter's (_PyEval_*, ...), native ones below
 * them. A stack that was cut when it was recorded ends with "[truncated]". Site 0 and unknown
 * sites: one frame "[unknown]". Valid until gp_symbols_free. Returns the number of frames, >= 1. */
uint32_t gp_symbols_site(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames);

/* The frame that names a site in a table: the innermost one of the user's own code (Python before
 * native; not in a system library if there is another). Never NULL. */
const struct gp_frame_text *gp_symbols_name(struct gp_symbols *symbols, uint32_t site);

/* Notes about objects that could not be used, for the lookups so far: one sentence per object, and
 * one for all that cannot be opened, whose text changes with their number. i counts from 0; NULL
 * after the last. */
const char *gp_symbols_note(const struct gp_symbols *symbols, uint32_t i);

/* Formats "function (file:line)" into `bytes`; the middle of the path is cut to fit. */
void gp_frame_label(const struct gp_frame_text *frame, char *out, size_t bytes);

/* For each of the sites that shares its name with others of them: the frame, nearest to the name,
 * at which its stack differs from all of theirs; NULL: the name is unique, or no frame differs.
 * Valid as long as the frames of gp_symbols_site. */
void gp_symbols_callers(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                        const struct gp_frame_text **callers);
/* Formats the label of a name, and after '<' the caller, unless it is NULL. */
void gp_site_label(const struct gp_frame_text *name, const struct gp_frame_text *caller, char *out, size_t bytes);

#endif
