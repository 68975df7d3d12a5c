/* SPDX-License-Identifier: MIT
 *
 * test_ranks.c: the recordings of four ranks of a job, one of which holds more at a known call site,
 * as `gpuprof report` compares them; and one recording as a snapshot of PyTorch, with equal totals.
 */
#include "integration/command.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ll << 20)

static void folder_make(char folder[64])
{
    strcpy(folder, "/tmp/gpuprof-test-ranks-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void folder_remove(const char *folder)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", folder);
    cr_expect_eq(system(line), 0);
}

/* `which` of the four holds more. Their recordings are the four `files`. */
static void record(const char *folder, const char *which, char files[4][96])
{
    char option[128], text[2];
    snprintf(option, sizeof(option), "--record=%s/run.gpuprof", folder);
    setenv("WORLD_SIZE", "4", 1);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "%d", i);
        setenv("RANK", text, 1);
        setenv("LOCAL_RANK", text, 1);
        command(0, "run", "--sim=memory=2GiB", "--stacks=native", option, "--", path_program("ranks"), which, NULL);
        snprintf(files[i], sizeof(files[i]), "%s/run.rank%d.gpuprof", folder, i);
    }
    unsetenv("RANK");
    unsetenv("LOCAL_RANK");
    unsetenv("WORLD_SIZE");
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "no number %s", key);
    return json_integer_value(value);
}

Test(ranks, worst_comes_first)
{
    char folder[64], files[4][96], page[96];
    struct stat there;
    folder_make(folder);
    record(folder, "2", files);
    command(0, "report", files[0], files[1], files[2], files[3], "--json", NULL);
    json_t *top = said_json();
    cr_expect_str_eq(json_string_value(json_object_get(top, "schema")), "gpuprof.ranks/1");
    cr_expect_str_eq(json_string_value(json_object_get(top, "clock")), "monotonic");
    cr_expect_eq(number(top, "median_peak_bytes"), 96 * MIB);
    cr_expect_eq(number(top, "highest_peak_bytes"), 164 * MIB);
    const json_t *ranks = json_object_get(top, "ranks"), *worst = json_array_get(ranks, 0);
    cr_assert_eq(json_array_size(ranks), 4);
    cr_expect_eq(number(worst, "rank"), 2);
    cr_expect_eq(number(worst, "world_size"), 4);
    cr_expect_eq(number(worst, "above_median_bytes"), 68 * MIB);
    cr_expect_eq(number(worst, "allocated_end_bytes"), 132 * MIB);
    cr_expect_eq(number(json_array_get(ranks, 1), "rank"), 0);
    cr_expect_eq(number(json_array_get(ranks, 1), "above_median_bytes"), 0);
    const json_t *sites = json_object_get(top, "sites"), *site = json_array_get(sites, 0);
    cr_expect(strstr(json_string_value(json_object_get(site, "site")), "gather_on_one"));
    cr_expect_eq(number(site, "worst_bytes"), 68 * MIB);
    cr_expect_eq(number(site, "median_bytes"), 0);
    cr_expect_eq(number(site, "holders"), 1);
    json_decref(top);
    command(0, "report", files[3], files[2], files[0], NULL);
    cr_expect_eq(strncmp(said.out, "Rank 2 peaks at 164.0 MiB, 68.00 MiB above the median: gather_on_one", 68), 0, "%s",
                 said.out);
    snprintf(page, sizeof(page), "%s/ranks.html", folder);
    command(0, "report", files[0], files[1], "-o", page, NULL);
    cr_expect(stat(page, &there) == 0 && there.st_size > 200000 && there.st_size < 600000);
    command(0, "report", files[3], files[0], files[1], NULL);
    SAYS("\n  0-1,3  96.00 MiB        +0 B  96.00 MiB");
    SAYS_NOT("\n      0 ");
    command(1, "report", files[0], "/nowhere.gpuprof", NULL);
    WARNS("/nowhere.gpuprof");
    folder_remove(folder);
}

