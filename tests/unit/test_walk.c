/* SPDX-License-Identifier: MIT
 *
 * test_walk.c: the walk over native stacks, on made-up stacks with made-up rules, against a plain model of what each rule
 * means; and the rules that are learned from unwind tables written here, at the limits of what a word of the table holds.
 */
#include "base/compiler.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)

#include <x86intrin.h>

static void start(void)
{
    uint64_t pcs[2];
    bool more;
    cr_assert_eq(gp_native_start(), 0);
    gp_stack_native(pcs, 2, &more); /* the first look forgets all rules */
}

/* ---- rules that are learned -------------------------------------------------------------------------------------- */

/* Code that is never run, with the unwind table `_cfi`. */
#define CODE(_name, _cfi)                                                                                              \
    extern const char _name[];                                                                                         \
    __asm__(".text\n.type " #_name ",@function\n" #_name ":\n.cfi_startproc\n" _cfi "\nnop\nnop\n.cfi_endproc\n"       \
            ".size " #_name ",.-" #_name)
CODE(sp_8, "");
CODE(sp_16, ".cfi_def_cfa_offset 16");
CODE(bp_16, ".cfi_def_cfa %rbp,16\n.cfi_offset %rbp,-16");
CODE(sp_last, ".cfi_def_cfa_offset 65528");
CODE(sp_wide, ".cfi_def_cfa_offset 65536");
CODE(sp_odd, ".cfi_def_cfa_offset 20");
CODE(sp_none, ".cfi_def_cfa_offset 0");
CODE(sp_below, ".cfi_def_cfa_offset -8");
CODE(back_8, ".cfi_def_cfa_offset 32\n.cfi_offset %rbp,-8");
CODE(back_last, ".cfi_def_cfa_offset 32768\n.cfi_offset %rbp,-16376");
CODE(back_wide, ".cfi_def_cfa_offset 32768\n.cfi_offset %rbp,-16384");
CODE(back_none, ".cfi_def_cfa_offset 32\n.cfi_offset %rbp,0");
CODE(back_above, ".cfi_def_cfa_offset 32\n.cfi_offset %rbp,8");
CODE(bp_lost, ".cfi_def_cfa_offset 24\n.cfi_undefined %rbp");
CODE(ra_else, ".cfi_def_cfa_offset 24\n.cfi_offset 16,-16");
CODE(ra_none, ".cfi_def_cfa_offset 24\n.cfi_undefined 16");
CODE(other_base, ".cfi_def_cfa %rax,24");
CODE(other_saved, ".cfi_def_cfa_offset 40\n.cfi_offset %rbx,-24\n.cfi_offset %r12,-32");
CODE(signal_frame, ".cfi_signal_frame\n.cfi_def_cfa_offset 48");

/* The bytes of the table themselves. */
/* clang-format off */
CODE(no_args, ".cfi_escape 46,16,14,24");
CODE(no_change, ".cfi_escape 0,0,14,24,0");
CODE(saved_extended, ".cfi_escape 14,24,5,6,2");
CODE(saved_signed, ".cfi_escape 14,24,17,6,3");
CODE(saved_above, ".cfi_escape 14,24,17,6,126");
CODE(saved_again, ".cfi_escape 134,2,14,24,8,6");
CODE(saved_other, ".cfi_escape 134,2,14,24,8,3,7,3,9,3,6,20,3,1,21,3,1,22,3,2,119,8,16,3,2,119,8");
CODE(restored, ".cfi_escape 134,2,14,24,198");
CODE(restored_extended, ".cfi_escape 134,2,14,24,6,6");
CODE(restored_other, ".cfi_escape 134,2,14,24,195,6,3,199,6,7");
CODE(restored_ra, ".cfi_escape 14,24,144,2,208");
CODE(restored_ra_extended, ".cfi_escape 14,24,144,2,6,16");
CODE(in_register, ".cfi_escape 134,2,14,24,9,6,0");
CODE(by_value, ".cfi_escape 134,2,14,24,20,6,1");
CODE(by_value_signed, ".cfi_escape 134,2,14,24,21,6,127");
CODE(by_value_computed, ".cfi_escape 134,2,14,24,22,6,2,119,8");
CODE(ra_by_value, ".cfi_escape 14,24,20,16,1");
CODE(ra_same, ".cfi_escape 14,24,8,16");
CODE(computed_place, ".cfi_escape 16,6,2,119,16,14,24");
CODE(computed_place_bp, ".cfi_escape 16,6,2,118,112,14,24");
CODE(computed_ra, ".cfi_escape 16,16,2,118,8,14,24");
CODE(computed_deref, ".cfi_escape 16,6,3,119,16,6,14,24");
CODE(computed_ra_deref, ".cfi_escape 16,16,3,119,16,6,14,24");
CODE(cfa_signed, ".cfi_escape 18,7,125");
CODE(cfa_signed_bp, ".cfi_escape 18,6,126");
CODE(cfa_offset_signed, ".cfi_escape 19,124");
CODE(cfa_register, ".cfi_escape 14,32,13,6");
CODE(cfa_plain, ".cfi_escape 15,2,119,24");
CODE(cfa_bp, ".cfi_escape 15,2,118,24");
CODE(cfa_computed_then_plain, ".cfi_escape 15,2,119,24,12,7,40");
CODE(cfa_computed_then_signed, ".cfi_escape 15,2,119,24,18,7,123");
CODE(cfa_loaded, ".cfi_escape 15,5,119,8,6,35,8");
CODE(cfa_loaded_twice, ".cfi_escape 15,4,119,8,6,6");
CODE(cfa_loaded_constant, ".cfi_escape 15,2,56,6");
CODE(cfa_constant, ".cfi_escape 15,1,56");
CODE(cfa_other_register, ".cfi_escape 15,2,115,24");
CODE(cfa_last_register, ".cfi_escape 15,2,143,24");
CODE(cfa_highest_literal, ".cfi_escape 15,4,119,1,79,34");
CODE(cfa_lowest_literal, ".cfi_escape 15,4,119,24,48,34");
CODE(cfa_swapped, ".cfi_escape 15,4,56,119,16,34");
CODE(cfa_two_registers, ".cfi_escape 15,5,119,8,119,16,34");
CODE(cfa_minus, ".cfi_escape 15,4,119,32,56,28");
CODE(cfa_minus_register, ".cfi_escape 15,4,56,119,32,28");
CODE(cfa_and_register, ".cfi_escape 15,4,119,32,56,26");
CODE(cfa_and_by_register, ".cfi_escape 15,4,56,119,32,26");
CODE(cfa_shift_0, ".cfi_escape 15,6,119,16,56,48,36,34");
CODE(cfa_shift_64, ".cfi_escape 15,7,119,16,56,8,64,36,34");
CODE(cfa_shift_63, ".cfi_escape 15,7,119,16,50,8,63,36,34");
CODE(cfa_shift_negative, ".cfi_escape 15,7,119,16,56,9,255,36,34");
CODE(cfa_compare, ".cfi_escape 15,6,119,15,51,51,42,34");
CODE(cfa_less, ".cfi_escape 15,6,119,16,51,52,42,34");
CODE(cfa_or, ".cfi_escape 15,6,119,16,51,52,33,34");
CODE(cfa_two_values, ".cfi_escape 15,3,119,16,56");
CODE(cfa_too_few, ".cfi_escape 15,3,119,16,34");
CODE(cfa_nothing, ".cfi_escape 15,0");
CODE(cfa_two_bytes, ".cfi_escape 15,6,119,0,10,88,1,34");
CODE(cfa_signed_bytes, ".cfi_escape 15,6,119,0,11,168,254,28");
CODE(cfa_one_byte, ".cfi_escape 15,5,119,0,8,200,34");
CODE(cfa_depth_8, ".cfi_escape 15,18,119,16,49,49,49,49,49,49,49,34,34,34,34,34,34,34,49,34");
CODE(cfa_depth_9, ".cfi_escape 15,18,119,16,49,49,49,49,49,49,49,49,34,34,34,34,34,34,34,34");
CODE(cfa_steps_32, ".cfi_escape 15,34,119,16,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,35,1");
CODE(cfa_steps_33, ".cfi_escape 15,34,119,16,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34,49,34");
CODE(cfa_constant_large, ".cfi_escape 15,8,119,8,35,240,255,255,255,3");
CODE(cfa_constant_limit, ".cfi_escape 15,8,119,0,35,128,128,128,128,4");
CODE(cfa_constant_beyond, ".cfi_escape 15,8,119,120,35,129,128,128,128,4");
CODE(cfa_loaded_large, ".cfi_escape 15,9,119,8,6,35,248,255,255,255,3");
CODE(cfa_loaded_limit, ".cfi_escape 15,9,119,8,6,35,128,128,128,128,4");
CODE(cfa_large, ".cfi_escape 14,248,255,255,255,3");
CODE(cfa_limit, ".cfi_escape 14,128,128,128,128,4");
CODE(saved_limit, ".cfi_escape 14,24,5,6,128,128,128,64");
CODE(saved_large, ".cfi_escape 14,24,5,6,255,255,255,63");
CODE(saved_far, ".cfi_escape 14,24,5,6,128,128,128,128,4");
CODE(remembered_8, ".cfi_escape 10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,10,14,40,11,11,11,11,11,11,11,14,24");
CODE(remembered_9, ".cfi_escape 10,10,10,10,10,10,10,10,10");
CODE(recalled, ".cfi_escape 14,24,10,14,40,10,14,56,11");
CODE(recalled_twice, ".cfi_escape 14,24,10,14,40,10,14,56,11,11");
CODE(recalled_none, ".cfi_escape 11");
CODE(unknown_op, ".cfi_escape 45");
CODE(unknown_op_next, ".cfi_escape 47,0,0");
CODE(moved_0, ".cfi_escape 64,14,24");
CODE(moved_4_by_0, ".cfi_escape 4,0,0,0,0,14,24");
CODE(moved_4_by_1, ".cfi_escape 4,1,0,0,0,14,24");
CODE(moved_4_by_far, ".cfi_escape 4,0,0,0,1,14,24");
CODE(moved_2_by_far, ".cfi_escape 3,0,1,14,24");
CODE(moved_1_by_1, ".cfi_escape 2,1,14,24");
CODE(moved_before, ".cfi_escape 1,0,0,0,128,14,24");
CODE(moved_behind, ".cfi_escape 1,0,0,0,0,14,24");
/* clang-format on */

struct want {
    const char *code;
    enum gp_rule_way way;
    uint64_t offset, back;   /* of a word */
    struct gp_cfi_rule wide; /* of a wide rule */
};

#define WIDE(_offset, _bp, _bp_offset, _ra_offset)                                                                     \
    {                                                                                                                  \
        .base = GP_CFI_SP, .bp = (_bp), .ra = GP_CFI_CFA, .offset = (_offset), .bp_offset = (_bp_offset),              \
        .ra_offset = (_ra_offset)                                                                                      \
    }

static const struct want wants[] = {
    {sp_8, GP_RULE_SP, 8, 0, {0}},
    {sp_16, GP_RULE_SP, 16, 0, {0}},
    {bp_16, GP_RULE_BP, 16, 16, {0}},
    {sp_last, GP_RULE_SP, 65528, 0, {0}},
    {sp_wide, GP_RULE_WIDE, 0, 0, WIDE(65536, GP_CFI_SAME, 0, -8)},
    {sp_odd, GP_RULE_WIDE, 0, 0, WIDE(20, GP_CFI_SAME, 0, -8)},
    {sp_none, GP_RULE_WIDE, 0, 0, WIDE(0, GP_CFI_SAME, 0, -8)},
    {sp_below, GP_RULE_WIDE, 0, 0, WIDE(-8, GP_CFI_SAME, 0, -8)},
    {back_8, GP_RULE_SP, 32, 8, {0}},
    {back_last, GP_RULE_SP, 32768, 16376, {0}},
    {back_wide, GP_RULE_WIDE, 0, 0, WIDE(32768, GP_CFI_CFA, -16384, -8)},
    {back_none, GP_RULE_WIDE, 0, 0, WIDE(32, GP_CFI_CFA, 0, -8)},
    {back_above, GP_RULE_WIDE, 0, 0, WIDE(32, GP_CFI_CFA, 8, -8)},
    {bp_lost, GP_RULE_WIDE, 0, 0, WIDE(24, GP_CFI_LOST, 0, -8)},
    {ra_else, GP_RULE_WIDE, 0, 0, WIDE(24, GP_CFI_SAME, 0, -16)},
    {ra_none, GP_RULE_END, 0, 0, {0}},
    {other_base, GP_RULE_END, 0, 0, {0}},
    {other_saved, GP_RULE_SP, 40, 0, {0}},
    {moved_4_by_0, GP_RULE_SP, 24, 0, {0}},
    {moved_4_by_1, GP_RULE_SP, 8, 0, {0}},
    {moved_4_by_far, GP_RULE_SP, 8, 0, {0}},
    {moved_2_by_far, GP_RULE_SP, 8, 0, {0}},
    {moved_1_by_1, GP_RULE_SP, 8, 0, {0}},
    {moved_before, GP_RULE_SP, 24, 0, {0}},
    {moved_behind, GP_RULE_SP, 8, 0, {0}},
    {signal_frame, GP_RULE_END, 0, 0, {0}},
    {no_args, GP_RULE_SP, 24, 0, {0}},
    {no_change, GP_RULE_SP, 24, 0, {0}},
    {saved_extended, GP_RULE_SP, 24, 16, {0}},
    {saved_signed, GP_RULE_SP, 24, 24, {0}},
    {saved_above, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 24, 0, 16, -8}},
    {saved_again, GP_RULE_SP, 24, 0, {0}},
    {saved_other, GP_RULE_SP, 24, 16, {0}},
    {restored, GP_RULE_SP, 24, 0, {0}},
    {restored_extended, GP_RULE_SP, 24, 0, {0}},
    {restored_other, GP_RULE_SP, 24, 16, {0}},
    {restored_ra, GP_RULE_SP, 24, 0, {0}},
    {restored_ra_extended, GP_RULE_SP, 24, 0, {0}},
    {in_register, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {by_value, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {by_value_signed, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {by_value_computed, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {ra_by_value, GP_RULE_END, 0, 0, {0}},
    {ra_same, GP_RULE_END, 0, 0, {0}},
    {computed_place, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_SP, GP_CFI_CFA, 24, 0, 16, -8}},
    {computed_place_bp, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_BP, GP_CFI_CFA, 24, 0, -16, -8}},
    {computed_ra, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_BP, 24, 0, 0, 8}},
    {computed_deref, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {computed_ra_deref, GP_RULE_END, 0, 0, {0}},
    {cfa_signed, GP_RULE_SP, 24, 0, {0}},
    {cfa_signed_bp, GP_RULE_BP, 16, 0, {0}},
    {cfa_offset_signed, GP_RULE_SP, 32, 0, {0}},
    {cfa_register, GP_RULE_BP, 32, 0, {0}},
    {cfa_plain, GP_RULE_SP, 24, 0, {0}},
    {cfa_bp, GP_RULE_BP, 24, 0, {0}},
    {cfa_computed_then_plain, GP_RULE_SP, 40, 0, {0}},
    {cfa_computed_then_signed, GP_RULE_SP, 40, 0, {0}},
    {cfa_loaded, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 1, GP_CFI_SAME, GP_CFI_CFA, 8, 8, 0, -8}},
    {cfa_loaded_twice, GP_RULE_END, 0, 0, {0}},
    {cfa_loaded_constant, GP_RULE_END, 0, 0, {0}},
    {cfa_constant, GP_RULE_END, 0, 0, {0}},
    {cfa_other_register, GP_RULE_END, 0, 0, {0}},
    {cfa_last_register, GP_RULE_END, 0, 0, {0}},
    {cfa_highest_literal, GP_RULE_SP, 32, 0, {0}},
    {cfa_lowest_literal, GP_RULE_SP, 24, 0, {0}},
    {cfa_swapped, GP_RULE_SP, 24, 0, {0}},
    {cfa_two_registers, GP_RULE_END, 0, 0, {0}},
    {cfa_minus, GP_RULE_SP, 24, 0, {0}},
    {cfa_minus_register, GP_RULE_END, 0, 0, {0}},
    {cfa_and_register, GP_RULE_END, 0, 0, {0}},
    {cfa_and_by_register, GP_RULE_END, 0, 0, {0}},
    {cfa_shift_0, GP_RULE_SP, 24, 0, {0}},
    {cfa_shift_64, GP_RULE_SP, 16, 0, {0}},
    {cfa_shift_63, GP_RULE_SP, 16, 0, {0}},
    {cfa_shift_negative, GP_RULE_SP, 16, 0, {0}},
    {cfa_compare, GP_RULE_SP, 16, 0, {0}},
    {cfa_less, GP_RULE_SP, 16, 0, {0}},
    {cfa_or, GP_RULE_END, 0, 0, {0}},
    {cfa_two_values, GP_RULE_END, 0, 0, {0}},
    {cfa_too_few, GP_RULE_END, 0, 0, {0}},
    {cfa_nothing, GP_RULE_END, 0, 0, {0}},
    {cfa_two_bytes, GP_RULE_SP, 344, 0, {0}},
    {cfa_signed_bytes, GP_RULE_SP, 344, 0, {0}},
    {cfa_one_byte, GP_RULE_SP, 200, 0, {0}},
    {cfa_depth_8, GP_RULE_SP, 24, 0, {0}},
    {cfa_depth_9, GP_RULE_END, 0, 0, {0}},
    {cfa_steps_32, GP_RULE_SP, 32, 0, {0}},
    {cfa_steps_33, GP_RULE_END, 0, 0, {0}},
    {cfa_constant_large, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 1073741816, 0, 0, -8}},
    {cfa_constant_limit, GP_RULE_END, 0, 0, {0}},
    {cfa_constant_beyond, GP_RULE_END, 0, 0, {0}},
    {cfa_loaded_large, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 1, GP_CFI_SAME, GP_CFI_CFA, 8, 1073741816, 0, -8}},
    {cfa_loaded_limit, GP_RULE_END, 0, 0, {0}},
    {cfa_large, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_SAME, GP_CFI_CFA, 1073741816, 0, 0, -8}},
    {cfa_limit, GP_RULE_END, 0, 0, {0}},
    {saved_limit, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {saved_large, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_CFA, GP_CFI_CFA, 24, 0, -1073741816, -8}},
    {saved_far, GP_RULE_WIDE, 0, 0, {GP_CFI_SP, 0, GP_CFI_LOST, GP_CFI_CFA, 24, 0, 0, -8}},
    {remembered_8, GP_RULE_SP, 24, 0, {0}},
    {remembered_9, GP_RULE_END, 0, 0, {0}},
    {recalled, GP_RULE_SP, 40, 0, {0}},
    {recalled_twice, GP_RULE_SP, 24, 0, {0}},
    {recalled_none, GP_RULE_END, 0, 0, {0}},
    {unknown_op, GP_RULE_END, 0, 0, {0}},
    {unknown_op_next, GP_RULE_END, 0, 0, {0}},
    {moved_0, GP_RULE_SP, 24, 0, {0}},
};

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

