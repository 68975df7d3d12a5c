/* SPDX-License-Identifier: MIT
 *
 * fuzz_trace.c: feeds bytes to the readers of traces.  Nothing may crash, hang, leak or read out of bounds; a trace
 * that is accepted keeps every promise of trace.h, and its text form reads back as the same text.
 *
 *   clang -fsanitize=fuzzer,address,undefined -Iinclude -Icore -Isrc -Itools -Itests ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files named as arguments, and each with every byte changed in four
 * ways and cut at every length.  Prints "N inputs".
 */
#include <convert/replay/replay.h>
#include <fuzz/limits.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t accepted, refused;

static void promise(bool kept)
{
    if (!kept)
        abort();
}

/* Block ids are allocated once, in order, freed at most once, and used only in between. */
static void check(const struct gp_replay_trace *trace)
{
    uint8_t *state = calloc(trace->blocks + 1u, 1);
    uint32_t born = 0;
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct gp_replay_op *op = &trace->ops[i];
        promise(op->kind < GP_REPLAY_KINDS && op->thread < trace->threads && op->device < trace->devices);
        promise(op->stream == GP_REPLAY_ANY || op->stream < trace->streams);
        if (op->kind == GP_REPLAY_ALLOC) {
            promise(op->block == born++ && op->bytes <= GP_REPLAY_BYTES && op->stream != GP_REPLAY_ANY);
            state[op->block] = 1;
        } else if (op->kind == GP_REPLAY_FREE || op->kind == GP_REPLAY_RECORD) {
            promise(op->block < trace->blocks && state[op->block] == 1);
            promise(op->kind == GP_REPLAY_FREE || op->stream != GP_REPLAY_ANY);
            state[op->block] = op->kind == GP_REPLAY_FREE ? 2 : 1;
        } else if (op->kind == GP_REPLAY_MARK) {
            promise(op->block < trace->name_count);
        }
    }
    promise(born == trace->blocks);
    free(state);
}

static char *text_of(const struct gp_replay_trace *trace, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    promise(out && gp_replay_write(out, trace) == 0);
    fclose(out);
    return text;
}

static void again(const struct gp_replay_trace *trace)
{
    struct gp_replay_trace second;
    struct gp_replay_problem problem;
    size_t bytes, second_bytes;
    char *text = text_of(trace, &bytes);
    promise(gp_replay_read(&second, (const uint8_t *)text, bytes, &problem) == 0);
    char *second_text = text_of(&second, &second_bytes);
    promise(bytes == second_bytes && memcmp(text, second_text, bytes) == 0);
    gp_replay_trace_free(&second);
    free(second_text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    limits_begin();
    int rc = gp_replay_read(&trace, data, size, &problem);
    limits_end(data, size);
    if (rc) {
        promise(problem.text[0] && !trace.ops && trace.count == 0);
        refused++;
        return 0;
    }
    accepted++;
    check(&trace);
    again(&trace);
    gp_replay_trace_free(&trace);
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

int main(int argc, char **argv)
{
    return replay_all(argc, argv, NULL, &accepted, &refused);
}
#endif
