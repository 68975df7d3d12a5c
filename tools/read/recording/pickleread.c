/* SPDX-License-Identifier: MIT
 *
 * pickleread.c: the pickle machine: a stack, marks, a memo, and one function per kind of opcode; see
 * pickleread.h.  Python's pickletools documents the opcodes; the writers of PyTorch and CPython use
 * two dozen of them.
 *
 * Bounds: each byte is looked at once and each value is moved a constant number of times, because a
 * mark knows the mark below it.  All arrays together take at most GP_PICKLE_MEMORY.
 */
#include <base/compiler.h>
#include <errno.h>
#include <read/recording/pickleread.h>
#include <stdlib.h>
#include <string.h>

/* ==== values ====================================================================================================== */
/* The values that the readers of pickles and of JSON make, and the memory that they may take. */

#define GP_PICKLE_ITEMS (1u << 26)

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void gp_pickle_begin(struct gp_pickle_file *file, size_t bytes)
{
    *file = (struct gp_pickle_file){.left = GP_PICKLE_MEMORY(bytes)};
}

int gp_pickle_take(struct gp_pickle_file *file, uint64_t bytes)
{
    if (bytes > file->left) {
        file->why = "it needs more memory than a snapshot of its size ever does";
        return -EINVAL;
    }
    file->left -= bytes;
    return 0;
}

int gp_pickle_container(struct gp_pickle_file *file, enum gp_pickle_type type, struct gp_pickle *value)
{
    int rc = gp_pickle_take(file, sizeof(*value->items));
    struct gp_pickle_items *items = rc ? NULL : calloc(1, sizeof(*items));
    if (!items)
        return rc ? rc : -ENOMEM;
    items->next = file->all;
    file->all = items;
    *value = (struct gp_pickle){.type = (uint8_t)type, .items = items};
    return 0;
}

int gp_pickle_append(struct gp_pickle_file *file, const struct gp_pickle *container, const struct gp_pickle *values,
                     uint32_t count)
{
    struct gp_pickle_items *items = container->items;
    if (count > GP_PICKLE_ITEMS - items->count)
        return -E2BIG;
    if (items->count + count > items->room) {
        /* Most containers get all they ever have at once: a million dictionaries with no room to spare. */
        uint32_t room = items->room ? items->room : count;
        while (room < items->count + count)
            room *= 2;
        int rc = gp_pickle_take(file, (uint64_t)(room - items->room) * sizeof(*items->at));
        struct gp_pickle *bigger = rc ? NULL : realloc(items->at, room * sizeof(*bigger));
        if (!bigger)
            return rc ? rc : -ENOMEM;
        items->at = bigger;
        items->room = room;
    }
    if (count)
        memcpy(items->at + items->count, values, count * sizeof(values[0]));
    items->count += count;
    return 0;
}

