/* SPDX-License-Identifier: MIT
 *
 * symbol.h: looks up addresses: function, file and line of each frame, including inlined calls, by
 * elfutils. Never used in the profiled process. Objects are found by path and checked by build ID;
 * debug files are found in /usr/lib/debug, and through debuginfod if DEBUGINFOD_URLS is set.
 * Threads: one at a time.
 */
#ifndef GP_SYMBOL_SYMBOL_H
#define GP_SYMBOL_SYMBOL_H

#include <read/recording/recording.h>

/* What a frame is for a reader (docs/understand/symbols.md). */
enum gp_frame_role {
    GP_ROLE_USER,        /* the user's own code */
    GP_ROLE_WRAPPER,     /* the user's too, but it allocates for callers elsewhere */
    GP_ROLE_LIBRARY,     /* of the system, of a package, of CUDA */
    GP_ROLE_ALLOCATOR,   /* a library's function that allocates for its callers */
    GP_ROLE_INTERPRETER, /* C code of Python, or between Python and C */
    GP_ROLE_START,       /* before main, and before a thread's first function */
};
/* role.c. Of a Python frame, without its stack. */
enum gp_frame_role gp_role_of_python(const char *function, const char *file);
/* Of a frame, from the outermost Python frame inward: it is of the text of `python -c`.  caller: what was returned
 * for the frame outside of it. */
bool gp_role_is_command(const char *function, const char *file, bool outermost, bool caller);
bool gp_role_is_launcher(const char *function, const char *file);
bool gp_role_is_package(const char *file);
const char *gp_frame_role_name(enum gp_frame_role role); /* "user" */

/* Strings are valid UTF-8 without control characters, at most 1 KiB each. */
struct gp_frame_text {
    const char *function;   /* demangled; "libfoo.so+0x1234" (offset in the file) or "0x7f..." if unknown */
    const char *file;       /* "" unknown */
    const char *module;     /* base name of the object; "" Python */
    uint32_t line;          /* 0 unknown */
    uint32_t module_index;  /* in the source's modules; GP_REC_NONE */
    uint64_t offset;        /* native: of the call in the module's file; 0 unknown */
    uint64_t pc;            /* native: as recorded, shared by all frames inlined there; 0 Python */
    const char *plain;      /* function without arguments of templates; NULL: the same */
    const char *short_file; /* the end of file that no other file has, mostly its base name; NULL: not known */
    enum gp_frame_role role;
    bool python;
    bool inlined; /* into the frame that follows */
    bool folded;  /* of an interpreter or a start: a short text leaves it out */
};

/* In which part of a program's work a framework asked for memory, as far as names on the stack
 * tell. */
enum gp_operation_part {
    GP_PART_NONE,
    GP_PART_FORWARD,  /* in the call of a layer */
    GP_PART_BACKWARD, /* in a backward pass */
    GP_PART_OPTIMIZER,
    GP_PART_WEIGHTS,   /* they are made, moved or loaded */
    GP_PART_WORKSPACE, /* of a library of functions */
    GP_PART_COMMUNICATION,
    GP_PART_GRAPHS,
    GP_PART_KV_CACHE,
    GP_PARTS
};

struct gp_operation { /* of a framework, below the user's frame */
    const char *text; /* "cross_entropy (log_softmax)"; NULL: no framework is on the stack, or nothing tells */
    enum gp_operation_part part;
    bool below; /* a frame of the user's names the site; else the operation alone says where it is */
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
    /* What the recording itself says of native frames; used before any object. */
    const struct gp_rec_name *names;
    uint32_t name_count;
};

/* The tables of a recording, or of a live process (struct gp_sites): both have the same names. It has
 * no names of native frames. */
#define GP_SYMBOL_SOURCE(_tables, _root)                                                                               \
    (struct gp_symbol_source)                                                                                          \
    {                                                                                                                  \
        .sites = (_tables)->sites, .frames = (_tables)->frames, .modules = (_tables)->modules,                         \
        .strings = (_tables)->strings, .site_count = (_tables)->site_count, .frame_count = (_tables)->frame_count,     \
        .module_count = (_tables)->module_count, .root = (_root)                                                       \
    }

static inline struct gp_symbol_source gp_symbol_source_of(const struct gp_recording *recording, const char *root)
{
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(recording, root);
    source.names = recording->names;
    source.name_count = recording->name_count;
    return source;
}

