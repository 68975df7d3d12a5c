/* SPDX-License-Identifier: MIT
 *
 * test_walk.c: the rules that are learned from unwind tables written here, at the limits of what a word of the table holds.
 * test_stack.c walks over real frames of each kind with them.
 */
#include "base/compiler.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <link.h>
#include <string.h>

#if defined(__x86_64__)

static void start(void)
{
    uint64_t pcs[2];
    bool more;
    cr_assert_eq(gp_native_start(), 0);
    gp_stack_native(pcs, 2, &more); /* the first look forgets all rules */
}

/* ---- rules that are learned -------------------------------------------------------------------------------------- */

struct want {
    const char *code;
    enum gp_rule_way way;
    uint64_t offset, back;   /* of a word */
    struct gp_cfi_rule wide; /* of a wide rule */
};

/* Each code's name, the rule that is learned from its unwind table, and that table. */
/* clang-format off */
#define SP(_offset, _back) GP_RULE_SP, _offset, _back, {0}
#define BP(_offset, _back) GP_RULE_BP, _offset, _back, {0}
#define END                GP_RULE_END, 0, 0, {0}
#define WIDE(...)          GP_RULE_WIDE, 0, 0, {__VA_ARGS__}
#define CODES(_code) \
    _code(sp_8, SP(8, 0), "") \
    _code(sp_16, SP(16, 0), ".cfi_def_cfa_offset 16") \
    _code(bp_16, BP(16, 16), ".cfi_def_cfa %rbp,16\n.cfi_offset %rbp,-16") \
    _code(sp_last, SP(65528, 0), ".cfi_def_cfa_offset 65528") \
    _code(sp_wide, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 65536, 0, 0, -8), ".cfi_def_cfa_offset 65536") \
    _code(sp_odd, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 20, 0, 0, -8), ".cfi_def_cfa_offset 20") \
    _code(sp_none, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 0, 0, 0, -8), ".cfi_def_cfa_offset 0") \
    _code(sp_below, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, -8, 0, 0, -8), ".cfi_def_cfa_offset -8") \
    _code(back_8, SP(32, 8), ".cfi_def_cfa_offset 32\n.cfi_offset %rbp,-8") \
    _code(back_last, SP(32768, 16376), ".cfi_def_cfa_offset 32768\n.cfi_offset %rbp,-16376") \
    _code(back_wide, WIDE(GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 32768, 0, -16384, -8), ".cfi_def_cfa_offset 32768\n.cfi_offset %rbp,-16384") \
    _code(back_none, WIDE(GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 32, 0, 0, -8), ".cfi_def_cfa_offset 32\n.cfi_offset %rbp,0") \
    _code(back_above, WIDE(GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 32, 0, 8, -8), ".cfi_def_cfa_offset 32\n.cfi_offset %rbp,8") \
    _code(bp_lost, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_def_cfa_offset 24\n.cfi_undefined %rbp") \
    _code(ra_else, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 24, 0, 0, -16), ".cfi_def_cfa_offset 24\n.cfi_offset 16,-16") \
    _code(ra_none, END, ".cfi_def_cfa_offset 24\n.cfi_undefined 16") \
    _code(other_base, END, ".cfi_def_cfa %rax,24") \
    _code(other_saved, SP(40, 0), ".cfi_def_cfa_offset 40\n.cfi_offset %rbx,-24\n.cfi_offset %r12,-32") \
    _code(signal_frame, END, ".cfi_signal_frame\n.cfi_def_cfa_offset 48") \
    /* the bytes of the table themselves */ \
    _code(no_args, SP(24, 0), ".cfi_escape 46,16,14,24") \
    _code(no_change, SP(24, 0), ".cfi_escape 0,0,14,24,0") \
    _code(saved_extended, SP(24, 16), ".cfi_escape 14,24,5,6,2") \
    _code(saved_signed, SP(24, 24), ".cfi_escape 14,24,17,6,3") \
    _code(saved_above, WIDE(GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 24, 0, 16, -8), ".cfi_escape 14,24,17,6,126") \
    _code(saved_again, SP(24, 0), ".cfi_escape 134,2,14,24,8,6") \
    _code(saved_other, SP(24, 16), ".cfi_escape 134,2,14,24,8,3,7,3,9,3,6,20,3,1,21,3,1,22,3,2,119,8,16,3,2,119,8") \
    _code(restored, SP(24, 0), ".cfi_escape 134,2,14,24,198") \
    _code(restored_extended, SP(24, 0), ".cfi_escape 134,2,14,24,6,6") \
    _code(restored_other, SP(24, 16), ".cfi_escape 134,2,14,24,195,6,3,199,6,7") \
    _code(restored_ra, SP(24, 0), ".cfi_escape 14,24,144,2,208") \
    _code(restored_ra_extended, SP(24, 0), ".cfi_escape 14,24,144,2,6,16") \
    _code(in_register, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 134,2,14,24,9,6,0") \
    _code(by_value, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 134,2,14,24,20,6,1") \
    _code(by_value_signed, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 134,2,14,24,21,6,127") \
    _code(by_value_computed, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 134,2,14,24,22,6,2,119,8") \
    _code(ra_by_value, END, ".cfi_escape 14,24,20,16,1") \
    _code(ra_same, END, ".cfi_escape 14,24,8,16") \
    _code(computed_place, WIDE(GP_CFI_SP, 0, GP_CFI_SP, GP_CFI_CFA, 24, 0, 16, -8), ".cfi_escape 16,6,2,119,16,14,24") \
    _code(computed_place_bp, WIDE(GP_CFI_SP, 0, GP_CFI_BP, GP_CFI_CFA, 24, 0, -16, -8), ".cfi_escape 16,6,2,118,112,14,24") \
    _code(computed_ra, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_BP, 24, 0, 0, 8), ".cfi_escape 16,16,2,118,8,14,24") \
    _code(computed_deref, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 16,6,3,119,16,6,14,24") \
    _code(computed_ra_deref, END, ".cfi_escape 16,16,3,119,16,6,14,24") \
    _code(cfa_signed, SP(24, 0), ".cfi_escape 18,7,125") \
    _code(cfa_signed_bp, BP(16, 0), ".cfi_escape 18,6,126") \
    _code(cfa_offset_signed, SP(32, 0), ".cfi_escape 19,124") \
    _code(cfa_register, BP(32, 0), ".cfi_escape 14,32,13,6") \
    _code(cfa_plain, SP(24, 0), ".cfi_escape 15,2,119,24") \
    _code(cfa_bp, BP(24, 0), ".cfi_escape 15,2,118,24") \
    _code(cfa_computed_then_plain, SP(40, 0), ".cfi_escape 15,2,119,24,12,7,40") \
    _code(cfa_computed_then_signed, SP(40, 0), ".cfi_escape 15,2,119,24,18,7,123") \
    _code(cfa_loaded, WIDE(GP_CFI_SP, 1, GP_CFI_SAME, GP_CFI_CFA, 8, 8, 0, -8), ".cfi_escape 15,5,119,8,6,35,8") \
    _code(cfa_loaded_twice, END, ".cfi_escape 15,4,119,8,6,6") \
    _code(cfa_loaded_constant, END, ".cfi_escape 15,2,56,6") \
    _code(cfa_constant, END, ".cfi_escape 15,1,56") \
    _code(cfa_other_register, END, ".cfi_escape 15,2,115,24") \
    _code(cfa_last_register, END, ".cfi_escape 15,2,143,24") \
    _code(cfa_highest_literal, SP(32, 0), ".cfi_escape 15,4,119,1,79,34") \
    _code(cfa_lowest_literal, SP(24, 0), ".cfi_escape 15,4,119,24,48,34") \
    _code(cfa_swapped, SP(24, 0), ".cfi_escape 15,4,56,119,16,34") \
    _code(cfa_two_registers, END, ".cfi_escape 15,5,119,8,119,16,34") \
    _code(cfa_minus, SP(24, 0), ".cfi_escape 15,4,119,32,56,28") \
    _code(cfa_minus_register, END, ".cfi_escape 15,4,56,119,32,28") \
    _code(cfa_and_register, END, ".cfi_escape 15,4,119,32,56,26") \
    _code(cfa_and_by_register, END, ".cfi_escape 15,4,56,119,32,26") \
    _code(cfa_shift_0, SP(24, 0), ".cfi_escape 15,6,119,16,56,48,36,34") \
    _code(cfa_shift_64, SP(16, 0), ".cfi_escape 15,7,119,16,56,8,64,36,34") \
    _code(cfa_shift_63, SP(16, 0), ".cfi_escape 15,7,119,16,50,8,63,36,34") \
    _code(cfa_shift_negative, SP(16, 0), ".cfi_escape 15,7,119,16,56,9,255,36,34") \
    _code(cfa_compare, SP(16, 0), ".cfi_escape 15,6,119,15,51,51,42,34") \
    _code(cfa_less, SP(16, 0), ".cfi_escape 15,6,119,16,51,52,42,34") \
    _code(cfa_or, END, ".cfi_escape 15,6,119,16,51,52,33,34") \
    _code(cfa_two_values, END, ".cfi_escape 15,3,119,16,56") \
    _code(cfa_too_few, END, ".cfi_escape 15,3,119,16,34") \
    _code(cfa_nothing, END, ".cfi_escape 15,0") \
    _code(cfa_two_bytes, SP(344, 0), ".cfi_escape 15,6,119,0,10,88,1,34") \
    _code(cfa_signed_bytes, SP(344, 0), ".cfi_escape 15,6,119,0,11,168,254,28") \
    _code(cfa_one_byte, SP(200, 0), ".cfi_escape 15,5,119,0,8,200,34") \
    _code(cfa_depth_8, SP(24, 0), ".cfi_escape 15,18,119,16,49,49,49,49,49,49,49,34,34,34,34,34,34,34,49,34") \
    _code(cfa_depth_9, END, ".cfi_escape 15,18,119,16,49,49,49,49,49,49,49,49,34,34,34,34,34,34,34,34") \
    _code(cfa_steps_32, SP(32, 0), ".cfi_escape 15,34,119,16,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,35,1") \
    _code(cfa_steps_33, END, ".cfi_escape 15,34,119,16,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34") \
    _code(cfa_constant_large, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 1073741816, 0, 0, -8), ".cfi_escape 15,8,119,8,35,240,255,255,255,3") \
    _code(cfa_constant_limit, END, ".cfi_escape 15,8,119,0,35,128,128,128,128,4") \
    _code(cfa_constant_beyond, END, ".cfi_escape 15,8,119,120,35,129,128,128,128,4") \
    _code(cfa_loaded_large, WIDE(GP_CFI_SP, 1, GP_CFI_SAME, GP_CFI_CFA, 8, 1073741816, 0, -8), ".cfi_escape 15,9,119,8,6,35,248,255,255,255,3") \
    _code(cfa_loaded_limit, END, ".cfi_escape 15,9,119,8,6,35,128,128,128,128,4") \
    _code(cfa_large, WIDE(GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 1073741816, 0, 0, -8), ".cfi_escape 14,248,255,255,255,3") \
    _code(cfa_limit, END, ".cfi_escape 14,128,128,128,128,4") \
    _code(saved_limit, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 14,24,5,6,128,128,128,64") \
    _code(saved_large, WIDE(GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 24, 0, -1073741816, -8), ".cfi_escape 14,24,5,6,255,255,255,63") \
    _code(saved_far, WIDE(GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8), ".cfi_escape 14,24,5,6,128,128,128,128,4") \
    _code(remembered_8, SP(24, 0), ".cfi_escape 10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,11,11,11,11,11,11,11,14,24") \
    _code(remembered_9, END, ".cfi_escape 10,10,10,10,10,10,10,10,10") \
    _code(recalled, SP(40, 0), ".cfi_escape 14,24,10,14,40,10,14,56,11") \
    _code(recalled_twice, SP(24, 0), ".cfi_escape 14,24,10,14,40,10,14,56,11,11") \
    _code(recalled_none, END, ".cfi_escape 11") \
    _code(unknown_op, END, ".cfi_escape 45") \
    _code(unknown_op_next, END, ".cfi_escape 47,0,0") \
    _code(moved_0, SP(24, 0), ".cfi_escape 64,14,24") \
    _code(moved_4_by_0, SP(24, 0), ".cfi_escape 4,0,0,0,0,14,24") \
    _code(moved_4_by_1, SP(8, 0), ".cfi_escape 4,1,0,0,0,14,24") \
    _code(moved_4_by_far, SP(8, 0), ".cfi_escape 4,0,0,0,1,14,24") \
    _code(moved_2_by_far, SP(8, 0), ".cfi_escape 3,0,1,14,24") \
    _code(moved_1_by_1, SP(8, 0), ".cfi_escape 2,1,14,24") \
    _code(moved_before, SP(24, 0), ".cfi_escape 1,0,0,0,128,14,24") \
    _code(moved_behind, SP(8, 0), ".cfi_escape 1,0,0,0,0,14,24")
/* clang-format on */

/* Code that is never run. */
#define CODE(_name, _want, _cfi)                                                                                       \
    extern const char _name[];                                                                                         \
    __asm__(".text\n.type " #_name ",@function\n" #_name ":\n.cfi_startproc\n" _cfi "\nnop\nnop\n.cfi_endproc\n"       \
            ".size " #_name ",.-" #_name);
CODES(CODE)
#define WANT(_name, _want, _cfi) {_name, _want},
static const struct want wants[] = {CODES(WANT)};

static uint64_t pc_in(const char *code)
{
    return (uint64_t)(uintptr_t)code + 1;
}

static void check_learned(const struct want *want)
{
    struct gp_cfi_rule wide;
    uint64_t pc = pc_in(want->code), word = gp_rule_learn(pc, &wide);
    long line = want - wants;
    cr_assert_eq(gp_rule_way(word), want->way, "row %ld: way %d", line, (int)gp_rule_way(word));
    cr_assert_eq(gp_rule_look(pc), gp_rule_tag(pc) | word, "row %ld is kept", line);
    if (want->way == GP_RULE_WIDE) {
        cr_assert_eq(memcmp(&wide, &want->wide, sizeof(wide)), 0, "row %ld", line);
        cr_assert_eq(memcmp(&gp_rule_wides[gp_rule_offset(word) / 8], &wide, sizeof(wide)), 0, "row %ld", line);
        cr_assert_eq(gp_rule_learn(pc, &wide), word, "row %ld: equal rules share one place", line);
        return;
    }
    cr_assert_eq(gp_rule_offset(word), want->offset, "row %ld", line);
    cr_assert_eq(gp_rule_back(word), want->back, "row %ld", line);
}

Test(walk, each_form_of_rule_is_learned_as_it_is_written)
{
    start();
    for (unsigned i = 0; i < GP_COUNT(wants); i++)
        check_learned(&wants[i]);
}

/* The end of the last segment that is data, and that of one with code. */
struct ends {
    uint64_t data, begin;
};

static int ends_visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct ends *ends = argument;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && !(segment->p_flags & PF_X)) {
            ends->data = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;
            if (!ends->begin)
                ends->begin = info->dlpi_addr + segment->p_vaddr;
        }
    }
    return 1; /* the program alone */
}