/* ---- made-up stacks ---------------------------------------------------------------------------------------------- */

/* Calls gp_stack_native with the stack pointer at `sp` and `bp` as the caller's frame pointer. */
unsigned walk_from(const uint64_t *sp, uint64_t bp, uint64_t *pcs, unsigned room, bool *more);
extern const char walk_return[];
__asm__(".text\n.type walk_from,@function\nwalk_from:\n.cfi_startproc\npush %rbx\n.cfi_adjust_cfa_offset 8\npush %rbp\n"
        ".cfi_adjust_cfa_offset 8\nmov %rsp,%rbx\n.cfi_def_cfa_register %rbx\nmov %rsi,%rbp\nmov %rdi,%rsp\n"
        "mov %rdx,%rdi\nmov %ecx,%esi\nmov %r8,%rdx\ncall gp_stack_native\nwalk_return:\nmov %rbx,%rsp\n"
        ".cfi_def_cfa_register %rsp\npop %rbp\n.cfi_adjust_cfa_offset -8\npop %rbx\n.cfi_adjust_cfa_offset -8\nret\n"
        ".cfi_endproc\n.size walk_from,.-walk_from");

#define BELOW   65536u       /* for the functions that run meanwhile */
#define FOREIGN (8ull << 20) /* how far a stack is read that is not the thread's own */
#define AREA    (BELOW + FOREIGN + 65536u)
#define POOL    64u
#define ROOM    40u