/* A library that forgets to choose its GPU takes the first one, which is another rank's. */
Test(ranks, one_is_on_the_gpu_of_another)
{
    char folder[64], option[128], files[2][96], script[600];
    const char *program = path_program("ranks");
    folder_make(folder);
    snprintf(option, sizeof(option), "--record=%s/run.gpuprof", folder);
    snprintf(script, sizeof(script), "RANK=0 %s stray & RANK=1 %s stray & wait", program, program);
    setenv("WORLD_SIZE", "2", 1);
    command(0, "run", "--sim=devices=2,memory=2GiB", "--stacks=native", option, "--", "sh", "-c", script, NULL);
    unsetenv("WORLD_SIZE");
    for (int i = 0; i < 2; i++)
        snprintf(files[i], sizeof(files[i]), "%s/run.rank%d.gpuprof", folder, i);
    command(0, "report", files[0], files[1], NULL);
    SAYS("lie within 0 B of each other, each on its fullest GPU. Rank 1 also holds 20.00 MiB on GPU 0, where rank 0 "
         "holds 64.00 MiB: scratch_on_first");
    SAYS("2 ranks, together at most 84.00 MiB");
    command(0, "report", files[0], files[1], "--json", NULL);
    json_t *top = said_json();
    const json_t *first = json_array_get(json_object_get(top, "ranks"), 0),
                 *gpus = json_object_get(json_array_get(json_object_get(top, "ranks"), 1), "gpus");
    cr_expect_eq(number(first, "rank"), 0, "the GPU of rank 0 is the fullest");
    cr_expect_eq(number(first, "headroom_bytes"), 2048 * MIB - 84 * MIB);
    cr_assert_eq(json_array_size(gpus), 2);
    cr_expect_eq(number(json_array_get(json_object_get(first, "gpus"), 0), "shared"), 1);
    json_decref(top);
    folder_remove(folder);
}

Test(ranks, diff_pairs_the_ranks_of_two_runs)
{
    char folders[2][64], files[8][96];
    for (int run = 0; run < 2; run++) {
        folder_make(folders[run]);
        record(folders[run], run ? "1" : "none", files + run * 4);
    }
    command(0, "diff", "--json", files[0], files[1], files[2], files[3], files[4], files[5], files[6], files[7], NULL);
    json_t *top = said_json();
    const json_t *ranks = json_object_get(top, "ranks"), *row = json_array_get(ranks, 1);
    cr_assert_eq(json_array_size(ranks), 4);
    cr_expect_eq(number(top, "rank"), 1);
    cr_expect_eq(number(row, "rank"), 1);
    cr_expect_eq(number(row, "peak_bytes_before"), 96 * MIB);
    cr_expect_eq(number(row, "peak_bytes_after"), 164 * MIB);
    json_decref(top);
    command(2, "diff", files[0], files[1], files[2], NULL);
    WARNS("rank 0 has 1 recording");
    folder_remove(folders[0]);
    folder_remove(folders[1]);
}

/* ---- many ranks, in a folder ------------------------------------------------------------------------------------- */

static void job_make(const char *folder, const char *world)
{
    char line[256];
    snprintf(line, sizeof(line), "%s %s %s 500", path_program("../jobs/mkranks"), folder, world);
    cr_assert_eq(system(line), 0);
}

/* mkranks.c says which ranks are unlike the others, and why. */
Test(ranks, alike_in_one_row_and_unlike_by_name)
{
    char folder[64];
    folder_make(folder);
    job_make(folder, "24");
    command(0, "report", folder, NULL);
    SAYS("21 of 24 ranks are alike");
    SAYS("  0-2,4,6,8-23  7.");
    SAYS("      5  gather_metrics (model.py:310)  linear holds 2.000 GiB, and 0 B on the median rank");
    SAYS("      7  its GPU is Made-up GPU, 40 GiB of 40.00 GiB, and that of most ranks Made-up GPU, 80 GiB of 80.00 "
         "GiB");
    SAYS("      3  keep_history (model.py:320)  linear grows by ");
    SAYS_NOT("missing");
    command(0, "report", folder, "--json", NULL);
    json_t *top = said_json();
    cr_expect_eq(number(top, "groups"), 4);
    cr_expect_eq(number(top, "world_size"), 24);
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 24);
    cr_expect_eq(json_array_size(json_object_get(top, "unlike")), 3);
    cr_expect_eq(json_array_size(json_object_get(top, "missing_ranks")), 0);
    json_decref(top);
    folder_remove(folder);
}

Test(ranks, diff_of_two_folders)
{
    char before[64], after[64], line[200];
    folder_make(before);
    folder_make(after);
    snprintf(line, sizeof(line), "%s %s 24 500 even", path_program("../jobs/mkranks"), before);
    cr_assert_eq(system(line), 0);
    job_make(after, "24");
    command(0, "diff", before, after, NULL);
    SAYS("                       5   7.321 GiB   9.321 GiB  +2.000 GiB   +2.000 GiB\n");
    SAYS("\nrank 5, whose peak changed most:\n");
    command(2, "diff", before, path_program("ranks"), NULL);
    WARNS("is a folder and ");
    folder_remove(before);
    folder_remove(after);
}