Test(walk, an_address_outside_of_code_is_data_or_follows_its_frame_pointer)
{
    struct gp_cfi_rule wide;
    struct ends ends = {0, 0};
    start();
    dl_iterate_phdr(ends_visit, &ends);
    const struct {
        uint64_t pc;
        enum gp_rule_way way;
    } places[] = {
        {1, GP_RULE_DATA},
        {0xffff, GP_RULE_DATA},
        {0x10000, GP_RULE_CHAIN},
        {ends.data, GP_RULE_DATA},
        {ends.data + 1, GP_RULE_CHAIN},
        {ends.begin, GP_RULE_CHAIN},
        {ends.begin + 1, GP_RULE_DATA},
        {(1ull << 47) - 1, GP_RULE_CHAIN},
        {1ull << 47, GP_RULE_DATA},
        {UINT64_MAX, GP_RULE_DATA},
    };
    for (unsigned i = 0; i < GP_COUNT(places); i++) {
        uint64_t word = gp_rule_learn(places[i].pc, &wide);
        cr_expect_eq(gp_rule_way(word), places[i].way, "row %u: way %d", i, (int)gp_rule_way(word));
        bool is_kept = places[i].way == GP_RULE_CHAIN || places[i].pc == ends.data || places[i].pc == ends.begin + 1;
        cr_expect_eq(gp_rule_look(places[i].pc) != 0, is_kept, "row %u", i);
    }
}

