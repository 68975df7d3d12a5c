/* SPDX-License-Identifier: MIT
 *
 * test_rank_leaks.c: `gpuprof leaks` of the recordings of a made-up job: which ranks leak and where, which are unlike
 * them, and which are not in the answer.
 */
#include "integration/command.h"
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char line[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    cr_assert_eq(system(line), 0, "%s", line);
}

static void begin(void)
{
    strcpy(folder, "/tmp/gpuprof-test-rank-leaks-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void end(void)
{
    shell("rm -rf %s", folder);
}

TestSuite(rank_leaks, .init = begin, .fini = end, .timeout = 120);

/* mkranks.c says which ranks are unlike the others. */
static void make(const char *into, const char *world, unsigned events, const char *job)
{
    shell("mkdir -p %s && %s %s %s %u %s", into, path_program("../jobs/mkranks"), into, world, events, job);
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "no number %s", key);
    return json_integer_value(value);
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    cr_assert(value, "no text %s", key);
    return value;
}

/* Each rank of the spans is in `there` once. */
static uint32_t ranks_of(const json_t *spans)
{
    uint32_t there = 0;
    for (size_t i = 0; i < json_array_size(spans); i++)
        for (json_int_t rank = json_integer_value(json_array_get(json_array_get(spans, i), 0));
             rank <= json_integer_value(json_array_get(json_array_get(spans, i), 1)); rank++) {
            cr_expect(!(there & 1u << rank), "rank %d is in two spans", (int)rank);
            there |= 1u << rank;
        }
    return there;
}

static const json_t *row_with(const json_t *top, uint32_t ranks)
{
    const json_t *rows = json_object_get(top, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (ranks_of(json_object_get(json_array_get(rows, i), "ranks")) == ranks)
            return json_array_get(rows, i);
    cr_assert_fail("no row has the ranks %#x: %s", ranks, said.out);
    return NULL;
}

static void expect_grown(const json_t *row, const char *name, double bytes)
{
    const json_t *grown = json_object_get(row, "grown"), *first = json_array_get(grown, 0);
    cr_assert_eq(json_array_size(grown), 1);
    cr_expect(strstr(text(first, "name"), name), "%s, not %s", text(first, "name"), name);
    for (size_t end = 0; end < 2; end++)
        cr_expect_float_eq(json_number_value(json_array_get(json_object_get(first, "growth_bytes"), end)), bytes, 1);
}

/* Of 16 ranks, 12 leak alike, one leaks at another line, one does not, one is damaged and one has no recording. */
#define ALIKE (0xffffu & ~(1u << 3 | 1u << 5 | 1u << 9 | 1u << 11))

static void expect_all(const json_t *top, const char *answer, const char *per)
{
    cr_expect_str_eq(text(top, "schema"), "gpuprof.leaks-ranks/1");
    cr_expect_eq(number(top, "recordings"), 14);
    cr_expect_eq(number(top, "different_ranks"), 14);
    cr_expect_eq(number(top, strcmp(answer, "suspects") == 0 ? "suspect_recordings" : "candidate_recordings"), 13);
    cr_expect_eq(number(top, strcmp(answer, "suspects") == 0 ? "none_recordings" : "unknown_recordings"), 1);
    cr_expect_eq(number(top, strcmp(answer, "suspects") == 0 ? "unknown_recordings" : "none_recordings"), 0);
    cr_expect_eq(number(top, "groups"), 3);
    cr_expect_eq(number(top, "world_size"), 16);
    cr_expect_eq(ranks_of(json_object_get(top, "missing_ranks")), 1u << 9 | 1u << 11);
    cr_expect_eq(json_array_size(json_object_get(top, "left_out")), 1);
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 14);
    const json_t *most = row_with(top, ALIKE), *other = row_with(top, 1u << 3), *none = row_with(top, 1u << 5);
    cr_expect_str_eq(text(most, "answer"), answer);
    cr_expect_eq(number(most, "recordings"), 12);
    expect_grown(most, "keep_history (model.py:320)", 1 << 20);
    cr_expect_str_eq(text(json_array_get(json_object_get(most, "grown"), 0), "per"), per);
    cr_expect_str_eq(text(other, "answer"), answer);
    expect_grown(other, "cache_outputs (model.py:330)", 1 << 20);
    cr_expect_str_eq(text(none, "answer"), strcmp(answer, "suspects") == 0 ? "none" : "unknown");
    cr_expect_eq(json_array_size(json_object_get(none, "grown")), 0);
    const json_t *unlike = json_object_get(top, "unlike");
    cr_assert_eq(json_array_size(unlike), 2);
    for (size_t i = 0; i < 2; i++)
        cr_expect_neq(number(json_array_get(unlike, i), "group"), number(most, "group"));
}

Test(rank_leaks, alike_in_one_row_and_unlike_by_name)
{
    make(folder, "16", 2000, "leaks");
    shell("cd %s && echo no > run.rank9.gpuprof && rm run.rank11.gpuprof", folder);
    command(1, "leaks", folder, NULL);
    WARNS("run.rank9.gpuprof: not a recording");
    WARNS("1 of 15 recordings left out");
    SAYS("14 recordings of 14 ranks\n      13 leak\n       1 does not leak");
    SAYS("note: 1 of 15 files are left out");
    SAYS("missing: 2 of the job's 16 ranks have no recording here: 9, 11");
    SAYS("\nranks 0-2,4,6-8,10,12-15: 1.000 MiB per step at keep_history (model.py:320)");
    SAYS("20.00 MiB in 20 blocks (linear) on each; confidence 100 %; device full in ");
    SAYS("\nrank 3: 1.000 MiB per step at cache_outputs (model.py:330)");
    SAYS("keep_history (model.py:320)  linear, which grows on most ranks, does not grow here");
    SAYS("\nrank 5: no suspects: no call site holds more with every step");
    SAYS("nothing grows here, and keep_history (model.py:320)  linear leaks on most ranks");
    command(1, "leaks", folder, "--json", NULL);
    json_t *top = said_json();
    expect_all(top, "suspects", "step");
    json_decref(top);
    command(3, "leaks", folder, "--error-exitcode=3", NULL);
}

/* Layers of one pass look the same, so none of these ranks is accused, and none is acquitted. */
Test(rank_leaks, candidates_are_no_leaks_and_not_none)
{
    make(folder, "16", 2000, "unmarked");
    shell("cd %s && echo no > run.rank9.gpuprof && rm run.rank11.gpuprof", folder);
    command(1, "leaks", folder, "--json", NULL);
    json_t *top = said_json();
    expect_all(top, "candidates", "repeat");
    cr_expect(json_is_null(json_object_get(top, "full_first")));
    json_decref(top);
    command(1, "leaks", folder, "--error-exitcode=3", NULL);
    SAYS("13 have candidates alone: it is not known whether they leak");
    SAYS("\nrank 5: it cannot be known: what repeats may be parts of one step; no call site holds more with each\n");
    SAYS("\nranks 0-2,4,6-8,10,12-15: candidate, of which it is not known whether it leaks\n     1.000 MiB "
         "per "
         "repeat at keep_history (model.py:320)");
    SAYS("If these are steps, it keeps 1.000 MiB of each, and the device is full in ");
    SAYS_NOT("; device full");
}

/* Too few steps, steps of no such name, lost events, and recordings that end where their writer was killed. */
Test(rank_leaks, what_cannot_be_known_is_not_none)
{
    char other[96];
    snprintf(other, sizeof(other), "%s/few", folder);
    make(folder, "8", 2000, "even");
    make(other, "8", 150, "even");
    shell("cd %s && cp few/run.rank2.gpuprof . && cp few/run.rank6.gpuprof .", folder);
    command(0, "leaks", folder, NULL);
    SAYS("       2 cannot be known\n       6 do not leak: nothing grows with their steps\n");
    SAYS("\nranks 2,6: it cannot be known: fewer than 4 steps");
    SAYS("\nranks 0-1,3-5,7: no suspects: no call site holds more with every step");
    command(0, "leaks", folder, "--step=step", "--json", NULL);
    json_t *top = said_json();
    cr_expect_eq(number(top, "unknown_recordings"), 2);
    cr_expect_eq(number(top, "none_recordings"), 6);
    json_decref(top);
    command(2, "leaks", folder, "--step=stepp", NULL);
    WARNS("--step=stepp: no mark and no NVTX range of that name occurs twice");
    WARNS("; the recording has mark 'step' (");
    WARNS("is one of 8 recordings, and none has such a step");
    make(other, "8", 2000, "unmarked");
    shell("cp %s/run.rank5.gpuprof %s && cp %s/run.rank1.gpuprof %s", other, folder, other, folder);
    command(0, "leaks", folder, "--step=step", NULL);
    SAYS("\nranks 1,5: it cannot be known: it has no mark and no NVTX range of the name of --step");
    command(0, "leaks", folder, NULL);
    SAYS("       1 has candidates alone");
    /* The end of the file is lost, and with it most of the steps. */
    shell("cd %s && rm few/* && truncate -s 3000 run.rank7.gpuprof", folder);
    command(0, "leaks", folder, NULL);
    SAYS("note: the recordings of rank 7 end early");
    SAYS("\nranks 2,6-7: it cannot be known: fewer than 4 steps");
}

/* Blocks of the file in the middle are lost, and the steps around them are known.  And where every block is too young. */
Test(rank_leaks, of_what_is_lost_nothing_is_known)
{
    make(folder, "4", 200000, "even");
    shell("f=%s/run.rank2.gpuprof; printf '\\377\\376\\375' | dd of=$f bs=1 seek=$(($(stat -c %%s $f) * 2 / 3)) "
          "conv=notrunc 2>/dev/null",
          folder);
    command(0, "leaks", folder, NULL);
    SAYS("       1 cannot be known\n       3 do not leak");
    SAYS("note: the recordings of rank 2 lack events: blocks may be missing there or appear to live too long");
    SAYS("\nrank 2: it cannot be known: events are missing in it, and in what is left nothing grows");
    command(0, "leaks", folder, "--json", NULL);
    json_t *top = said_json();
    const json_t *rank = json_array_get(json_object_get(top, "ranks"), 0);
    cr_expect_eq(number(rank, "rank"), 2);
    cr_expect_eq(number(rank, "damaged_blocks"), 1);
    json_decref(top);
    command(0, "leaks", folder, "--older=1000", NULL);
    SAYS("4 recordings of 4 ranks\n       4 cannot be known\n");
    SAYS("it is shorter than --older, so no block is as old");
}

/* A folder of one recording has the document of many; one file alone has that of one recording. */
Test(rank_leaks, one_file_and_a_folder_of_one)
{
    char file[96];
    make(folder, "1", 2000, "leaks");
    snprintf(file, sizeof(file), "%s/run.rank0.gpuprof", folder);
    command(0, "leaks", folder, "--json", NULL);
    json_t *top = said_json();
    cr_expect_str_eq(text(top, "schema"), "gpuprof.leaks-ranks/1");
    const json_t *rank = json_array_get(json_object_get(top, "ranks"), 0), *many = json_object_get(rank, "suspects");
    command(0, "leaks", file, "--json", NULL);
    json_t *one = said_json();
    const json_t *first = json_array_get(json_object_get(one, "suspects"), 0), *row = json_array_get(many, 0);
    cr_expect_str_eq(text(one, "schema"), "gpuprof.leaks/1");
    cr_assert_eq(json_array_size(many), 1);
    static const char *const same[] = {
        "live_bytes",     "live_count",    "bytes_per_step",  "bytes_per_second", "confidence", "seconds_to_oom",
        "oldest_seconds", "grows_seconds", "allocated_bytes", "freed_bytes",      "evidence",   "owner",
        "kind",           "name",          "device"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        cr_expect(json_equal(json_object_get(row, same[i]), json_object_get(first, same[i])), "%s", same[i]);
    json_decref(top);
    json_decref(one);
    command(1, "leaks", file, "/nowhere.gpuprof", NULL);
    WARNS("/nowhere.gpuprof");
    SAYS("1 recording of 1 rank\n");
    shell("rm %s/*", folder);
    command(1, "leaks", folder, NULL);
    WARNS("no recording is in this folder");
}

/* torchrun has a recording beside those of its ranks.  Another process without a rank is not one of them either, and what
 * it held is in no number. */
Test(rank_leaks, a_process_without_a_rank_is_none)
{
    char option[128];
    make(folder, "6", 2000, "launcher");
    command(0, "leaks", folder, NULL);
    SAYS("6 recordings of 6 ranks\n       6 do not leak");
    WARNS("run.gpuprof: it names no rank and held no GPU memory, as the recording of a launcher");
    command(0, "report", folder, NULL);
    SAYS("\n6 ranks, ");
    SAYS_NOT("left out");
    command(0, "diff", folder, folder, NULL);
    WARNS("run.gpuprof: it names no rank and held no GPU memory");
    snprintf(option, sizeof(option), "--record=%s/other.gpuprof", folder);
    command(0, "run", "--sim", option, "--", path_program("ends"), NULL);
    command(1, "leaks", folder, NULL);
    SAYS("6 recordings of 6 ranks\n       6 do not leak");
    WARNS("other.gpuprof: it names no rank, and 6 recordings are of a job of 6 ranks; it is left out");
    shell("rm %s/run.rank[1-5].gpuprof", folder); /* one of two tells a rank: nothing says what the other is */
    command(0, "leaks", folder, NULL);
    SAYS("2 recordings of ");
}