/* A job that was started again into the same folder: the run with most recordings is the one that is shown. */
Test(ranks, another_run_of_a_rank_is_left_out)
{
    char folder[64], other[64], line[400];
    folder_make(folder);
    folder_make(other);
    snprintf(line, sizeof(line), "%s %s 6 500 even && %s %s 6 500 even 1000 && cp %s/run.rank4.gpuprof %s/x.gpuprof",
             path_program("../jobs/mkranks"), folder, path_program("../jobs/mkranks"), other, other, folder);
    cr_assert_eq(system(line), 0);
    command(1, "report", folder, NULL);
    SAYS("\n6 ranks, ");
    WARNS("x.gpuprof: it is rank 4 of a later run than the one taken, of which 6 of 7 recordings are; it is left out");
    snprintf(line, sizeof(line), "rm %s/run.rank4.gpuprof", folder);
    cr_assert_eq(system(line), 0);
    command(0, "report", folder, NULL); /* nothing says that it is not of the job */
    SAYS("\n6 ranks, ");
    folder_remove(folder);
    folder_remove(other);
}

/* One has no recording, one is damaged, one is of another job, and one of an earlier run. */
Test(ranks, what_is_not_of_the_job_is_named_and_left_out)
{
    char folder[64], other[64], line[512];
    folder_make(folder);
    folder_make(other);
    job_make(folder, "24");
    job_make(other, "8");
    snprintf(line, sizeof(line),
             "cd %s && rm run.rank9.gpuprof && echo no > run.rank11.gpuprof && cp %s/run.rank2.gpuprof other.gpuprof "
             "&& echo text > train.log",
             folder, other);
    cr_assert_eq(system(line), 0);
    command(1, "report", folder, NULL);
    SAYS("note: 2 of 24 files are left out");
    SAYS("missing: 2 of the job's 24 ranks have no recording here: 9, 11");
    WARNS("run.rank11.gpuprof: not a recording");
    WARNS("other.gpuprof: it is rank 2 of a job of 8 ranks, and 22 of 23 recordings are of one of 24; it is left out");
    WARNS("2 of 24 recordings left out");
    command(1, "report", folder, "--json", NULL);
    json_t *top = said_json();
    const json_t *missing = json_object_get(top, "missing_ranks"), *left = json_object_get(top, "left_out");
    cr_assert_eq(json_array_size(missing), 2);
    cr_expect_eq(json_integer_value(json_array_get(json_array_get(missing, 1), 0)), 11);
    cr_assert_eq(json_array_size(left), 2);
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 22);
    json_decref(top);
    snprintf(line, sizeof(line), "rm %s/*.gpuprof", other);
    cr_assert_eq(system(line), 0);
    command(1, "report", other, NULL);
    WARNS("no recording is in this folder");
    folder_remove(folder);
    folder_remove(other);
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

static void round_trip(const char *folder, const char *allocator)
{
    static const char *const keys[] = {"allocated_peak_bytes", "allocated_end_bytes", "reserved_peak_bytes",
                                       "reserved_end_bytes"};
    char option[128], file[96], pickle[96];
    snprintf(file, sizeof(file), "%s/%s.gpuprof", folder, allocator);
    snprintf(pickle, sizeof(pickle), "%s/%s.pickle", folder, allocator);
    snprintf(option, sizeof(option), "--record=%s", file);
    command(0, "run", "--sim=memory=4GiB", "--allocator", allocator, option, "--", path_program("leak_branch"), NULL);
    command(0, "snapshot", file, "-o", pickle, NULL);
    command(0, "report", "--json", file, NULL);
    json_t *want = said_json();
    command(0, "report", "--json", pickle, NULL);
    json_t *have = said_json();
    const json_t *format = json_object_get(json_object_get(have, "recording"), "format");
    cr_expect_str_eq(json_string_value(format), "pytorch");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        cr_expect_eq(number(json_array_get(json_object_get(have, "devices"), 0), keys[i]),
                     number(json_array_get(json_object_get(want, "devices"), 0), keys[i]), "%s: %s", allocator,
                     keys[i]);
    json_decref(want);
    json_decref(have);
}

Test(ranks, snapshot_has_the_totals_of_its_recording)
{
    char folder[64];
    folder_make(folder);
    round_trip(folder, "off");
    round_trip(folder, "pytorch");
    folder_remove(folder);
}
