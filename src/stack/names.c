/* SPDX-License-Identifier: MIT
 *
 * names.c: interns the names of Python frames by their contents. An index finds a name by its hash,
 * and then the name itself is compared. A second, small table remembers which two names a code
 * object had last; both are compared with the frame's, because the address of a code object may
 * have been reused. Reading takes no lock.
 */
#include "base/compiler.h"
#include "base/kept.h"
#include "base/lock.h"
#include "stack/internal.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Twice the number of names that fit if each has 32 bytes; qualified names and paths are longer. */
#define NAME_INDEX_WORDS (1u << 18)
/* A large program runs some thousand functions that call an allocator. */
#define CODE_WORDS (1u << 13)

static struct gp_wire_sites *head;
static char *strings;
static uint32_t limit, used; /* in bytes; `used` is under the lock */
static uint64_t *x_index;    /* hash >> 32 | offset */
static uint64_t *x_code;     /* function | file, by the hash of the code object's address */
static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_SITE);

int gp_names_start(struct gp_wire_sites *sites, char *memory, uint32_t memory_bytes)
{
    uint64_t bytes = (NAME_INDEX_WORDS + CODE_WORDS) * sizeof *x_index;
    x_index = gp_kept_map(bytes, MAP_NORESERVE);
    if (!x_index)
        return -errno;
    x_code = x_index + NAME_INDEX_WORDS;
    head = sites;
    strings = memory;
    limit = memory_bytes;
    head->strings = used = 1; /* "" */
    return 0;
}

static bool text_is(uint32_t offset, const char *bytes, uint32_t length)
{
    return (uint64_t)offset + length < limit && memcmp(strings + offset, bytes, length) == 0 &&
           strings[offset + length] == 0;
}

/* Makes the text fit to be stored: cut between characters, and without NUL bytes inside. */
static uint32_t text_clean(const struct gp_python_text *text, char clean[GP_STACK_TEXT])
{
    uint32_t n = text->length;
    if (n > GP_STACK_TEXT - 1)
        for (n = GP_STACK_TEXT - 1; n > GP_STACK_TEXT - 4 && ((unsigned char)text->bytes[n] & 0xc0) == 0x80;)
            n--;
    for (uint32_t i = 0; i < n; i++)
        clean[i] = text->bytes[i] ? text->bytes[i] : '?';
    return n;
}

/* The word of the name in the index, or the empty word where it belongs; NULL if the index is
 * full. */
static uint64_t *text_find(const char *bytes, uint32_t length, uint64_t hash)
{
    for (uint32_t i = 0; i < NAME_INDEX_WORDS; i++) {
        uint64_t *at = &x_index[(hash + i) % NAME_INDEX_WORDS];
        /* [text.A] acquire pairs with [text.R]: the name's bytes. */
        uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (!word || (word >> 32 == hash >> 32 && text_is((uint32_t)word, bytes, length)))
            return at;
    }
    return NULL;
}

static uint32_t text_add(const char *bytes, uint32_t length, uint64_t hash)
{
    uint32_t offset = 0;
    gp_lock_take(&lock);
    uint64_t *at = text_find(bytes, length, hash);
    if (at && *at) {
        offset = (uint32_t)*at;
    } else if (at && used + length + 1 <= limit) {
        offset = used;
        memcpy(strings + offset, bytes, length);
        GP_TESTPOINT("text.written");
        /* [site.R] release: the bytes before the count; pairs with [site.A]. */
        __atomic_store_n(&head->strings, used = offset + length + 1, __ATOMIC_RELEASE);
        /* [text.R] release pairs with [text.A]. */
        __atomic_store_n(at, hash >> 32 << 32 | offset, __ATOMIC_RELEASE);
    }
    gp_lock_give(&lock);
    return offset;
}

static uint32_t text_name(const struct gp_python_text *text, bool *full)
{
    char clean[GP_STACK_TEXT];
    uint32_t length = text_clean(text, clean);
    if (length == 0)
        return 0;
    uint64_t hash = gp_mix_bytes(clean, length), *at = text_find(clean, length, hash);
    uint32_t offset = at ? (uint32_t)__atomic_load_n(at, __ATOMIC_ACQUIRE) : 0;
    if (!offset)
        offset = text_add(clean, length, hash);
    *full |= !offset;
    return offset;
}

void gp_names_frame(const struct gp_python_frame *from, struct gp_wire_frame *to, bool *full)
{
    uint64_t *at = &x_code[gp_mix(from->code, 1) % CODE_WORDS];
    /* [code.A] acquire pairs with [code.R]: the names' bytes. */
    uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    *to = (struct gp_wire_frame){.line = from->line, .type = GP_FRAME_PYTHON};
    to->function = (uint32_t)(word >> 32);
    to->file = (uint32_t)word;
    if (GP_LIKELY(word && text_is(to->function, from->function.bytes, from->function.length) &&
                  text_is(to->file, from->file.bytes, from->file.length)))
        return;
    to->function = text_name(&from->function, full);
    to->file = text_name(&from->file, full);
    /* [code.R] release pairs with [code.A]. */
    __atomic_store_n(at, (uint64_t)to->function << 32 | to->file, __ATOMIC_RELEASE);
}
