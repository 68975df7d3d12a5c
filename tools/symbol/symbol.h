/* SPDX-License-Identifier: MIT
 *
 * symbol.h: from addresses to names: function, file and line of each frame, inlined calls included, by elfutils; never
 * in the target.  Objects are found by path and checked by build id; debug files in /usr/lib/debug, and through
 * debuginfod where DEBUGINFOD_URLS is set.  Threads: one at a time.
 */
#ifndef GP_SYMBOL_SYMBOL_H
#define GP_SYMBOL_SYMBOL_H

#include <recording/recording.h>

/* Strings are valid UTF-8 without control characters, at most 1 KiB each. */
struct gp_frame_text {
    const char *function;  /* demangled; "libfoo.so+0x1234" (offset in the file) or "0x7f..." when nothing is known */
    const char *file;      /* "" unknown */
    const char *module;    /* base name of the object; "" Python */
    uint32_t line;         /* 0 unknown */
    uint32_t module_index; /* in the source's modules; GP_REC_NONE */
    uint64_t pc;           /* native: as recorded, shared by all frames that were inlined there; 0 Python */
    bool python;
    bool inlined; /* into the frame that follows */
};

struct gp_symbols;

/* What symbols are looked up in; the arrays stay the caller's and must outlive it. root: prefix of the objects' paths
 * ("" or /proc/PID/root). */
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
/* The arrays have grown or moved; what was there before is the same.  Texts given out stay valid.  0 or -ENOMEM (all
 * is as before then, and the old arrays must stay). */
int gp_symbols_update(struct gp_symbols *symbols, const struct gp_symbol_source *source);

/* The stack of a site as people want to see it, innermost first: without the driver's and our own frames at its inner
 * end (libcuda, libcupti, libgpuprof and their callbacks; libcudart's entry point stays), Python frames in the place
 * of the interpreter's (_PyEval_*, ...) with the native ones below them.  A stack that was deeper than is kept ends
 * with "[truncated]".  Site 0, or nothing known: one frame "[unknown]".  Valid until gp_symbols_free.  Returns the
 * number, >= 1. */
uint32_t gp_symbols_site(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames);

/* The one frame by which a site is called in a table: the innermost that is the user's own (Python before native; not
 * in a system library if there is another).  Never NULL. */
const struct gp_frame_text *gp_symbols_name(struct gp_symbols *symbols, uint32_t site);

/* What could not be looked up as it should, a sentence an object, of what was asked so far: i from 0; NULL after the
 * last. */
const char *gp_symbols_note(const struct gp_symbols *symbols, uint32_t i);

/* "function (file:line)", cut in the middle of the path to fit. */
void gp_frame_label(const struct gp_frame_text *frame, char *out, size_t bytes);

#endif