struct made { /* a rule as the model knows it */
    uint64_t pc, offset, back;
    enum gp_rule_way way;
    struct gp_cfi_rule wide;
};

struct stack {
    uint64_t pc, sp, bp, low, high, mapped;
};

static struct made pool[POOL];
static char *area;

static uint64_t draw(uint64_t below)
{
    return ((uint64_t)rand() << 31 | (uint64_t)rand()) % below;
}

static bool model_read(const struct stack *stack, uint64_t at, uint64_t *word)
{
    if (at % 8 || at < stack->low || at >= stack->high || at >= stack->mapped)
        return false;
    memcpy(word, (const void *)(uintptr_t)at, 8);
    return true;
}

static const struct made *model_rule(uint64_t pc)
{
    static struct made other;
    for (unsigned i = 0; i < POOL; i++)
        if (pool[i].pc == pc)
            return &pool[i];
    other = (struct made){.way = pc < 65536 || pc >> 47 ? GP_RULE_DATA : GP_RULE_CHAIN};
    return &other;
}

static uint64_t model_place(const struct stack *stack, unsigned place, int32_t offset, uint64_t cfa)
{
    return (place == GP_CFI_CFA ? cfa : place == GP_CFI_BP ? stack->bp : stack->sp) + (uint64_t)(int64_t)offset;
}

