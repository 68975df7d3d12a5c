/* SPDX-License-Identifier: MIT
 *
 * probeargs.c: where a probe's two arguments are, out of the text of its SystemTap note. Both
 * processors are understood on both, so that one machine can test them; probe.c asks for its own.
 */
#include "agent/kernel/bpf.h"
#include "loaderabi.h"
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *wide, *narrow;
    uint8_t word; /* of struct pt_regs */
} registers[] = {
    {"r15", "r15d", 0}, {"r14", "r14d", 1}, {"r13", "r13d", 2}, {"r12", "r12d", 3},
    {"rbp", "ebp", 4},  {"rbx", "ebx", 5},  {"r11", "r11d", 6}, {"r10", "r10d", 7},
    {"r9", "r9d", 8},   {"r8", "r8d", 9},   {"rax", "eax", 10}, {"rcx", "ecx", 11},
    {"rdx", "edx", 12}, {"rsi", "esi", 13}, {"rdi", "edi", 14}, {"rsp", "esp", 19},
};

static int args_word_x86(const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof registers / sizeof registers[0]; i++)
        if ((strlen(registers[i].wide) == length && !memcmp(registers[i].wide, text, length)) ||
            (strlen(registers[i].narrow) == length && !memcmp(registers[i].narrow, text, length)))
            return registers[i].word;
    return -EINVAL;
}

/* x0 to x30 (w0 to w30) and sp are the first words of struct user_pt_regs, in this order. */
static int args_word_arm(const char *text, size_t length)
{
    if (length == 2 && !memcmp(text, "sp", 2))
        return 31;
    if (length < 2 || length > 3 || (text[0] != 'x' && text[0] != 'w') || strspn(text + 1, "0123456789") < length - 1)
        return -EINVAL;
    int word = length == 2 ? text[1] - '0' : (text[1] - '0') * 10 + text[2] - '0';
    return word <= 30 ? word : -EINVAL;
}

struct args_place {
    int how, word;
    long value;
};

static bool args_number(const char **at, long *value)
{
    char *end;
    *value = strtol(*at, &end, 10);
    bool is_good = end != *at && *value >= -(1 << 23) && *value < 1 << 23;
    *at = end;
    return is_good;
}

/* %reg, $number, number(%reg) or (%reg). */
static const char *args_place_x86(const char *at, struct args_place *place)
{
    if (*at == '$') {
        place->how = GP_ARG_CONSTANT;
        at++;
        return args_number(&at, &place->value) ? at : NULL;
    }
    place->how = *at == '%' ? GP_ARG_REGISTER : GP_ARG_MEMORY;
    if (place->how == GP_ARG_MEMORY && ((*at != '(' && !args_number(&at, &place->value)) || *at++ != '('))
        return NULL;
    if (*at++ != '%')
        return NULL;
    size_t length = strcspn(at, ") ");
    place->word = args_word_x86(at, length);
    at += length;
    if (place->word < 0 || (place->how == GP_ARG_MEMORY && *at++ != ')'))
        return NULL;
    return at;
}

/* reg, number, [reg] or [reg, number]. */
static const char *args_place_arm(const char *at, struct args_place *place)
{
    if (*at == '-' || (*at >= '0' && *at <= '9')) {
        place->how = GP_ARG_CONSTANT;
        return args_number(&at, &place->value) ? at : NULL;
    }
    place->how = *at == '[' ? GP_ARG_MEMORY : GP_ARG_REGISTER;
    at += place->how == GP_ARG_MEMORY;
    size_t length = strcspn(at, "], ");
    place->word = args_word_arm(at, length);
    at += length;
    if (place->word < 0)
        return NULL;
    if (place->how == GP_ARG_MEMORY) {
        if (*at == ',') {
            at += 1 + strspn(at + 1, " ");
            if (!args_number(&at, &place->value))
                return NULL;
        }
        if (*at++ != ']')
            return NULL;
    }
    return at;
}

/* Parses one "SIZE@WHERE". */
static int args_one(unsigned machine, const char **text, uint32_t *spec)
{
    char *end;
    long size = strtol(*text, &end, 10);
    struct args_place place = {0};
    if (*end != '@' || (labs(size) != 8 && labs(size) != 4))
        return -EINVAL;
    const char *at = machine == EM_AARCH64 ? args_place_arm(end + 1, &place) : args_place_x86(end + 1, &place);
    if (!at || (*at != ' ' && *at != '\0'))
        return -EINVAL;
    *spec = GP_ARG(place.word, place.how, labs(size) == 4, place.value);
    *text = at + strspn(at, " ");
    return 0;
}

int gp_bpf_arguments_of(unsigned machine, const char *text, uint64_t *cookie)
{
    uint32_t first, second;
    if (args_one(machine, &text, &first) || args_one(machine, &text, &second))
        return -EINVAL;
    *cookie = first | (uint64_t)second << 32;
    return 0;
}
