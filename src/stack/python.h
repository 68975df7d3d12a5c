/* SPDX-License-Identifier: MIT
 *
 * python.h: shared by the files that read Python's frames. python.c walks them, python_find.c finds
 * the interpreter and its layout, python_copy.c has the kernel copy memory that may be freed,
 * python_text.c reads strings, python_line.c line tables, and python_table.c keeps the lines of
 * 3.10 and 3.11. docs/understand/sites.md explains why the reading is safe.
 */
#ifndef GP_STACK_PYTHON_H
#define GP_STACK_PYTHON_H

#include "base/compiler.h"
#include "stack/internal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_PYTHON_310 0x030au
#define GP_PYTHON_311 0x030bu
#define GP_PYTHON_312 0x030cu
#define GP_PYTHON_313 0x030du
#define GP_PYTHON_314 0x030eu

/* The fixed parts of a frame and of a code object are at most this long in every supported
 * version. */
#define GP_PYTHON_FRAME 128u
#define GP_PYTHON_CODE  256u

/* This version has no such field. */
#define GP_PYTHON_NONE 0xffffu

/* Offsets of fields, in bytes from the start of their structure. */
struct gp_python_layout {
    uint16_t state_frame;  /* thread state: innermost frame, or the C frame whose field ... */
    uint16_t cframe_frame; /* ... at this offset has it */
    uint16_t frame_code, frame_previous, frame_owner;
    uint16_t frame_instr; /* pointer into the byte code; 3.10: f_lasti, an index */
    uint16_t code_file, code_name, code_table, code_line;
    uint16_t code_traceable; /* index of the first code unit that belongs to a line of the program */
    uint16_t code_bytes;     /* start of the byte code, at the end of the code object */
    uint16_t code_version;   /* version number, unique among the interpreter's code objects, or 0 */
    uint16_t object_type;
    uint16_t bytes_size, bytes_data;
    uint16_t text_length, text_state, text_ascii; /* text_ascii: start of the characters of an ASCII string */
    uint16_t text_wide;                           /* start of the characters of any other string */
};

struct gp_python {
    void *(*state)(void);    /* PyGILState_GetThisThreadState */
    void *(*holder)(void);   /* attached thread state: 3.12+ of this thread, before that of the GIL's holder */
    int (*finalizing)(void); /* nonzero while Python is shutting down */
    void *(*newest)(void);   /* the newest interpreter, and */
    void *(*first)(void);    /* the first one: the same as long as there are no sub-interpreters */
    uint64_t code_type;      /* PyCode_Type */
    uint32_t version;        /* 0x030b: 3.11 */
    bool usable;
    bool free_threaded;
    struct gp_python_layout at;
};

/* The process's Python, or NULL: none, not yet, or of an unknown layout (see gp_python_note). */
const struct gp_python *gp_python_find(void);

/* Offsets of a version. debug: start of _PyRuntime (3.13+; NULL before). False: unknown, *why says
 * why. */
bool gp_python_layout(struct gp_python_layout *at, uint32_t version, const void *debug, const char **why);

/* Why Python frames are missing: a sentence for the user, or NULL if no reason is known so far. The
 * text is constant. */
const char *gp_python_note(void);
void gp_python_note_set(const char *text);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Memory of the interpreter is read in place, or, where another thread could unmap it meanwhile,
 * copied by the kernel, which reports an error where a direct read would raise SIGSEGV. The system
 * call costs more than the bytes it copies, so it copies more than was asked for, and the ranges
 * that a thread needed last time are copied by the first call. */
#define GP_PYTHON_RANGES 16u
#define GP_PYTHON_COPIED 8192u

struct gp_python_range {
    uint64_t from;
    uint32_t bytes;
};

struct gp_python_copies {
    int (*finalizing)(void); /* called after each copy */
    int pid;                 /* process or thread number */
    bool ended;              /* shutdown has begun: copied bytes cannot be trusted, and nothing is returned any more */
    unsigned ranges;
    uint32_t used;
    struct gp_python_range range[GP_PYTHON_RANGES]; /* stored in bytes[] one after another */
    char bytes[GP_PYTHON_COPIED];
};