static bool model_wide(struct stack *stack, const struct gp_cfi_rule *rule)
{
    struct stack next = *stack;
    uint64_t cfa = model_place(stack, rule->base, rule->offset, 0);
    if (rule->deref && !model_read(stack, cfa, &cfa))
        return false;
    cfa += (uint64_t)(int64_t)rule->add;
    if (cfa <= stack->sp || cfa >= stack->high || cfa % 8)
        return false;
    if (!model_read(stack, model_place(stack, rule->ra, rule->ra_offset, cfa), &next.pc))
        return false;
    if (rule->bp == GP_CFI_LOST)
        next.bp = 0;
    else if (rule->bp != GP_CFI_SAME &&
             !model_read(stack, model_place(stack, rule->bp, rule->bp_offset, cfa), &next.bp))
        return false;
    next.sp = cfa;
    *stack = next;
    return true;
}

static bool model_step(struct stack *stack, const struct made *rule)
{
    struct stack next = *stack;
    if (rule->way == GP_RULE_WIDE)
        return model_wide(stack, &rule->wide);
    if (rule->way == GP_RULE_CHAIN) {
        if (stack->bp < stack->sp || !model_read(stack, stack->bp + 8, &next.pc) ||
            !model_read(stack, stack->bp, &next.bp))
            return false;
        next.sp = stack->bp + 16;
    } else if (rule->way == GP_RULE_SP || rule->way == GP_RULE_BP) {
        uint64_t cfa = (rule->way == GP_RULE_SP ? stack->sp : stack->bp) + rule->offset;
        if (cfa >= stack->high || cfa - 8 < stack->sp || !model_read(stack, cfa - 8, &next.pc) ||
            (rule->back && !model_read(stack, cfa - rule->back, &next.bp)))
            return false;
        next.sp = cfa;
    } else {
        return false;
    }
    *stack = next;
    return true;
}

