/* SPDX-License-Identifier: MIT
 *
 * python_line.c: finds the line of an instruction in the code object's line table. There are two
 * formats:
 *
 *   3.10   pairs of bytes: how many bytes of code, and by how much the line changes (-128: these
 *          bytes belong to no line)
 *   3.11+  entries that start with a byte >= 128: its bits 0-2 are the number of code units less
 *          one, bits 3-6 the form; the bytes that follow (all below 128) are line and columns as the
 *          form says, and lines are relative
 *
 * Both have to be read from the start.
 */
#include "base/compiler.h"
#include "stack/python.h"

/* Forms of an entry from 3.11 on. */
enum {
    GP_FORM_SAME = 10,    /* 10 to 12: 0 to 2 lines on, two bytes of columns; below: same line, one byte */
    GP_FORM_COLUMNS = 13, /* line change only */
    GP_FORM_LONG = 14,    /* line change, then three numbers */
    GP_FORM_NONE = 15     /* no line */
};

/* A window on the table: all of it, or the part that was copied. Bytes [at, end) are readable;
 * `left` bytes follow from address `next` on. */
struct gp_python_window {
    const uint8_t *at, *end;
    uint64_t next, left;
    uint8_t room[512];
};

/* The longest entry: a head and four numbers of at most six bytes. */
#define GP_ENTRY_MAX 25

/* Makes the whole entry at window->at readable. false: the table ends, or cannot be read. */
static bool python_window_more(const struct gp_python_way *way, struct gp_python_window *window)
{
    if (GP_LIKELY(window->end - window->at >= GP_ENTRY_MAX || window->left == 0))
        return window->at < window->end;
    uint64_t kept = (uint64_t)(window->end - window->at);
    uint64_t from = window->next - kept, left = window->left + kept;
    uint64_t bytes = way->objects && left > sizeof window->room ? sizeof window->room : left;
    window->at = gp_python_at(way->objects, from, window->room, bytes);
    if (!window->at)
        return false;
    window->end = window->at + bytes;
    window->next = from + bytes;
    window->left = left - bytes;
    return bytes > 0;
}

static uint32_t python_line_310(const struct gp_python_way *way, struct gp_python_window *window, int64_t line,
                                int64_t offset)
{
    int64_t end = 0;
    while (python_window_more(way, window) && window->end - window->at >= 2) {
        int8_t change = (int8_t)window->at[1];
        end += window->at[0];
        if (change != -128)
            line += change;
        if (offset < end)
            return change == -128 || line < 0 ? 0 : (uint32_t)line;
        window->at += 2;
    }
    return 0;
}