/* How each kind of memory is read. NULL: in place. docs/understand/sites.md says why objects may be
 * read in place where frames may not. */
struct gp_python_way {
    const struct gp_python *python;
    struct gp_python_frames *frames;  /* for frames */
    struct gp_python_copies *objects; /* for code objects and line tables */
    struct gp_python_copies *texts;   /* for names */
    bool alone;                       /* no sub-interpreters exist, whose code objects could have the same versions */
};

void gp_python_copies_start(struct gp_python_copies *copies, int pid, int (*finalizing)(void));

/* Copies ranges in one call; together they may take at most half of the room. Earlier ranges are
 * forgotten if needed. Returns how many of the ranges, from the first on, were copied
 * completely. */
unsigned gp_python_fetch(struct gp_python_copies *copies, const struct gp_python_range *want, unsigned count);

/* A part of a copied range; NULL: not copied. */
const char *gp_python_copied(const struct gp_python_copies *copies, uint64_t from, size_t bytes);

GP_COLD bool gp_python_copy(struct gp_python_copies *copies, uint64_t from, void *to, size_t bytes);

/* No pointer of the interpreter lies in the first pages, or above the user's addresses (2^47 or,
 * AArch64, 2^48). */
static inline bool gp_python_sane(uint64_t address)
{
    return address >= 65536 && address < 1ull << 48;
}

/* `bytes` of memory at `from`; `room` receives them if they have to be copied. NULL: not mapped. */
static inline const void *gp_python_at(struct gp_python_copies *copies, uint64_t from, void *room, size_t bytes)
{
    if (GP_UNLIKELY(!gp_python_sane(from)))
        return NULL;
    if (GP_LIKELY(!copies))
        return (const void *)(uintptr_t)from;
    return gp_python_copy(copies, from, room, bytes) ? room : NULL;
}

static inline uint64_t gp_python_word(const void *base, uint16_t offset)
{
    uint64_t value;
    __builtin_memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static inline uint32_t gp_python_half(const void *base, uint16_t offset)
{
    uint32_t value;
    __builtin_memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

/* The text of a str object; false: it cannot be read. Points into the object, or into memory that
 * is never freed. */
bool gp_python_string(const struct gp_python_way *way, uint64_t object, struct gp_python_text *text);

/* Both names of a code object that were copied before; version: the code object's, not 0. */
bool gp_python_names_kept(uint64_t code, uint32_t version, struct gp_python_frame *frame);
void gp_python_names_keep(uint64_t code, uint32_t version, const struct gp_python_frame *frame);

/* Interns the text for the life of the process: equal bytes have one address. NULL: no room
 * (noted). */
const char *gp_python_keep(const char *bytes, uint32_t length);

/* The line of the instruction that starts `offset` bytes into the code, whose first line is `first`
 * and whose line table is the bytes object `table`; 0: it belongs to no line. */
uint32_t gp_python_line(const struct gp_python_way *way, uint64_t table, uint32_t first, int64_t offset);

/* A cache of lines; version: the code object's, not 0. */
bool gp_python_line_kept(uint64_t code, uint32_t version, int64_t offset, uint32_t *line);
void gp_python_line_keep(uint64_t code, uint32_t version, int64_t offset, uint32_t line);

/* A cache of lines by the contents of a line table that is read in place. used: how many bytes from
 * its start the line depends on. */
struct gp_python_lines {
    uint64_t table; /* the bytes object */
    const uint8_t *bytes;
    uint32_t size, first;
};
bool gp_python_table_kept(const struct gp_python_lines *lines, int64_t offset, uint32_t *line);
void gp_python_table_keep(const struct gp_python_lines *lines, int64_t offset, uint64_t used, uint32_t line);

#endif