static unsigned model_walk(struct stack stack, uint64_t *pcs, unsigned room, bool *more)
{
    unsigned count = 0;
    *more = false;
    while (stack.pc) {
        if (count == room) {
            *more = true;
            return count;
        }
        pcs[count++] = stack.pc;
        const struct made *rule = model_rule(stack.pc);
        if (rule->way == GP_RULE_DATA)
            return count - 1;
        if (!model_step(&stack, rule))
            return count;
    }
    return count;
}

/* Sixteen bytes of a stack are a frame pointer and the return address above it. */
static struct made made_rule(unsigned index)
{
    static const enum gp_rule_way ways[] = {GP_RULE_SP, GP_RULE_SP, GP_RULE_SP,   GP_RULE_BP,   GP_RULE_BP,
                                            GP_RULE_BP, GP_RULE_SP, GP_RULE_WIDE, GP_RULE_CHAIN};
    struct made made = {.pc = 0x200000000000 + draw(1ull << 44), .way = ways[draw(GP_COUNT(ways))]};
    bool odd = draw(8) == 0;
    made.offset = odd ? 8 * draw(8) : 16 + 16 * draw(6);
    made.back = draw(2) ? 0 : odd ? 8 * draw(8) : 16 * (1 + draw(4));
    if (index % 16 == 15)
        made.way = draw(2) ? GP_RULE_END : GP_RULE_DATA;
    if (index % 16 == 7 && draw(4) == 0)
        made.pc |= 1ull << (47 + draw(17)), made.way = GP_RULE_DATA;
    struct gp_cfi_rule *wide = &made.wide;
    wide->base = draw(2) ? GP_CFI_BP : GP_CFI_SP;
    wide->deref = draw(3) == 0;
    wide->offset = (int32_t)(wide->deref ? 16 * draw(4) : 16 + 16 * draw(8));
    wide->add = wide->deref ? (int32_t)draw(3) * 16 : 0;
    wide->bp = (uint8_t)(GP_CFI_LOST + draw(5));
    wide->bp_offset = 16 * (int32_t)draw(8) - 64;
    wide->ra = (uint8_t)(GP_CFI_CFA + draw(3));
    wide->ra_offset = wide->ra == GP_CFI_CFA && draw(3) ? -8 : 16 * (int32_t)draw(6) - 24;
    if (wide->bp != GP_CFI_CFA && wide->bp != GP_CFI_SP && wide->bp != GP_CFI_BP)
        wide->bp_offset = 0;
    return made;
}