void gp_pickle_free(struct gp_pickle_file *file)
{
    while (file->all) {
        struct gp_pickle_items *next = file->all->next;
        free(file->all->at);
        free(file->all);
        file->all = next;
    }
    free(file->texts);
    file->texts = NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool gp_pickle_is(const struct gp_pickle *value, const char *text)
{
    return value && value->type == GP_PICKLE_TEXT && value->length == strlen(text) &&
           memcmp(value->text, text, value->length) == 0;
}

const struct gp_pickle *gp_pickle_get(const struct gp_pickle *dict, const char *key)
{
    /* Dictionaries of a snapshot have a dozen keys.  A hostile one may be large and appear in every
     * place of a list. */
    uint32_t count = dict && dict->type == GP_PICKLE_DICT ? dict->items->count : 0;
    for (uint32_t i = 0; i + 1 < count && i < 2 * 256; i += 2) {
        if (gp_pickle_is(&dict->items->at[i], key))
            return &dict->items->at[i + 1];
    }
    return NULL;
}

int64_t gp_pickle_number(const struct gp_pickle *value, int64_t otherwise)
{
    return value && (value->type == GP_PICKLE_INT || value->type == GP_PICKLE_BOOL) ? value->number : otherwise;
}

uint32_t gp_pickle_count(const struct gp_pickle *list)
{
    return list && list->type == GP_PICKLE_LIST ? list->items->count : 0;
}

const struct gp_pickle *gp_pickle_at(const struct gp_pickle *list, uint32_t index)
{
    return index < gp_pickle_count(list) ? &list->items->at[index] : NULL;
}

/* ==== the machine ================================================================================================= */

/* A snapshot of 1 GB has about 60 M values; the deepest nesting is a frame in an entry in a list. */
#define GP_PICKLE_STACK (1u << 26)
#define GP_PICKLE_MEMO  (1u << 26)

struct gp_machine {
    const uint8_t *at, *begin, *end;
    struct gp_pickle_file *file;
    struct gp_pickle *stack, *memo;
    uint32_t depth, stack_room, memo_room, memo_next;
    uint32_t marked; /* values up to the topmost mark; 0: no mark.  A mark's number is this value below it */
    bool done;
};

static int machine_refuse(struct gp_machine *m, const char *why)
{
    m->file->why = why;
    return -EINVAL;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int values_room(struct gp_machine *m, struct gp_pickle **values, uint32_t *room, uint32_t wanted, uint32_t limit)
{
    if (wanted <= *room)
        return 0;
    if (wanted > limit)
        return -E2BIG;
    uint32_t more = *room ? *room : 8;
    while (more < wanted)
        more *= 2;
    int rc = gp_pickle_take(m->file, (uint64_t)(more - *room) * sizeof(**values));
    if (rc)
        return rc;
    struct gp_pickle *bigger = realloc(*values, more * sizeof(bigger[0]));
    if (!bigger)
        return -ENOMEM;
    memset(bigger + *room, 0, (more - *room) * sizeof(bigger[0]));
    *values = bigger;
    *room = more;
    return 0;
}

static int machine_push(struct gp_machine *m, struct gp_pickle value)
{
    int rc = values_room(m, &m->stack, &m->stack_room, m->depth + 1, GP_PICKLE_STACK);
    if (!rc)
        m->stack[m->depth++] = value;
    return rc;
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

static const uint8_t *machine_bytes(struct gp_machine *m, uint64_t count)
{
    const uint8_t *at = m->at;
    if (count > (uint64_t)(m->end - at))
        return NULL;
    m->at += count;
    return at;
}

/* Little-endian, unsigned. */
static bool machine_word(struct gp_machine *m, unsigned bytes, uint64_t *value)
{
    const uint8_t *at = machine_bytes(m, bytes);
    *value = 0;
    for (unsigned i = 0; at && i < bytes; i++)
        *value |= (uint64_t)at[i] << 8 * i;
    return at != NULL;
}

static int machine_short(struct gp_machine *m)
{
    return machine_refuse(m, "it ends in the middle of a value");
}

static int machine_number(struct gp_machine *m, unsigned bytes, bool is_signed)
{
    uint64_t value;
    if (!machine_word(m, bytes, &value))
        return machine_short(m);
    if (is_signed && bytes > 0 && bytes < 8 && value >> (8 * bytes - 1))
        value |= UINT64_MAX << 8 * bytes;
    return machine_push(m, (struct gp_pickle){.type = GP_PICKLE_INT, .number = (int64_t)value});
}

static int machine_long(struct gp_machine *m, unsigned length_bytes)
{
    uint64_t length;
    if (!machine_word(m, length_bytes, &length))
        return machine_short(m);
    /* Nine bytes: an address above 2^63 with a zero byte for its sign. */
    if (length == 9 && m->end - m->at >= 9 && m->at[8] == 0) {
        int rc = machine_number(m, 8, false);
        m->at += rc == 0;
        return rc;
    }
    return length > 8 ? machine_refuse(m, "an integer of more than 8 bytes") : machine_number(m, length, true);
}

static int machine_text(struct gp_machine *m, unsigned length_bytes)
{
    uint64_t length;
    const uint8_t *at = machine_word(m, length_bytes, &length) ? machine_bytes(m, length) : NULL;
    if (!at)
        return machine_short(m);
    if (length > UINT32_MAX)
        return -E2BIG;
    return machine_push(
        m, (struct gp_pickle){.type = GP_PICKLE_TEXT, .length = (uint32_t)length, .text = (const char *)at});
}

/* Protocol 0's decimal line, which old writers use inside protocol 2 files. */
static int machine_decimal(struct gp_machine *m)
{
    char digits[24];
    const uint8_t *stop = memchr(m->at, '\n', (size_t)(m->end - m->at));
    size_t length = stop ? (size_t)(stop - m->at) : sizeof(digits);
    if (length == 0 || length >= sizeof(digits))
        return machine_refuse(m, "not a number");
    memcpy(digits, m->at, length);
    digits[length] = '\0';
    m->at = stop + 1;
    return machine_push(m, (struct gp_pickle){.type = GP_PICKLE_INT, .number = strtoll(digits, NULL, 10)});
}

/* ---- stack ------------------------------------------------------------------------------------------------------- */

/* Index of the first value above the topmost mark; -1 none. */
static int64_t machine_mark(const struct gp_machine *m)
{
    return m->marked ? (int64_t)m->marked : -1;
}

/* Whether there are so many values, and no mark among them. */
static bool machine_plain(const struct gp_machine *m, uint32_t count)
{
    return m->depth >= count && m->depth - count >= m->marked;
}

/* Drops the values from this one on, which is at most one mark. */
static void machine_drop(struct gp_machine *m, uint32_t depth)
{
    if (m->marked > depth)
        m->marked = (uint32_t)m->stack[m->marked - 1].number;
    m->depth = depth;
}

static int machine_push_mark(struct gp_machine *m)
{
    int rc = machine_push(m, (struct gp_pickle){.type = GP_PICKLE_MARK, .number = m->marked});
    if (!rc)
        m->marked = m->depth;
    return rc;
}

/* Appends the topmost `count` values to the container below them (and below the mark, if one lies
 * between). */
static int machine_append(struct gp_machine *m, enum gp_pickle_type type, uint32_t count, uint32_t marks)
{
    if (m->depth < count + marks + 1 || !machine_plain(m, count))
        return machine_refuse(m, "values outside a container");
    struct gp_pickle *container = &m->stack[m->depth - count - marks - 1];
    if (container->type != type || (type == GP_PICKLE_DICT && count % 2))
        return machine_refuse(m, "a container of another kind");
    int rc = gp_pickle_append(m->file, container, &m->stack[m->depth - count], count);
    machine_drop(m, m->depth - count - marks);
    return rc;
}

static int machine_append_marked(struct gp_machine *m, enum gp_pickle_type type)
{
    int64_t first = machine_mark(m);
    return first < 0 ? machine_refuse(m, "no mark") : machine_append(m, type, m->depth - (uint32_t)first, 1);
}

/* Makes a container of the topmost `count` values and drops `marks` marks below them. */
static int machine_make(struct gp_machine *m, enum gp_pickle_type type, uint32_t count, uint32_t marks)
{
    struct gp_pickle value;
    if (m->depth < count + marks || !machine_plain(m, count) || (type == GP_PICKLE_DICT && count % 2))
        return machine_refuse(m, "too few values for a container");
    int rc = gp_pickle_container(m->file, type, &value);
    if (!rc && count) /* an empty stack may have no memory */
        rc = gp_pickle_append(m->file, &value, &m->stack[m->depth - count], count);
    if (rc)
        return rc;
    machine_drop(m, m->depth - count - marks);
    return machine_push(m, value);
}

static int machine_make_marked(struct gp_machine *m, enum gp_pickle_type type)
{
    int64_t first = machine_mark(m);
    return first < 0 ? machine_refuse(m, "no mark") : machine_make(m, type, m->depth - (uint32_t)first, 1);
}

static int machine_put(struct gp_machine *m, uint64_t index)
{
    if (!machine_plain(m, 1))
        return machine_refuse(m, "no value to remember");
    /* Writers number their memo in order, one number for each value that they wrote. */
    if (index > (uint64_t)(m->at - m->begin) + 65536)
        return machine_refuse(m, "a memo number out of order");
    int rc = values_room(m, &m->memo, &m->memo_room, (uint32_t)index + 1, GP_PICKLE_MEMO);
    if (rc)
        return rc;
    m->memo[index] = m->stack[m->depth - 1];
    if (index >= m->memo_next)
        m->memo_next = (uint32_t)index + 1;
    return 0;
}

static int machine_memo(struct gp_machine *m, unsigned bytes, bool put)
{
    uint64_t index;
    if (!machine_word(m, bytes, &index))
        return machine_short(m);
    if (put)
        return machine_put(m, index);
    return index < m->memo_next ? machine_push(m, m->memo[index]) : machine_refuse(m, "an empty memo");
}

static int machine_pop(struct gp_machine *m, bool to_mark)
{
    int64_t first = machine_mark(m);
    if (m->depth == 0 || (to_mark && first < 0))
        return machine_refuse(m, "no value to drop");
    machine_drop(m, to_mark ? (uint32_t)first - 1 : m->depth - 1);
    return 0;
}

/* ---- opcodes ----------------------------------------------------------------------------------------------------- */

static int machine_constant(struct gp_machine *m, enum gp_pickle_type type, int64_t number)
{
    return machine_push(m, (struct gp_pickle){.type = (uint8_t)type, .number = number});
}

static int machine_protocol(struct gp_machine *m)
{
    uint64_t version;
    if (!machine_word(m, 1, &version))
        return machine_short(m);
    return version >= 2 && version <= 5 ? 0 : machine_refuse(m, "a protocol other than 2 to 5");
}

static int machine_stop(struct gp_machine *m)
{
    if (m->depth != 1 || !machine_plain(m, 1))
        return machine_refuse(m, "it stops with no value or with several");
    m->file->root = m->stack[0];
    m->done = true;
    return 0;
}

static int machine_copy_top(struct gp_machine *m)
{
    return machine_plain(m, 1) ? machine_push(m, m->stack[m->depth - 1]) : machine_refuse(m, "no value to copy");
}

static int machine_float(struct gp_machine *m)
{
    const uint8_t *at = machine_bytes(m, 8);
    uint64_t bits = 0;
    if (!at)
        return machine_short(m);
    for (unsigned i = 0; i < 8; i++) /* the highest byte first */
        bits = bits << 8 | at[i];
    struct gp_pickle value = {.type = GP_PICKLE_FLOAT};
    memcpy(&value.real, &bits, sizeof(value.real));
    return machine_push(m, value);
}

static int machine_atom(struct gp_machine *m, uint8_t opcode)
{
    switch (opcode) {
    case 'N':
        return machine_constant(m, GP_PICKLE_NONE, 0);
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
        return machine_constant(m, GP_PICKLE_BOOL, opcode == 0x88);
    case 'J': /* BININT, BININT1, BININT2 */
        return machine_number(m, 4, true);
    case 'K':
        return machine_number(m, 1, false);
    case 'M':
        return machine_number(m, 2, false);
    case 0x8a: /* LONG1, LONG4 */
    case 0x8b:
        return machine_long(m, opcode == 0x8a ? 1 : 4);
    case 'I':
        return machine_decimal(m);
    case 'G':
        return machine_float(m);
    case 'X': /* BINUNICODE, SHORT_BINUNICODE, BINUNICODE8 */
        return machine_text(m, 4);
    case 0x8c:
        return machine_text(m, 1);
    case 0x8d:
        return machine_text(m, 8);
    case 'B': /* BINBYTES, SHORT_BINBYTES, BINSTRING, SHORT_BINSTRING: bytes serve as text */
    case 'T':
        return machine_text(m, 4);
    case 'C':
    case 'U':
        return machine_text(m, 1);
    default:
        return 1;
    }
}

static int machine_structure(struct gp_machine *m, uint8_t opcode)
{
    switch (opcode) {
    case '(':
        return machine_push_mark(m);
    case '}':
        return machine_make(m, GP_PICKLE_DICT, 0, 0);
    case ']': /* EMPTY_LIST, EMPTY_TUPLE */
    case ')':
        return machine_make(m, GP_PICKLE_LIST, 0, 0);
    case 'd':
        return machine_make_marked(m, GP_PICKLE_DICT);
    case 'l':
    case 't':
        return machine_make_marked(m, GP_PICKLE_LIST);
    case 0x85: /* TUPLE1, TUPLE2, TUPLE3 */
    case 0x86:
    case 0x87:
        return machine_make(m, GP_PICKLE_LIST, opcode - 0x84, 0);
    case 'a':
        return machine_append(m, GP_PICKLE_LIST, 1, 0);
    case 'e':
        return machine_append_marked(m, GP_PICKLE_LIST);
    case 's':
        return machine_append(m, GP_PICKLE_DICT, 2, 0);
    case 'u':
        return machine_append_marked(m, GP_PICKLE_DICT);
    case '0':
    case '1':
        return machine_pop(m, opcode == '1');
    case '2':
        return machine_copy_top(m);
    default:
        return 1;
    }
}

static int machine_control(struct gp_machine *m, uint8_t opcode)
{
    switch (opcode) {
    case 0x80:
        return machine_protocol(m);
    case 0x95: /* FRAME: a length that only helps buffering */
        return machine_bytes(m, 8) ? 0 : machine_short(m);
    case '.':
        return machine_stop(m);
    case 'q': /* BINPUT, LONG_BINPUT, MEMOIZE; BINGET, LONG_BINGET */
    case 'r':
        return machine_memo(m, opcode == 'q' ? 1 : 4, true);
    case 0x94:
        return machine_put(m, m->memo_next);
    case 'h':
    case 'j':
        return machine_memo(m, opcode == 'h' ? 1 : 4, false);
    case 'c': /* GLOBAL, STACK_GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1-4, PERSID, BINPERSID */
    case 0x93:
    case 'R':
    case 'b':
    case 'i':
    case 'o':
    case 0x81:
    case 0x92:
    case 0x82:
    case 0x83:
    case 0x84:
    case 'P':
    case 'Q':
        return machine_refuse(m, "it names classes or functions, which a snapshot never does; nothing was executed");
    default:
        return machine_refuse(m, "an opcode that no snapshot has");
    }
}

int gp_pickle_read(struct gp_pickle_file *file, const uint8_t *data, size_t bytes)
{
    struct gp_machine m = {.at = data, .begin = data, .end = data + bytes, .file = file};
    int rc = 0;
    gp_pickle_begin(file, bytes);
    while (!rc && !m.done) {
        file->position = (size_t)(m.at - m.begin);
        if (m.at == m.end) {
            rc = machine_refuse(&m, "it ends without a STOP opcode");
            break;
        }
        uint8_t opcode = *m.at++;
        rc = machine_atom(&m, opcode);
        if (rc == 1)
            rc = machine_structure(&m, opcode);
        if (rc == 1)
            rc = machine_control(&m, opcode);
    }
    free(m.stack);
    free(m.memo);
    return rc;
}