/* The same line of the table for all: an address in no object, every 2^14 bytes. */
Test(walk, a_full_line_forgets_one_rule)
{
    struct gp_cfi_rule wide;
    uint64_t pc = 0x200000001238;
    start();
    for (unsigned i = 0; i < GP_RULE_WAYS + 1; i++) {
        cr_assert_eq(gp_rule_way(gp_rule_learn(pc + i * 16384ull, &wide)), GP_RULE_CHAIN);
        gp_rule_learn(pc + i * 16384ull, &wide); /* takes no second place */
        unsigned known = 0;
        for (unsigned k = 0; k <= i; k++)
            known += gp_rule_look(pc + k * 16384ull) != 0;
        cr_assert_eq(known, i < GP_RULE_WAYS ? i + 1 : GP_RULE_WAYS, "after %u: %u", i, known);
        cr_assert(gp_rule_look(pc + i * 16384ull), "the newest is there");
    }
}

#define WIDES 1040u
extern const char many_wides[];
__asm__(".text\n.type many_wides,@function\nmany_wides:\n.set wide_offset,131072\n.rept 1040\n.cfi_startproc\n"
        ".cfi_def_cfa_offset wide_offset\nnop\nnop\n.cfi_endproc\n.set wide_offset,wide_offset+8\n.endr\n"
        ".size many_wides,.-many_wides");

Test(walk, a_wide_rule_without_room_is_given_each_time)
{
    struct gp_cfi_rule wide;
    start();
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < WIDES; i++) {
            uint64_t pc = pc_in(many_wides + 2 * i), word = gp_rule_learn(pc, &wide);
            cr_assert_eq(gp_rule_way(word), GP_RULE_WIDE);
            cr_assert_eq(wide.offset, 131072 + 8 * (int)i);
            uint64_t index = gp_rule_offset(word) / 8;
            cr_assert_eq(index, i < GP_RULE_WIDES ? i : GP_RULE_NO_INDEX, "rule %u", i);
            cr_assert_eq(gp_rule_look(pc) != 0, i < GP_RULE_WIDES, "rule %u", i);
        }
    }
}

#endif