/* The words of a rule and, at the places before it, words of addresses that differ from it in one bit of their tag. */
static void made_keep(struct made *made, unsigned index)
{
    uint64_t offset = made->way == GP_RULE_WIDE ? 8 * index : made->offset, pc = made->pc & ((1ull << 47) - 1);
    unsigned way = draw(3) ? 0 : (unsigned)draw(GP_RULE_WAYS);
    gp_rule_wides[index] = made->wide;
    for (unsigned i = 0; i <= way; i++) {
        uint64_t bit = draw(36), other = pc ^ 1ull << (bit < 3 ? bit : bit + 11);
        enum gp_rule_way rule = made->way;
        if (made->pc >> 47)
            rule = GP_RULE_SP; /* a word that would do if the upper bits of the address were left out */
        uint64_t word = gp_rule_tag(i < way ? other : pc) | made->back << 14 | offset | rule;
        if (made->way == GP_RULE_WIDE)
            word = gp_rule_tag(i < way ? other : pc) | offset | rule;
        __atomic_store_n(gp_rule_place(gp_rules, pc, i), word, __ATOMIC_RELAXED);
    }
}

/* No two addresses share a line: each has the words there to itself. */
static void pool_make(void)
{
    static bool used[GP_RULE_LINES];
    memset(used, 0, sizeof(used));
    used[(uint64_t)(uintptr_t)walk_return / GP_RULE_WAYS % GP_RULE_LINES] = true;
    memset(gp_rules, 0, GP_RULE_LINES * sizeof(*gp_rules));
    for (unsigned i = 0; i < POOL; i++) {
        struct made made;
        uint64_t line;
        do {
            made = made_rule(i);
            line = made.pc / GP_RULE_WAYS % GP_RULE_LINES;
        } while (used[line]);
        used[line] = true;
        pool[i] = made;
    }
    /* Where the walk begins: CFA = sp + 16, and bp unchanged or the first word. */
    pool[0] =
        (struct made){.pc = (uint64_t)(uintptr_t)walk_return, .way = GP_RULE_SP, .offset = 16, .back = draw(2) * 16};
    for (unsigned i = 0; i < POOL; i++)
        made_keep(&pool[i], i);
}

