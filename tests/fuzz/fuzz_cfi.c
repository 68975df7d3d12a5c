/* SPDX-License-Identifier: MIT
 *
 * fuzz_cfi.c: feeds arbitrary unwind tables to the reader.  It must read nothing outside the given bytes, and a rule
 * that it returns must be one that native.c can apply.
 *
 *   clang -fsanitize=fuzzer,address,undefined ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files and folders named as arguments, each also with every byte of it
 *   changed in turn and cut off after every byte.  Prints "N inputs".
 *
 * Input: {where .eh_frame_hdr is, which pc: 4 bytes each, little-endian}, then a segment.  The test looks up that pc and
 * some after each of the first locations in the search table.
 */
#include "stack/internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD   8
#define PLACES 64

static uint64_t answers[3];

static void ask(const struct gp_cfi_table *table, uint64_t pc)
{
    struct gp_cfi_rule rule;
    enum gp_cfi_answer answer = gp_cfi_find(table, pc, &rule);
    if (answer > GP_CFI_END)
        abort();
    answers[answer]++;
    if (answer != GP_CFI_RULE)
        return;
    if ((rule.base != GP_CFI_BP && rule.base != GP_CFI_SP) || rule.deref > 1 || rule.bp > GP_CFI_SP ||
        rule.ra < GP_CFI_CFA || rule.ra > GP_CFI_SP || (!rule.deref && rule.add))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t header, pc;
    int32_t place;
    if (size < HEAD + 1)
        return 0;
    memcpy(&header, data, 4);
    memcpy(&pc, data + 4, 4);
    size -= HEAD;
    if (header >= size)
        return 0;
    /* A mapping of its own, so that the sanitizer sees its end; aligned no better than a section
     * is. */
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, data + HEAD, size);
    struct gp_cfi_table table = {copy, copy + size, copy + header};
    uint64_t base = (uint64_t)(uintptr_t)table.header;
    ask(&table, base + (uint64_t)(int64_t)(int32_t)pc);
    ask(&table, 0);
    ask(&table, UINT64_MAX);
    for (size_t i = 0, at = header + 12; i < PLACES && at + 8 <= size; i++, at += 8) {
        memcpy(&place, copy + at, 4);
        for (unsigned behind = 1; behind <= 64; behind *= 2)
            ask(&table, base + (uint64_t)(int64_t)place + behind);
    }
    free(copy);
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

/* The inputs that a fuzzer starts from. */
static void damage(const char *path)
{
    static uint8_t data[1 << 16], damaged[1 << 16];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(data, 1, sizeof data, file) : 0;
    if (file)
        fclose(file);
    for (size_t i = 0; i < n; i++) {
        static const uint8_t values[] = {0x00, 0x7f, 0x80, 0xff, 0x10};
        memcpy(damaged, data, n);
        for (unsigned v = 0; v < sizeof values; v++) {
            damaged[i] = v < 4 ? values[v] : (uint8_t)(data[i] ^ values[v]);
            LLVMFuzzerTestOneInput(damaged, n);
        }
        LLVMFuzzerTestOneInput(data, i);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        replay(argv[i]);
        if (answers[GP_CFI_RULE] == 0) {
            printf("%s: no rule came out\n0 passed, 1 failed\n", argv[i]);
            return 1;
        }
        answers[GP_CFI_RULE] = 0;
        damage(argv[i]);
        answers[GP_CFI_RULE] = 0;
    }
    printf("%llu inputs\n", (unsigned long long)inputs);
    return inputs == 0;
}
#endif
