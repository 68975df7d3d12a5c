/* SPDX-License-Identifier: MIT
 *
 * python.h: what the pieces that read Python's frames share: python.c walks, python_find.c finds the interpreter and
 * knows its layouts, python_text.c reads strings, python_line.c line tables.  Why reading is safe:
 * docs/sites-python.md.
 */
#ifndef GP_SITE_PYTHON_H
#define GP_SITE_PYTHON_H

#include "base/compiler.h"
#include "site/stack.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_PYTHON_310 0x030au
#define GP_PYTHON_311 0x030bu
#define GP_PYTHON_312 0x030cu
#define GP_PYTHON_313 0x030du
#define GP_PYTHON_314 0x030eu

/* No frame or code object has a longer fixed part in any version that is read. */
#define GP_PYTHON_FRAME 128u
#define GP_PYTHON_CODE  256u

/* No such field in this version. */
#define GP_PYTHON_NONE 0xffffu

/* Where things are, in bytes from the start of their structure. */
struct gp_python_layout {
    uint16_t state_frame;  /* thread state: innermost frame, or the C frame that has it ... */
    uint16_t cframe_frame; /* ... at this place */
    uint16_t frame_code, frame_previous, frame_owner;
    uint16_t frame_instr; /* pointer into the byte code; 3.10: f_lasti, an index */
    uint16_t code_file, code_name, code_table, code_line;
    uint16_t code_traceable; /* code units before it belong to no line of the program */
    uint16_t code_bytes;     /* byte code, at the end of the code object */
    uint16_t code_version;   /* a number that no other code object of the interpreter has, or 0 */
    uint16_t object_type;
    uint16_t bytes_size, bytes_data;
    uint16_t text_length, text_state, text_ascii; /* text_ascii: where the characters of an ASCII string begin */
    uint16_t text_wide;                           /* and those of another one */
};

struct gp_python {
    void *(*state)(void);    /* PyGILState_GetThisThreadState */
    void *(*holder)(void);   /* the attached thread state: 3.12+ of this thread, before that of whoever has the GIL */
    int (*finalizing)(void); /* Python is being shut down */
    void *(*newest)(void);   /* interpreter made last, and */
    void *(*first)(void);    /* the first one: the same as long as there are no sub-interpreters */
    uint64_t code_type;      /* PyCode_Type */
    uint32_t version;        /* 0x030b: 3.11 */
    bool usable;
    struct gp_python_layout at;
};

/* The process's Python, or NULL: none, not yet, or of no known layout (gp_python_note says so). */
const struct gp_python *gp_python_find(void);

/* Offsets of a version; debug: start of _PyRuntime (3.13+; NULL before).  False: not known, *why says what. */
bool gp_python_layout(struct gp_python_layout *at, uint32_t version, const void *debug, const char **why);

/* Why there are no Python frames, or fewer than there could be: text for a person, in English, or NULL: no reason known
 * so far.  The text stays. */
const char *gp_python_note(void);
void gp_python_note_set(const char *text);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* How memory of the interpreter is read: in place, or, where another thread could unmap it meanwhile, copied by the
 * kernel, which then says so instead of a SIGSEGV here; by the block, since the frames of a thread lie together. */
#define GP_PYTHON_BLOCK  512u /* divides a page: a block is there as a whole, or not at all */
#define GP_PYTHON_BLOCKS 16u

struct gp_python_copies {
    int pid;
    unsigned turn;                   /* the block that goes next */
    uint64_t from[GP_PYTHON_BLOCKS]; /* 0: empty */
    char bytes[GP_PYTHON_BLOCKS][GP_PYTHON_BLOCK];
};

struct gp_python_way {
    const struct gp_python *python;
    struct gp_python_copies *copies; /* NULL: memory is read where it is */
    bool alone; /* there are no sub-interpreters, whose code objects could have the same versions */
};

GP_COLD bool gp_python_copy(struct gp_python_copies *copies, uint64_t from, void *to, size_t bytes);

/* No pointer of the interpreter lies in the first pages, or above what user space has (2^47 or, AArch64, 2^48). */
static inline bool gp_python_sane(uint64_t address)
{
    return address >= 65536 && address < 1ull << 48;
}

/* `bytes` of memory at `from`; `room` is where they go if they have to be copied.  NULL: not there. */
static inline const void *gp_python_at(const struct gp_python_way *way, uint64_t from, void *room, size_t bytes)
{
    if (GP_UNLIKELY(!gp_python_sane(from)))
        return NULL;
    if (GP_LIKELY(!way->copies))
        return (const void *)(uintptr_t)from;
    return gp_python_copy(way->copies, from, room, bytes) ? room : NULL;
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

/* The str object's text; false: no string.  Points into the object, or into memory that is kept for good. */
bool gp_python_string(const struct gp_python_way *way, uint64_t object, struct gp_python_text *text);

/* Text that stays: the same bytes have the same address.  NULL: no room (counted, noted). */
const char *gp_python_keep(const char *bytes, uint32_t length);

/* Line of the instruction that begins `offset` bytes into the code, whose first line is `first` and whose line table is
 * the bytes object `table`; 0: it belongs to no line. */
uint32_t gp_python_line(const struct gp_python_way *way, uint64_t table, uint32_t first, int64_t offset);

/* Lines found before; version: the code object's, not 0. */
bool gp_python_line_kept(uint64_t code, uint32_t version, int64_t offset, uint32_t *line);
void gp_python_line_keep(uint64_t code, uint32_t version, int64_t offset, uint32_t line);

#endif