static void words_make(uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += 16) {
        uint64_t *words = (uint64_t *)(uintptr_t)at;
        words[0] = at + 16 * draw(24);
        words[1] = pool[1 + draw(POOL - 1)].pc;
        if (draw(16) == 0)
            words[0] =
                (uint64_t[]){0, 8, at + 4, at + 8, to, to - 8, to - 16, from, from - 16, UINT64_MAX - 7}[draw(10)];
        if (draw(40) == 0)
            words[1] = (uint64_t[]){0, 100, 65535, 65536, UINT64_MAX}[draw(5)];
    }
}

static void check_walk(unsigned round, struct stack stack)
{
    uint64_t ours[ROOM + 1], theirs[ROOM + 1];
    unsigned room = draw(4) ? ROOM : (unsigned)draw(ROOM);
    bool more = true, also = false;
    ours[room] = 4711;
    uint64_t sp = stack.sp, *below = (uint64_t *)(uintptr_t)sp - 2;
    below[0] = stack.bp; /* as the call writes them */
    below[1] = stack.pc;
    unsigned want = model_walk(stack, theirs, room, &also);
    unsigned count = walk_from((const uint64_t *)(uintptr_t)sp, stack.bp, ours, room, &more);
    cr_assert_eq(count, want, "round %u: %u frames, not %u", round, count, want);
    cr_assert_eq(memcmp(ours, theirs, count * sizeof(ours[0])), 0, "round %u", round);
    cr_assert_eq(more, also, "round %u", round);
    cr_assert_eq(ours[room], 4711);
}

static void area_make(void)
{
    area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(area != MAP_FAILED);
    cr_assert_eq(mprotect(area + AREA - 4096, 4096, PROT_NONE), 0);
}

