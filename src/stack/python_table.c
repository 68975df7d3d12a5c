/* SPDX-License-Identifier: MIT
 *
 * python_table.c: keeps lines of Python 3.10 and 3.11, whose code objects have no version number
 * that could serve as a key.
 *
 * A line depends on the first line, the instruction, and the table's bytes up to the entry that
 * covers the instruction. So the answer is kept with a copy of those bytes, and is valid for any
 * table that starts with the same bytes. They are compared at each lookup, at tens of bytes per
 * nanosecond, where decoding takes a nanosecond for two bytes. The comparison also detects an
 * address that was reused for another table.
 */
#include "stack/python.h"
#include <string.h>

/* A function of 200 lines has a table of some 3 KB in 3.11. Slots use memory only when they are
 * filled, 3 MiB in all. A program allocates in some hundred functions; when two share a slot, the
 * cost is decoding. */
#define GP_TABLE_SLOTS 512u
#define GP_TABLE_BYTES 5632u
#define GP_TABLE_LINES 32u

/* Shorter tables are decoded as fast as they would be found here. */
#define GP_TABLE_LEAST 24u

struct gp_python_table {
    uint32_t turn; /* odd while a thread writes */
    uint32_t first, size, copied;
    uint64_t table;
    struct {
        uint32_t offset, line; /* offset + 1; 0: empty */
        uint32_t used;         /* bytes of the table that the line depends on */
    } line[GP_TABLE_LINES];
    uint8_t bytes[GP_TABLE_BYTES];
};

static struct gp_python_table x_tables[GP_TABLE_SLOTS];

static struct gp_python_table *table_slot(uint64_t table)
{
    return &x_tables[(table >> 4) * 0x9e3779b97f4a7c15ull >> 55];
}

static unsigned table_place(uint32_t offset)
{
    return offset * 0x9e3779b1u >> 27;
}

_Static_assert(GP_TABLE_SLOTS == 1u << 9 && GP_TABLE_LINES == 1u << 5, "the shifts leave 9 and 5 bits");

/* The slot may change while it is read here; the caller then discards the result, because the turn
 * has changed. */
static __attribute__((no_sanitize("thread"))) bool
table_look(const struct gp_python_table *slot, const struct gp_python_lines *lines, uint32_t offset, uint32_t *line)
{
    unsigned place = table_place(offset);
    uint32_t used = slot->line[place].used;
    *line = slot->line[place].line;
    return slot->line[place].offset == offset && slot->table == lines->table && slot->first == lines->first &&
           slot->size == lines->size && used <= lines->size && used <= GP_TABLE_BYTES &&
           memcmp(slot->bytes, lines->bytes, used) == 0;
}

bool gp_python_table_kept(const struct gp_python_lines *lines, int64_t offset, uint32_t *line)
{
    const struct gp_python_table *slot = table_slot(lines->table);
    if (lines->size < GP_TABLE_LEAST || offset >= UINT32_MAX)
        return false;
    /* [table.A1] acquire: the slot; pairs with [table.R1]. */
    uint32_t turn = __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE);
    if (turn & 1 || !table_look(slot, lines, (uint32_t)offset + 1, line))
        return false;
    /* [table.A2] orders the reads before the second load of the turn; pairs with [table.R2]. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&slot->turn, __ATOMIC_RELAXED) == turn;
}

static __attribute__((no_sanitize("thread"))) void table_write(struct gp_python_table *slot,
                                                               const struct gp_python_lines *lines, uint32_t offset,
                                                               uint32_t used, uint32_t line)
{
    unsigned place = table_place(offset);
    if (slot->table != lines->table || slot->first != lines->first || slot->size != lines->size ||
        memcmp(slot->bytes, lines->bytes, slot->copied) != 0) {
        memset(slot->line, 0, sizeof slot->line);
        slot->table = lines->table;
        slot->first = lines->first;
        slot->size = lines->size;
        slot->copied = 0;
    }
    if (used > slot->copied) {
        memcpy(slot->bytes + slot->copied, lines->bytes + slot->copied, used - slot->copied);
        slot->copied = used;
    }
    slot->line[place].offset = offset;
    slot->line[place].line = line;
    slot->line[place].used = used;
}

void gp_python_table_keep(const struct gp_python_lines *lines, int64_t offset, uint64_t used, uint32_t line)
{
    struct gp_python_table *slot = table_slot(lines->table);
    uint32_t turn = __atomic_load_n(&slot->turn, __ATOMIC_RELAXED);
    if (lines->size < GP_TABLE_LEAST || offset >= UINT32_MAX || used > GP_TABLE_BYTES || used > lines->size)
        return;
    /* One thread writes; another that arrives meanwhile does not keep its line. Acquire: the
     * earlier writer's stores, [table.R1]. */
    if (turn & 1 ||
        !__atomic_compare_exchange_n(&slot->turn, &turn, turn + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    /* [table.R2] orders the odd turn before the stores that follow; pairs with [table.A2]. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    table_write(slot, lines, (uint32_t)offset + 1, (uint32_t)used, line);
    /* [table.R1] release: the slot; pairs with [table.A1]. */
    __atomic_store_n(&slot->turn, turn + 2, __ATOMIC_RELEASE);
}