/* 0 or -ENOMEM. */
int gp_symbols_new(struct gp_symbols **out, const struct gp_symbol_source *source);
void gp_symbols_free(struct gp_symbols *symbols);
/* Objects are looked for below this folder first, as where the program ran had them. NULL: nowhere else. */
void gp_symbols_look_below(struct gp_symbols *symbols, const char *folder);
/* Call when the arrays have grown or moved; old entries must be unchanged. Strings returned earlier
 * stay valid. 0 or -ENOMEM (nothing changes then, and the old arrays must stay). */
int gp_symbols_update(struct gp_symbols *symbols, const struct gp_symbol_source *source);

/* The stack of a site for display, innermost first: without the frames of the driver and of gpuprof
 * at its inner end (libcuda, libcupti, libgpuprof and their callbacks; libcudart's entry point
 * stays), and with Python frames in place of the interpreter's (_PyEval_*, ...), native ones below
 * them. A stack that was cut when it was recorded ends with "[truncated]". Site 0 and unknown
 * sites: one frame "[unknown]". Valid until gp_symbols_free. Returns the number of frames, >= 1. */
uint32_t gp_symbols_site(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text **frames);

/* The calls at a native frame, those inlined there first, as the object has them. 0: no name is known. */
uint32_t gp_symbols_calls(struct gp_symbols *symbols, const struct gp_rec_frame *frame,
                          const struct gp_frame_text **calls);

/* The frame that names a site in a table: the innermost one of the user's own code that does not
 * only allocate for its callers (docs/understand/symbols.md). Never NULL. It depends on all sites
 * of the source, so it may change with gp_symbols_update. */
const struct gp_frame_text *gp_symbols_name(struct gp_symbols *symbols, uint32_t site);

/* The lowest site on the same device, of the same kind, whose stack has the same text: one line of
 * code that was compiled more than once. Mostly the site itself. */
uint32_t gp_symbols_twin(struct gp_symbols *symbols, uint32_t site);

/* What a framework did there (docs/understand/symbols.md). Never NULL. */
const struct gp_operation *gp_symbols_operation(struct gp_symbols *symbols, uint32_t site);

/* Whether a loss asked for the memory of the site, or for what it is computed of. */
bool gp_symbols_is_loss(struct gp_symbols *symbols, uint32_t site);

/* The lowest site of the same device and kind with the same operation below the same frames:
 * what a reader takes for one place, where an operation asks for several blocks. Mostly the site
 * itself. */
uint32_t gp_symbols_row(struct gp_symbols *symbols, uint32_t site);

/* Notes about objects that could not be used, for the lookups so far: one sentence per object, and
 * one for all that cannot be opened, whose text changes with their number. i counts from 0; NULL
 * after the last. */
const char *gp_symbols_note(const struct gp_symbols *symbols, uint32_t i);

/* Formats "function (file:line)" into `bytes`, with short_file where it is known; the middle of the
 * path is cut to fit. Returns the length of the function's part, which readers look for. */
size_t gp_frame_label(const struct gp_frame_text *frame, char *out, size_t bytes);

/* For each of the sites that shares its name with others of them: the frame outside of the name,
 * nearest to it, at which its stack differs from all of theirs; NULL: the name is unique, or no
 * such frame differs. Valid as long as the frames of gp_symbols_site. */
void gp_symbols_callers(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                        const struct gp_frame_text **callers);
/* The same inside of the name, for sites whose stacks are equal from the name outward: the call by
 * which one line requests memory in several ways. */
void gp_symbols_callees(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count,
                        const struct gp_frame_text **callees);
/* Formats the label of a name, after '>' the callee and after '<' the caller, unless they are NULL.
 * Returns the length of the name's function, which readers look for. */
size_t gp_caller_text(const struct gp_frame_text *name, const struct gp_frame_text *caller,
                      const struct gp_frame_text *callee, char *out, size_t bytes);
/* The same with the operation behind the place: "Block.forward (model.py:10) linear". Where it
 * tells the callee apart, the callee is left out. operation->text NULL: as gp_caller_text. */
size_t gp_caller_line(const struct gp_frame_text *name, const struct gp_operation *operation,
                      const struct gp_frame_text *caller, const struct gp_frame_text *callee, char *out, size_t bytes);
/* The line of a site. */
size_t gp_symbols_line(struct gp_symbols *symbols, uint32_t site, const struct gp_frame_text *caller,
                       const struct gp_frame_text *callee, char *out, size_t bytes);

#endif