static struct stack stack_at(uint64_t sp, uint64_t high)
{
    uint64_t bp = sp + 16 * draw(8);
    return (struct stack){.pc = (uint64_t)(uintptr_t)walk_return,
                          .sp = sp,
                          .bp = bp,
                          .low = sp - 16,
                          .high = high,
                          .mapped = (uint64_t)(uintptr_t)area + AREA - 4096};
}

Test(walk, the_thread_s_own_stack_as_the_rules_say, .timeout = 60)
{
    start();
    area_make();
    srand(20251123);
    for (unsigned round = 0; round < 6000; round++) {
        uint64_t sp = (uint64_t)(uintptr_t)area + BELOW, high = sp + 64 + 16 * draw(120) + 8 * draw(2);
        pool_make();
        words_make(sp, sp + 4096);
        gp_own_stack_bounds = (struct gp_own_stack){.low = (uint64_t)(uintptr_t)area, .high = high};
        check_walk(round, stack_at(sp, high));
    }
}

/* The words at both ends of what is read: below the mapped memory's end, and below the limit. */
Test(walk, another_stack_as_the_rules_say, .timeout = 60)
{
    start();
    area_make();
    srand(20251124);
    gp_own_stack_bounds = (struct gp_own_stack){0};
    for (unsigned round = 0; round < 3000; round++) {
        bool near = round % 2; /* the memory ends before the limit */
        uint64_t end = (uint64_t)(uintptr_t)area + AREA - 4096;
        uint64_t sp = near ? end - 16 * (4 + draw(120)) : (uint64_t)(uintptr_t)area + BELOW, high = sp - 16 + FOREIGN;
        pool_make();
        words_make(sp, near ? end : sp + 4096);
        struct stack stack = stack_at(sp, high);
        if (!near) {
            words_make(high - 256, high + 256);
            pool[0] = (struct made){.pc = pool[0].pc, .way = GP_RULE_BP, .offset = 16 * (1 + draw(3))};
            made_keep(&pool[0], 0);
            stack.bp = high - 8 * draw(20);
        }
        check_walk(round, stack);
    }
}

static volatile sig_atomic_t instructions;

static void instruction_ends(int signal)
{
    (void)signal;
    instructions++;
}

/* Instructions of a walk over frames whose words are at that place of their lines: the processor traps after each one. The
 * ratio of the times differs between processors. */
static int walk_instructions(unsigned place, unsigned frames)
{
    const uint64_t trap_flag = 0x100;
    uint64_t sp = (uint64_t)(uintptr_t)area + BELOW, pcs[200];
    bool more;
    memset(gp_rules, 0, GP_RULE_LINES * sizeof(*gp_rules));
    for (unsigned i = 0; i <= frames; i++) {
        uint64_t *words = (uint64_t *)(uintptr_t)sp + 2 * i;
        uint64_t pc = i ? 0x200000000000ull + 8 * i : (uint64_t)(uintptr_t)walk_return;
        words[0] = 0;
        words[1] = i < frames ? 0x200000000000 + 8 * (i + 1) : 0;
        *gp_rule_place(gp_rules, pc, i ? place : 0) = gp_rule_tag(pc) | 16 | GP_RULE_SP;
    }
    gp_own_stack_bounds = (struct gp_own_stack){.low = (uint64_t)(uintptr_t)area, .high = sp + 4096};
    instructions = 0;
    __writeeflags(__readeflags() | trap_flag);
    unsigned count = walk_from((const uint64_t *)(uintptr_t)sp, 0, pcs, GP_COUNT(pcs), &more);
    __writeeflags(__readeflags() & ~trap_flag);
    cr_assert_eq(count, frames + 1);
    return instructions;
}

/* A frame whose word is in its first place is one step of a loop; another one is a function call and a search. */
Test(walk, the_first_place_is_the_fast_one)
{
    start();
    area_make();
    cr_assert_eq(sigaction(SIGTRAP, &(struct sigaction){.sa_handler = instruction_ends}, NULL), 0);
    int fast = (walk_instructions(0, 160) - walk_instructions(0, 60)) / 100;
    int slow = (walk_instructions(1, 160) - walk_instructions(1, 60)) / 100;
    cr_assert_gt(fast, 0);
    cr_assert_lt(fast * 3, slow * 2, "%d and %d instructions a frame", fast, slow);
}

#endif
