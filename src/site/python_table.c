/* SPDX-License-Identifier: MIT
 *
 * python_table.c: lines of Python 3.10 and 3.11, whose code objects have no number by which an answer could be kept.
 *
 * A line is a function of the first line, the instruction, and the table's bytes as far as the entry that covers it. So
 * the answer is kept with a copy of those bytes, and holds for whichever table begins with the same ones: that is
 * compared each time, at tens of bytes a nanosecond, where decoding takes one for two.  An address that has become
 * another table's is found out by its contents.
 */
#include "base/compiler.h"
#include "site/python.h"
#include <string.h>

/* A function of 200 lines has a table of some 3 KB in 3.11.  Slots are touched as they fill, 3 MiB in all; a program
 * asks for memory under some hundred functions, and where two share a slot, decoding is what it costs. */
#define GP_TABLE_SLOTS 512u
#define GP_TABLE_BYTES 5632u
#define GP_TABLE_LINES 32u

/* Shorter ones are decoded as fast as they are found. */
#define GP_TABLE_LEAST 24u

struct gp_python_table {
    uint32_t turn; /* odd: somebody writes */
    uint32_t first, size, copied;
    uint64_t table;
    struct {
        uint32_t offset, line; /* offset: plus 1; 0: empty */
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

_Static_assert(GP_TABLE_SLOTS == 1u << 9 && GP_TABLE_LINES == 1u << 5, "what the shifts leave");

/* Between two looks at the turn, what is read may be in the middle of a change, and is thrown away then. */
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
    /* [table.A2] the reads before the second look at the turn; pairs with [table.R2]. */
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
    /* One writes; who comes meanwhile goes without.  Acquire: what the writer before wrote, [table.R1]. */
    if (turn & 1 ||
        !__atomic_compare_exchange_n(&slot->turn, &turn, turn + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    /* [table.R2] the odd turn before what follows; pairs with [table.A2]. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    table_write(slot, lines, (uint32_t)offset + 1, (uint32_t)used, line);
    /* [table.R1] release: the slot; pairs with [table.A1]. */
    __atomic_store_n(&slot->turn, turn + 2, __ATOMIC_RELEASE);
}
