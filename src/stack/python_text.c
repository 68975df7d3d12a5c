/* SPDX-License-Identifier: MIT
 *
 * python_text.c: converts the interpreter's strings to UTF-8. Most strings are ASCII and are used
 * in place. All others, and all that had to be copied, are encoded here and kept for the life of
 * the process, each text once: a program has few names and paths, and a text that is never freed
 * needs no owner.
 *
 * Kept texts lie in one arena. A table of pointers finds them; a pointer changes only once, from
 * NULL to a text.
 */
#include "base/compiler.h"
#include "base/text.h"
#include "stack/python.h"
#include <string.h>

/* With names and paths of 40 bytes the table is half full when the arena is. Memory is used only as
 * they fill. */
#define GP_PYTHON_ARENA 2097152u
#define GP_PYTHON_TABLE 65536u
/* A text is at most this far from the place that its hash gives. */
#define GP_PYTHON_PROBES 64u

struct gp_python_kept {
    uint32_t hash, length;
    char bytes[];
};

static uint64_t python_arena[GP_PYTHON_ARENA / 8];
static uint64_t x_arena_used;
static const struct gp_python_kept *x_table[GP_PYTHON_TABLE];

static struct gp_python_kept *python_kept_new(const char *bytes, uint32_t length, uint32_t hash)
{
    uint64_t want = (sizeof(struct gp_python_kept) + length + 7) & ~7ull;
    if (__atomic_load_n(&x_arena_used, __ATOMIC_RELAXED) + want > GP_PYTHON_ARENA)
        return NULL;
    /* Relaxed: this only reserves bytes; the table publishes the text. */
    uint64_t at = __atomic_fetch_add(&x_arena_used, want, __ATOMIC_RELAXED);
    if (at + want > GP_PYTHON_ARENA)
        return NULL;
    struct gp_python_kept *kept = (struct gp_python_kept *)(python_arena + at / 8);
    kept->hash = hash;
    kept->length = length;
    memcpy(kept->bytes, bytes, length);
    return kept;
}

static bool python_kept_is(const struct gp_python_kept *kept, const char *bytes, uint32_t length, uint32_t hash)
{
    return kept->hash == hash && kept->length == length && memcmp(kept->bytes, bytes, length) == 0;
}

