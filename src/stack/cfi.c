/* SPDX-License-Identifier: MIT
 *
 * cfi.c: reads .eh_frame through the search table of .eh_frame_hdr, in the forms that compilers and
 * linkers emit for x86-64 (LSB Core, "Exception Frames"; DWARF 5, 6.4). A frame described in any
 * other form is reported as one that cannot be followed.
 */
#include "stack/internal.h"
#include <string.h>

enum { REG_BP = 6, REG_SP = 7, REG_RA = 16 }; /* DWARF numbers of x86-64 */

/* Pointer encodings. */
enum { PE_ABS = 0x00, PE_ULEB = 0x01, PE_U2 = 0x02, PE_U4 = 0x03, PE_U8 = 0x04, PE_SLEB = 0x09, PE_S2 = 0x0a };
enum { PE_S4 = 0x0b, PE_S8 = 0x0c, PE_PCREL = 0x10, PE_DATAREL = 0x30, PE_INDIRECT = 0x80, PE_OMIT = 0xff };

/* Compilers nest remember_state once; hand-written assembly has been seen with two levels. */
#define STATES 8
/* The longest expression in use (a PLT entry's) has 9 operations and a stack of 3. */
#define EXPRESSION_STEPS 32
#define EXPRESSION_DEPTH 8
/* Offsets beyond this are damage: no stack is that deep. */
#define OFFSET_LIMIT (1 << 30)

struct reader { /* a failed read sets bad and gives 0 */
    const uint8_t *at, *end;
    bool bad;
};

static uint64_t read_fixed(struct reader *r, unsigned bytes)
{
    uint64_t value = 0;
    if (r->bad || (size_t)(r->end - r->at) < bytes) {
        r->bad = true;
        return 0;
    }
    memcpy(&value, r->at, bytes);
    r->at += bytes;
    return value;
}

static uint8_t read_byte(struct reader *r)
{
    return (uint8_t)read_fixed(r, 1);
}

static uint64_t read_leb(struct reader *r, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {
        byte = read_byte(r);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        r->bad |= shift > 70;
    } while (byte & 0x80 && !r->bad);
    if (is_signed && byte & 0x40 && shift < 64)
        value |= ~0ull << shift;
    return value;
}

static uint64_t read_uleb(struct reader *r)
{
    return read_leb(r, false);
}

static int64_t read_sleb(struct reader *r)
{
    return (int64_t)read_leb(r, true);
}

static void read_skip(struct reader *r, uint64_t bytes)
{
    if (r->bad || bytes > (uint64_t)(r->end - r->at))
        r->bad = true;
    else
        r->at += bytes;
}