/* A number in groups of six bits, lowest first, its sign in bit 0. */
static int64_t python_change(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 36; shift += 6) {
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* ---- eight bytes at a time --------------------------------------------------------------------------------------- */

#define GP_BYTES(_byte) ((uint64_t)(_byte)*0x0101010101010101ull)

/* Bit 7 of each byte that is at least `least`; bytes are below 16. */
static inline uint64_t bytes_from(uint64_t bytes, unsigned least)
{
    return (bytes + GP_BYTES(128 - least)) & GP_BYTES(128);
}

/* All bits of the bytes whose bit 7 is set. */
static inline uint64_t bytes_mask(uint64_t flags)
{
    return (flags >> 7) * 255;
}

static inline unsigned bytes_sum(uint64_t bytes)
{
    return (unsigned)(bytes * GP_BYTES(1) >> 56);
}

/* Processes the heads among eight bytes at once; the bytes may start and end inside an entry.
 * false, and nothing changed: one of the entries changes the line by a number that follows it, or
 * covers the instruction. A function of some hundred instructions has as many entries, and decoding
 * them one by one is a chain of dependent steps. */
static inline bool python_eight(const uint8_t *at, int64_t *end, int64_t *line, int64_t offset)
{
    uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    uint64_t heads = word & GP_BYTES(128), is_head = bytes_mask(heads);
    uint64_t forms = word >> 3 & GP_BYTES(15) & is_head;
    uint64_t columns = bytes_from(forms, GP_FORM_COLUMNS), none = bytes_from(forms, GP_FORM_NONE);
    int64_t stop = *end + 2 * (int64_t)bytes_sum((word & GP_BYTES(7) & is_head) + (heads >> 7));
    if ((columns & ~none) || offset < stop)
        return false;
    uint64_t moved = bytes_mask(bytes_from(forms, GP_FORM_SAME) & ~columns);
    *line += bytes_sum((forms & moved) - (GP_BYTES(GP_FORM_SAME) & moved));
    *end = stop;
    return true;
}

static uint32_t python_line_311(const struct gp_python_way *way, struct gp_python_window *window, int64_t line,
                                int64_t offset)
{
    int64_t end = 0;
    while (python_window_more(way, window)) {
        const uint8_t *at = window->at;
        /* Skip to the next head: python_eight may have ended inside an entry. */
        if (!(*at & 128)) {
            window->at++;
            continue;
        }
        while (window->end - at >= 8 && python_eight(at, &end, &line, offset))
            at += 8;
        window->at = at;
        if (at >= window->end || !(*at & 128))
            continue;
        unsigned form = *at >> 3 & 15;
        if (form == GP_FORM_COLUMNS || form == GP_FORM_LONG) {
            /* Its number may lie behind the window. */
            if (!python_window_more(way, window))
                return 0;
            at = window->at;
            line += python_change(at + 1, window->end);
        } else if (form >= GP_FORM_SAME && form < GP_FORM_COLUMNS) {
            line += form - GP_FORM_SAME;
        }
        end += 2 * ((*at & 7) + 1);
        if (offset < end)
            return form == GP_FORM_NONE || line < 0 || line > UINT32_MAX ? 0 : (uint32_t)line;
        window->at = at + 1;
    }
    return 0;
}

/* ---- cache of lines ---------------------------------------------------------------------------------------------- */

/* From 3.12 on a code object has a version number unique in its interpreter, so an answer can be
 * kept. An entry is two words, written and read without order: the first is the key mixed with the
 * second, so that a pair written by two threads matches nothing. */
#define GP_PYTHON_LINES 4096u

static struct gp_python_line {
    uint64_t mixed, value; /* value: version << 32 | line */
} x_lines[GP_PYTHON_LINES];

/* Code objects are aligned to 16 bytes; 44 bits of address and 20 of instruction form the key. 0:
 * the line cannot be kept. */
static inline uint64_t python_line_key(uint64_t code, int64_t offset)
{
    return (code & 15) || offset < 0 || offset >> 21 ? 0 : code >> 4 << 20 | (uint64_t)offset >> 1;
}

static inline struct gp_python_line *python_line_place(uint64_t key)
{
    return &x_lines[key * 0x9e3779b97f4a7c15ull >> 52];
}

bool gp_python_line_kept(uint64_t code, uint32_t version, int64_t offset, uint32_t *line)
{
    uint64_t key = python_line_key(code, offset);
    const struct gp_python_line *place = python_line_place(key);
    uint64_t value = __atomic_load_n(&place->value, __ATOMIC_RELAXED),
             mixed = __atomic_load_n(&place->mixed, __ATOMIC_RELAXED);
    *line = (uint32_t)value;
    return key && (mixed ^ value) == key && value >> 32 == version;
}

void gp_python_line_keep(uint64_t code, uint32_t version, int64_t offset, uint32_t line)
{
    uint64_t key = python_line_key(code, offset), value = (uint64_t)version << 32 | line;
    struct gp_python_line *place = python_line_place(key);
    if (!key)
        return;
    __atomic_store_n(&place->mixed, key ^ value, __ATOMIC_RELAXED);
    __atomic_store_n(&place->value, value, __ATOMIC_RELAXED);
}

static uint32_t python_decode(const struct gp_python_way *way, struct gp_python_window *window, uint32_t first,
                              int64_t offset)
{
    return way->python->version < GP_PYTHON_311 ? python_line_310(way, window, first, offset)
                                                : python_line_311(way, window, first, offset);
}

uint32_t gp_python_line(const struct gp_python_way *way, uint64_t table, uint32_t first, int64_t offset)
{
    const struct gp_python_layout *at = &way->python->at;
    /* Before the first instruction the function is on its first line. */
    if (offset < 0)
        return first;
    char room[128];
    const char *head = gp_python_at(way->objects, table, room, at->bytes_data);
    if (!head)
        return 0;
    uint64_t size = gp_python_word(head, at->bytes_size);
    if (size > INT32_MAX)
        return 0;
    struct gp_python_window window;
    window.at = window.end = window.room;
    window.next = table + at->bytes_data;
    window.left = size;
    if (way->objects || at->code_version != GP_PYTHON_NONE)
        return python_decode(way, &window, first, offset);
    struct gp_python_lines lines = {
        .table = table, .bytes = (const uint8_t *)head + at->bytes_data, .size = (uint32_t)size, .first = first};
    uint32_t line;
    if (gp_python_table_kept(&lines, offset, &line))
        return line;
    line = python_decode(way, &window, first, offset);
    /* The line depends on the bytes up to the last entry that was decoded, and on none behind
     * it. */
    uint64_t used = (uint64_t)(window.at - lines.bytes) + GP_ENTRY_MAX;
    gp_python_table_keep(&lines, offset, used < size ? used : size, line);
    return line;
}