const char *gp_python_keep(const char *bytes, uint32_t length)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    struct gp_python_kept *fresh = NULL;
    for (uint32_t i = 0; i < GP_PYTHON_PROBES; i++) {
        const struct gp_python_kept **place = &x_table[(hash + i) % GP_PYTHON_TABLE];
        /* [text.A1] acquire: the text; pairs with [text.R1]. */
        const struct gp_python_kept *kept = __atomic_load_n(place, __ATOMIC_ACQUIRE);
        if (!kept) {
            if (!fresh && !(fresh = python_kept_new(bytes, length, hash)))
                break;
            /* [text.R1] release: the text; pairs with [text.A1], and with the acquire of a thread
             * that loses the race for this place. */
            if (__atomic_compare_exchange_n(place, &kept, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                return fresh->bytes;
        }
        if (python_kept_is(kept, bytes, length, hash))
            return kept->bytes;
    }
    gp_python_note_set(
        "some Python names show as '?': too many different names are not ASCII or were read without the GIL");
    return NULL;
}

/* ---- cache of the names of code objects -------------------------------------------------------------------------- */

/* From 3.12 on a code object has a version number unique in its interpreter, and its names never
 * change. An entry is two words, written and read without order: `value` has the places of both
 * names in the arena and the low bits of the number; `mixed` is the rest of the key mixed with
 * `value`, so that halves of two entries match nothing. */
#define GP_PYTHON_NAMES 4096u

static struct gp_python_names {
    uint64_t mixed, value; /* value: 18 bits each of the places, 28 of the number */
} x_names[GP_PYTHON_NAMES];

static inline uint64_t python_names_key(uint64_t code, uint32_t version)
{
    return code >> 4 << 20 | version >> 28;
}

static inline struct gp_python_names *python_names_place(uint64_t key)
{
    return &x_names[key * 0x9e3779b97f4a7c15ull >> 52];
}

static struct gp_python_text python_names_text(uint64_t place)
{
    const struct gp_python_kept *kept = (const struct gp_python_kept *)(python_arena + (place & 0x3ffff));
    return (struct gp_python_text){.bytes = kept->bytes, .length = kept->length};
}

bool gp_python_names_kept(uint64_t code, uint32_t version, struct gp_python_frame *frame)
{
    uint64_t key = python_names_key(code, version);
    const struct gp_python_names *place = python_names_place(key);
    /* [names.A] acquire: the texts; pairs with [names.R]. */
    uint64_t value = __atomic_load_n(&place->value, __ATOMIC_ACQUIRE),
             mixed = __atomic_load_n(&place->mixed, __ATOMIC_RELAXED);
    if (code & 15 || !value || (value ^ version) & 0xfffffff || (mixed ^ value * 0x9e3779b97f4a7c15ull) != key)
        return false;
    frame->function = python_names_text(value >> 46);
    frame->file = python_names_text(value >> 28);
    return true;
}

/* The place of a kept text in the arena; false: the text is not in the arena. */
static bool python_names_index(const struct gp_python_text *text, uint64_t *index)
{
    *index = ((uintptr_t)text->bytes - (uintptr_t)python_arena - sizeof(struct gp_python_kept)) / 8;
    return *index < GP_PYTHON_ARENA / 8;
}

void gp_python_names_keep(uint64_t code, uint32_t version, const struct gp_python_frame *frame)
{
    uint64_t key = python_names_key(code, version), function, file;
    if (code & 15 || !python_names_index(&frame->function, &function) || !python_names_index(&frame->file, &file))
        return;
    uint64_t value = function << 46 | file << 28 | (version & 0xfffffff);
    struct gp_python_names *place = python_names_place(key);
    __atomic_store_n(&place->mixed, key ^ value * 0x9e3779b97f4a7c15ull, __ATOMIC_RELAXED);
    /* [names.R] release: the texts; pairs with [names.A]. */
    __atomic_store_n(&place->value, value, __ATOMIC_RELEASE);
}

_Static_assert(GP_PYTHON_ARENA / 8 <= 1u << 18, "a place in the arena has 18 bits");

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

struct gp_python_out {
    uint32_t length;
    char bytes[GP_STACK_TEXT];
};

static bool python_put(struct gp_python_out *out, const char *bytes, uint32_t length)
{
    if (out->length + length > sizeof out->bytes)
        return false;
    memcpy(out->bytes + out->length, bytes, length);
    out->length += length;
    return true;
}

/* Appends one character; false: it does not fit. Half a surrogate pair (in a path that is not
 * UTF-8) is written as an escape, as Python itself prints it in a traceback. */
static bool python_encode(struct gp_python_out *out, uint32_t code)
{
    char unit[6];
    if (code >= 0xd800 && code < 0xe000) {
        static const char digit[] = "0123456789abcdef";
        memcpy(unit, "\\u", 2);
        for (unsigned i = 0; i < 4; i++)
            unit[2 + i] = digit[code >> (12 - 4 * i) & 15];
        return python_put(out, unit, 6);
    }
    return code < 0x110000 && python_put(out, unit, (uint32_t)gp_utf8_put(unit, code));
}

static const struct gp_python_text python_unknown = {.bytes = "?", .length = 1};

static bool python_keep_text(struct gp_python_text *text, const char *bytes, uint32_t length)
{
    text->bytes = gp_python_keep(bytes, length);
    text->length = length;
    if (!text->bytes)
        *text = python_unknown;
    return true;
}

/* Reads at most GP_STACK_TEXT characters: more cannot fit into the output. */
static bool python_wide(const struct gp_python_way *way, uint64_t data, uint32_t kind, uint64_t length,
                        struct gp_python_text *text)
{
    uint32_t room[GP_STACK_TEXT];
    struct gp_python_out out;
    out.length = 0;
    if (length > GP_STACK_TEXT)
        length = GP_STACK_TEXT;
    const void *from = gp_python_at(way->texts, data, room, length * kind);
    if (!from)
        return false;
    for (uint64_t i = 0; i < length; i++) {
        uint32_t code = kind == 1   ? ((const uint8_t *)from)[i]
                        : kind == 2 ? ((const uint16_t *)from)[i]
                                    : ((const uint32_t *)from)[i];
        if (!python_encode(&out, code))
            break;
    }
    return python_keep_text(text, out.bytes, out.length);
}

/* ---- str objects ------------------------------------------------------------------------------------------------- */

/* bytes per character */
#define GP_PYTHON_KIND(_state)    ((_state) >> 2 & 7)
#define GP_PYTHON_COMPACT(_state) ((_state) >> 5 & 1)
#define GP_PYTHON_ASCII(_state)   ((_state) >> 6 & 1)

bool gp_python_string(const struct gp_python_way *way, uint64_t object, struct gp_python_text *text)
{
    const struct gp_python_layout *at = &way->python->at;
    char room[128];
    const char *head = gp_python_at(way->texts, object, room, at->text_ascii);
    if (GP_UNLIKELY(!head))
        return false;
    uint32_t state = gp_python_half(head, at->text_state);
    uint64_t length = gp_python_word(head, at->text_length);
    uint32_t kind = GP_PYTHON_KIND(state);
    if (GP_UNLIKELY(!GP_PYTHON_COMPACT(state) || (kind != 1 && kind != 2 && kind != 4) || length > INT32_MAX)) {
        /* A subclass of str: the compiler never stores one here, but code.replace() can. */
        *text = python_unknown;
        return true;
    }
    if (GP_LIKELY(GP_PYTHON_ASCII(state))) {
        if (way->texts)
            return python_wide(way, object + at->text_ascii, 1, length, text);
        *text = (struct gp_python_text){.bytes = (const char *)(uintptr_t)object + at->text_ascii,
                                        .length = (uint32_t)length};
        return true;
    }
    /* The cached UTF-8 of such a string is not used: its address is visible before its bytes
     * are. */
    return python_wide(way, object + at->text_wide, kind, length, text);
}