/* header: the base of data-relative pointers. */
static uint64_t read_pointer(struct reader *r, uint8_t encoding, const uint8_t *header)
{
    uint64_t base = 0, value;
    switch (encoding & 0x70) {
    case PE_PCREL:
        base = (uint64_t)(uintptr_t)r->at;
        break;
    case PE_DATAREL:
        base = (uint64_t)(uintptr_t)header;
        break;
    case 0:
        break;
    default:
        r->bad = true;
    }
    switch (encoding & 0x0f) {
    case PE_ABS:
    case PE_U8:
    case PE_S8:
        value = read_fixed(r, 8);
        break;
    case PE_ULEB:
        value = read_uleb(r);
        break;
    case PE_SLEB:
        value = (uint64_t)read_sleb(r);
        break;
    case PE_U2:
        value = read_fixed(r, 2);
        break;
    case PE_S2:
        value = (uint64_t)(int16_t)read_fixed(r, 2);
        break;
    case PE_U4:
        value = read_fixed(r, 4);
        break;
    case PE_S4:
        value = (uint64_t)(int32_t)read_fixed(r, 4);
        break;
    default:
        value = 0;
        r->bad = true;
    }
    return base + value;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

struct term { /* a constant, base + offset, or *(base + offset) + add */
    uint8_t base, deref;
    int64_t offset, add;
};

static bool term_plus(struct term *a, int64_t n)
{
    int64_t *to = a->deref ? &a->add : &a->offset;
    return !__builtin_add_overflow(*to, n, to);
}

static bool term_binary(uint8_t op, struct term *a, const struct term *b)
{
    if (op == 0x22) { /* plus */
        if (a->base && b->base)
            return false;
        struct term sum = a->base ? *a : *b;
        int64_t n = a->base ? b->offset : a->offset;
        *a = sum;
        return term_plus(a, n);
    }
    if (b->base || b->offset == INT64_MIN)
        return false;
    if (op == 0x1c) /* minus */
        return term_plus(a, -b->offset);
    if (a->base)
        return false;
    switch (op) {
    case 0x1a: /* and */
        a->offset &= b->offset;
        return true;
    case 0x24: /* shl */
        a->offset = b->offset >= 0 && b->offset < 64 ? (int64_t)((uint64_t)a->offset << b->offset) : 0;
        return true;
    case 0x2a: /* ge */
        a->offset = a->offset >= b->offset;
        return true;
    default:
        return false;
    }
}

static bool term_register(struct term *term, unsigned reg, int64_t offset, uint64_t pc)
{
    *term = (struct term){.offset = offset};
    if (reg == REG_RA) {
        term->offset = (int64_t)(pc + (uint64_t)offset);
        return true;
    }
    term->base = reg == REG_BP ? GP_CFI_BP : GP_CFI_SP;
    return reg == REG_BP || reg == REG_SP;
}

/* Pushes one value. false: op is not a push. */
static bool term_push(struct reader *r, uint8_t op, uint64_t pc, struct term *term)
{
    *term = (struct term){0};
    if (op >= 0x30 && op <= 0x4f) /* lit */
        term->offset = op - 0x30;
    else if (op >= 0x70 && op <= 0x8f) /* breg */
        return term_register(term, op - 0x70u, read_sleb(r), pc);
    else if (op == 0x08) /* const1u, 1s, 2u, 2s */
        term->offset = read_byte(r);
    else if (op == 0x09)
        term->offset = (int8_t)read_byte(r);
    else if (op == 0x0a)
        term->offset = (int64_t)read_fixed(r, 2);
    else if (op == 0x0b)
        term->offset = (int16_t)read_fixed(r, 2);
    else
        return false;
    return true;
}

/* Evaluates an expression that is linear in sp or bp and reads memory at most once. */
static bool evaluate(struct reader r, uint64_t pc, struct term *result)
{
    struct term stack[EXPRESSION_DEPTH];
    unsigned depth = 0;
    for (unsigned step = 0; r.at < r.end && !r.bad; step++) {
        uint8_t op = read_byte(&r);
        struct term *top = depth ? &stack[depth - 1] : NULL, next;
        if (step == EXPRESSION_STEPS)
            return false;
        if (op == 0x06) { /* deref */
            if (!top || !top->base || top->deref)
                return false;
            top->deref = 1;
        } else if (op == 0x23) { /* plus_uconst */
            uint64_t n = read_uleb(&r);
            if (!top || n > OFFSET_LIMIT || !term_plus(top, (int64_t)n))
                return false;
        } else if (term_push(&r, op, pc, &next)) {
            if (depth == EXPRESSION_DEPTH)
                return false;
            stack[depth++] = next;
        } else {
            if (depth < 2 || !term_binary(op, &stack[depth - 2], &stack[depth - 1]))
                return false;
            depth--;
        }
    }
    if (r.bad || depth != 1 || !stack[0].base)
        return false;
    *result = stack[0];
    return result->offset > -OFFSET_LIMIT && result->offset < OFFSET_LIMIT && result->add > -OFFSET_LIMIT &&
           result->add < OFFSET_LIMIT;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct place {
    uint8_t where;  /* enum gp_cfi_place */
    int64_t offset; /* from the CFA; with is_expression the address is computed instead */
    struct reader expression;
    bool is_expression, is_undefined;
};

struct state {
    uint64_t cfa_register;
    int64_t cfa_offset;
    struct reader cfa_expression;
    bool cfa_is_expression;
    struct place bp, ra;
};

struct frame_info {
    struct reader cie, fde; /* the instructions */
    uint64_t begin, code_align;
    int64_t data_align;
    uint8_t encoding;
    bool is_signal, sized; /* sized: each description has augmentation data */
};

/* Opens a length-prefixed entry: *r starts after the length and ends with the entry. */
static bool entry_open(const struct gp_cfi_table *table, const uint8_t *at, struct reader *r)
{
    if (at < table->begin || at >= table->end)
        return false;
    *r = (struct reader){at, table->end, false};
    uint64_t length = read_fixed(r, 4);
    if (r->bad || length == 0 || length == 0xffffffff || length > (uint64_t)(r->end - r->at))
        return false;
    r->end = r->at + length;
    return true;
}

static bool cie_augmentation(struct reader *r, const char *text, size_t n, const uint8_t *header,
                             struct frame_info *info)
{
    uint64_t length = read_uleb(r);
    struct reader data = *r;
    read_skip(r, length);
    if (r->bad)
        return false;
    data.end = r->at;
    for (size_t i = 1; i < n && !data.bad; i++) {
        if (text[i] == 'R')
            info->encoding = read_byte(&data);
        else if (text[i] == 'P')
            read_pointer(&data, read_byte(&data) & 0x7f, header);
        else if (text[i] == 'L')
            read_byte(&data);
        else if (text[i] == 'S')
            info->is_signal = true;
        else
            return false;
    }
    return !data.bad;
}

static bool cie_read(const struct gp_cfi_table *table, const uint8_t *at, struct frame_info *info)
{
    struct reader r;
    if (!entry_open(table, at, &r) || read_fixed(&r, 4) != 0)
        return false;
    uint8_t version = read_byte(&r);
    const char *text = (const char *)r.at;
    size_t n = strnlen(text, (size_t)(r.end - r.at));
    read_skip(&r, n + 1);
    info->code_align = read_uleb(&r);
    info->data_align = read_sleb(&r);
    uint64_t ra = version == 1 ? read_byte(&r) : read_uleb(&r);
    if (r.bad || (version != 1 && version != 3) || ra != REG_RA || info->code_align == 0 || info->code_align > 64 ||
        info->data_align < -64 || info->data_align > 64)
        return false;
    if (n > 0) {
        info->sized = true;
        if (text[0] != 'z' || !cie_augmentation(&r, text, n, table->header, info))
            return false;
    }
    info->cie = r;
    return true;
}

/* Reads the description at `at`. false: it does not cover `target`. */
static bool fde_read(const struct gp_cfi_table *table, const uint8_t *at, uint64_t target, struct frame_info *info)
{
    struct reader r;
    *info = (struct frame_info){.encoding = PE_ABS};
    if (!entry_open(table, at, &r))
        return false;
    const uint8_t *id_at = r.at;
    uint64_t id = read_fixed(&r, 4);
    if (r.bad || id == 0 || id > (uint64_t)(id_at - table->begin) || !cie_read(table, id_at - id, info))
        return false;
    if (info->encoding & PE_INDIRECT)
        return false;
    info->begin = read_pointer(&r, info->encoding, table->header);
    uint64_t range = read_pointer(&r, info->encoding & 0x0f, table->header);
    if (target < info->begin || target - info->begin >= range)
        return false;
    if (info->sized)
        read_skip(&r, read_uleb(&r));
    info->fde = r;
    return !r.bad;
}

/* Binary search in the linker's table for the last entry that starts at or before target. */
static const uint8_t *table_search(const struct gp_cfi_table *table, uint64_t target)
{
    struct reader r = {table->header, table->end, table->header < table->begin || table->header >= table->end};
    if (r.bad)
        return NULL;
    uint8_t version = read_byte(&r), pointer = read_byte(&r), count = read_byte(&r), rows = read_byte(&r);
    if (r.bad || version != 1 || rows != (PE_DATAREL | PE_S4) || count == PE_OMIT || pointer == PE_OMIT)
        return NULL;
    read_pointer(&r, pointer, table->header);
    uint64_t n = read_pointer(&r, count, table->header);
    if (r.bad || n == 0 || n > (uint64_t)(r.end - r.at) / 8)
        return NULL;
    uint64_t base = (uint64_t)(uintptr_t)table->header, low = 0, high = n;
    int32_t row[2];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        memcpy(row, r.at + middle * 8, sizeof row);
        if (base + (uint64_t)(int64_t)row[0] <= target)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    memcpy(row, r.at + (low - 1) * 8, sizeof row);
    uint64_t at = base + (uint64_t)(int64_t)row[1];
    if (at < (uint64_t)(uintptr_t)table->begin || at >= (uint64_t)(uintptr_t)table->end)
        return NULL;
    return table->begin + (at - (uint64_t)(uintptr_t)table->begin);
}

/* ---- the program of one description ------------------------------------------------------------------------------ */

static struct place *place_of(struct state *state, uint64_t reg, struct place *other)
{
    return reg == REG_BP ? &state->bp : reg == REG_RA ? &state->ra : other;
}

static struct reader read_block(struct reader *r)
{
    uint64_t length = read_uleb(r);
    struct reader block = *r;
    read_skip(r, length);
    block.bad = r->bad;
    block.end = r->at;
    return block;
}

static int64_t scaled(const struct frame_info *info, int64_t n)
{
    return n > -OFFSET_LIMIT && n < OFFSET_LIMIT ? n * info->data_align : OFFSET_LIMIT;
}

static struct place place_saved(int64_t offset)
{
    return (struct place){.where = GP_CFI_CFA, .offset = offset};
}

/* Runs an instruction that sets the rule of a register. false: op is another instruction. */
static bool run_register(struct reader *r, uint8_t op, const struct frame_info *info, struct state *state,
                         const struct state *initial)
{
    struct place other, lost = {.where = GP_CFI_LOST};
    struct place *place;
    switch (op) {
    case 0x05: /* offset_extended */
        place = place_of(state, read_uleb(r), &other);
        *place = place_saved(scaled(info, (int64_t)(read_uleb(r) & INT64_MAX)));
        return true;
    case 0x11: /* offset_extended_sf */
        place = place_of(state, read_uleb(r), &other);
        *place = place_saved(scaled(info, read_sleb(r)));
        return true;
    case 0x06: { /* restore_extended */
        uint64_t reg = read_uleb(r);
        struct state copy = *initial;
        *place_of(state, reg, &other) = *place_of(&copy, reg, &lost);
        return true;
    }
    case 0x07: /* undefined */
        place = place_of(state, read_uleb(r), &other);
        *place = (struct place){.where = GP_CFI_LOST, .is_undefined = true};
        return true;
    case 0x08: /* same_value */
        place_of(state, read_uleb(r), &other)->where = GP_CFI_SAME;
        return true;
    case 0x09: /* register */
        place = place_of(state, read_uleb(r), &other);
        read_uleb(r);
        *place = lost;
        return true;
    case 0x14: /* val_offset, val_offset_sf, val_expression */
    case 0x15:
        place = place_of(state, read_uleb(r), &other);
        read_uleb(r);
        *place = lost;
        return true;
    case 0x16:
        place = place_of(state, read_uleb(r), &other);
        read_block(r);
        *place = lost;
        return true;
    case 0x10: /* expression */
        place = place_of(state, read_uleb(r), &other);
        *place = (struct place){.is_expression = true};
        place->expression = read_block(r);
        return true;
    default:
        return false;
    }
}

static bool run_cfa(struct reader *r, uint8_t op, const struct frame_info *info, struct state *state)
{
    switch (op) {
    case 0x0c: /* def_cfa */
        state->cfa_register = read_uleb(r);
        state->cfa_offset = (int64_t)(read_uleb(r) & INT64_MAX);
        state->cfa_is_expression = false;
        return true;
    case 0x12: /* def_cfa_sf */
        state->cfa_register = read_uleb(r);
        state->cfa_offset = scaled(info, read_sleb(r));
        state->cfa_is_expression = false;
        return true;
    case 0x0d: /* def_cfa_register */
        state->cfa_register = read_uleb(r);
        return true;
    case 0x0e: /* def_cfa_offset */
        state->cfa_offset = (int64_t)(read_uleb(r) & INT64_MAX);
        return true;
    case 0x13: /* def_cfa_offset_sf */
        state->cfa_offset = scaled(info, read_sleb(r));
        return true;
    case 0x0f: /* def_cfa_expression */
        state->cfa_expression = read_block(r);
        state->cfa_is_expression = true;
        return true;
    default:
        return false;
    }
}

/* Runs an instruction that advances the location. false: op is another instruction. */
static bool run_advance(struct reader *r, uint8_t op, const struct frame_info *info, uint64_t *location)
{
    static const uint8_t widths[] = {1, 2, 4};
    if (op >> 6 == 1)
        *location += (op & 0x3fu) * info->code_align;
    else if (op >= 0x02 && op <= 0x04)
        *location += read_fixed(r, widths[op - 2]) * info->code_align;
    else if (op == 0x01)
        *location = read_pointer(r, info->encoding, NULL);
    else
        return false;
    return true;
}

/* Runs the instructions up to target. initial: the state that the common part (the CIE) left; NULL
 * while that part itself runs. */
static bool run(struct reader r, const struct frame_info *info, uint64_t target, struct state *state,
                const struct state *initial)
{
    struct state saved[STATES], other = {0};
    unsigned depth = 0;
    uint64_t location = info->begin;
    while (r.at < r.end && !r.bad) {
        uint8_t op = read_byte(&r);
        if (run_advance(&r, op, info, &location)) {
            if (initial && location > target)
                break;
        } else if (op >> 6 == 2) {
            struct place unused;
            *place_of(state, op & 0x3f, &unused) = place_saved(scaled(info, (int64_t)(read_uleb(&r) & INT64_MAX)));
        } else if (op >> 6 == 3) {
            struct state copy = initial ? *initial : other;
            struct place unused = {0};
            *place_of(state, op & 0x3f, &unused) = *place_of(&copy, op & 0x3f, &unused);
        } else if (op == 0x0a) { /* remember_state */
            if (depth == STATES)
                return false;
            saved[depth++] = *state;
        } else if (op == 0x0b) { /* restore_state */
            if (depth == 0)
                return false;
            *state = saved[--depth];
        } else if (op == 0x2e) { /* GNU_args_size */
            read_uleb(&r);
        } else if (op != 0x00 && !run_cfa(&r, op, info, state) &&
                   !run_register(&r, op, info, state, initial ? initial : &other)) {
            return false;
        }
    }
    return !r.bad;
}

/* Translates the place of a register to the fields of a rule. */
static bool place_rule(const struct place *place, uint64_t pc, uint8_t *where, int32_t *offset)
{
    struct term term;
    *where = place->where;
    *offset = 0;
    if (place->is_expression) {
        if (!evaluate(place->expression, pc, &term) || term.deref)
            return false;
        *where = term.base;
        *offset = (int32_t)term.offset;
    } else if (place->where == GP_CFI_CFA) {
        if (place->offset <= -OFFSET_LIMIT || place->offset >= OFFSET_LIMIT)
            return false;
        *offset = (int32_t)place->offset;
    }
    return true;
}

static bool state_rule(const struct state *state, uint64_t pc, struct gp_cfi_rule *rule)
{
    struct term cfa = {.offset = state->cfa_offset};
    if (state->cfa_is_expression) {
        if (!evaluate(state->cfa_expression, pc, &cfa))
            return false;
    } else if (state->cfa_register == REG_BP || state->cfa_register == REG_SP) {
        cfa.base = state->cfa_register == REG_BP ? GP_CFI_BP : GP_CFI_SP;
    } else {
        return false;
    }
    if (cfa.offset <= -OFFSET_LIMIT || cfa.offset >= OFFSET_LIMIT)
        return false;
    rule->base = cfa.base;
    rule->deref = cfa.deref;
    rule->offset = (int32_t)cfa.offset;
    rule->add = (int32_t)cfa.add;
    if (!place_rule(&state->bp, pc, &rule->bp, &rule->bp_offset)) {
        rule->bp = GP_CFI_LOST;
        rule->bp_offset = 0;
    }
    return place_rule(&state->ra, pc, &rule->ra, &rule->ra_offset) && rule->ra >= GP_CFI_CFA;
}

enum gp_cfi_answer gp_cfi_find(const struct gp_cfi_table *table, uint64_t pc, struct gp_cfi_rule *rule)
{
    struct frame_info info;
    struct state state = {.bp = {.where = GP_CFI_SAME}}, initial;
    *rule = (struct gp_cfi_rule){0};
    const uint8_t *at = pc ? table_search(table, pc - 1) : NULL;
    if (!at || !fde_read(table, at, pc - 1, &info))
        return GP_CFI_NONE;
    if (info.is_signal || !run(info.cie, &info, pc - 1, &state, NULL))
        return GP_CFI_END;
    initial = state;
    if (!run(info.fde, &info, pc - 1, &state, &initial) || !state_rule(&state, pc, rule))
        return GP_CFI_END;
    return GP_CFI_RULE;
}
