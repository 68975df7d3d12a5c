/* SPDX-License-Identifier: MIT
 *
 * test_dryrun_world.c: `gpuprof dryrun --world`: some ranks of a job run, the others do not.
 */
#include <base/compiler.h>

#include "integration/dryruncase.h"

TestSuite(world, .init = work_begin, .fini = work_end, .timeout = 120);

static void stands_for(json_t *row, const int *ranks, size_t count)
{
    json_t *list = json_object_get(row, "stands_for");
    cr_assert_eq(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(json_integer_value(json_array_get(list, i)), ranks[i]);
}

/* Each rank has the variables of torchrun, and a device of its own on its node; nodes share no device. */
Test(world, ranks_of_a_list)
{
    json_t *top = dryrun_json("--gpu=t4 --json --world=512 --local-world=4 --ranks=5,9-10 -- %s local=64", 0);
    cr_expect_eq(number(top, "world"), 512);
    cr_expect_eq(number(top, "world_unanswered"), 509);
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 2); /* 5 and 9 have the same place on their nodes */
    for (size_t i = 0; i < 2; i++) {
        static const int ranks[][2] = {{5, 9}, {10}};
        long long rank = ranks[i][0];
        cr_expect_eq(number(at(top, "ranks", i), "rank"), rank);
        cr_expect_eq(number(at(top, "ranks", i), "device"), rank % 4);
        cr_expect_eq(number(at(top, "ranks", i), "allocated_peak_bytes"), (64 + 64 * (rank % 4)) / 4 * 5 * MIB);
        stands_for(at(top, "ranks", i), ranks[i], 2 - i);
    }
    /* They do not add up: they are on two nodes. */
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), number(at(top, "ranks", 1), "needed_bytes"));
    json_decref(top);
}

Test(world, ranks_that_are_alike_share_a_row)
{
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    json_t *top = dryrun_json("--gpu=t4 --json --world=8 --local-world=4 -- %s mib=64", 0);
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 1);
    stands_for(at(top, "ranks", 0), all, 8);
    cr_expect_eq(number(top, "world_unanswered"), 0);
    json_decref(top);
    top = dryrun_json("--gpu=t4 --json --world=3 --ranks=all --jobs=1 -- %s mib=64", 0);
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 1);
    stands_for(at(top, "ranks", 0), all, 3);
    json_decref(top);
    dryrun("--gpu=t4 --world=8 --ranks=1,2 -- %s mib=64", 0);
    SAYS("6 of the 8 ranks did not run, and no row stands for them");
    WARNS_NOT("in the answer");
}

/* A program that sends to an absent rank says so in a file, as the stand-in for NCCL does; here a shell does.  The run that has
 * shown it does not go on with the ranks that it has found: each turn has rank 0. */
Test(world, stages_of_pipelines_are_followed)
{
    static const int first[] = {0, 1, 2};
    char line[512], turns[128];
    FILE *file;
    snprintf(line, sizeof(line),
             "--gpu=t4 --json --world=16 -- /bin/sh -c echo\t$GPUPROF_SIM_RANKS>>%s/turns;"
             "[\t$RANK\t!=\t0\t]||printf\t'0\\t4\\t0,4,8,12\\n'>>$GPUPROF_SIM_PEERS;"
             "exec\t%%s\tmib=$((64+RANK/4*4))",
             folder);
    json_t *top = dryrun_json(line, 0);
    WARNS("the run begins again with 6 ranks (--ranks=0-1,4,8,12,15 begins with them)");
    snprintf(line, sizeof(line), "%s/turns", folder);
    cr_assert((file = fopen(line, "r")));
    while (fgets(turns, sizeof(turns), file))
        cr_expect(strcmp(turns, "0-1,15\n") == 0 || strcmp(turns, "0-1,4,8,12,15\n") == 0, "%s", turns);
    fclose(file);
    left[0] = "turns";
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 4);
    json_t *list = json_object_get(at(top, "ranks", 0), "stands_for");
    cr_expect_eq(json_array_size(list), 4);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(json_integer_value(json_array_get(list, i)), first[i]);
    list = json_object_get(at(top, "ranks", 3), "stands_for");
    cr_expect_eq(json_integer_value(json_array_get(list, json_array_size(list) - 1)), 15);
    cr_expect_eq(number(top, "world_unanswered"), 0);
    json_decref(top);
}

Test(world, launchers_in_front_are_understood)
{
    json_t *top = dryrun_json("--gpu=t4 --json --world=8 --ranks=5 -- torchrun --standalone --nnodes=2 "
                              "--nproc_per_node 4 -m --no-python %s local=64",
                              0);
    cr_expect_eq(number(at(top, "ranks", 0), "device"), 1);
    json_decref(top);
    top =
        dryrun_json("--gpu=t4 --json --world=8 --ranks=5 -- mpirun -np 8 --mca btl self -N 4 -x GP_A=b %s local=64", 0);
    cr_expect_eq(number(at(top, "ranks", 0), "device"), 1);
    json_decref(top);
    top =
        dryrun_json("--gpu=t4 --json --world=8 --ranks=5 -- srun -n8 --ntasks-per-node=4 --gres=gpu:4 %s local=64", 0);
    cr_expect_eq(number(at(top, "ranks", 0), "device"), 1);
    json_decref(top);
    dryrun("--world=8 -- torchrun --nnodes=2 --nproc-per-node=8 x.py", 2);
    WARNS("--world=8, and torchrun starts 16 ranks: which is it?");
    dryrun("--world=8 --local-world=2 -- mpirun -N 4 x", 2);
    WARNS("--local-world=2, and mpirun starts 4 ranks on a node: which is it?");
    dryrun("--world=8 -- accelerate launch --config_file=c.yaml x.py", 2);
    WARNS("--config_file=c.yaml is an option whose effect is not known here");
    WARNS("gpuprof dryrun --world=8 --local-world=RANKS_OF_A_NODE -- python3 SCRIPT ...");
    dryrun("--world=8 -- python3 -m torch.distributed.run --nproc-per-node=2", 2);
    WARNS("torchrun names no program");
}

Test(world, what_cannot_be_asked)
{
    dryrun("--ranks=0 -- %s mib=1", 2);
    WARNS("--ranks is of a job of --world=N ranks: say how many it has");
    dryrun("--world=4 --ranks=0,4 -- %s mib=1", 2);
    WARNS("--ranks=0,4: rank 4: a job of 4 has the ranks 0 to 3");
    dryrun("--world=4 --ranks=2-1 -- %s mib=1", 2);
    WARNS("not 'auto', 'all' or a list of ranks like 0,8-15");
    dryrun("--world=0 -- %s mib=1", 2);
    dryrun("--world=4 --local-world=5 -- %s mib=1", 2);
    WARNS("--local-world=5: the job has 4 ranks");
    dryrun("--world=4 --devices=2 -- %s mib=1", 2);
    dryrun("--world=4 --jobs=2 -- %s mib=1", 2);
    dryrun("--world=4096 --ranks=all -- %s mib=1", 2);
    WARNS("4096 ranks would run at the same time");
    WARNS("with --jobs=J");
    dryrun("--world=4 -- /nonexistent", 127);
    dryrun("--world=4 -- /bin/false", 1);
    WARNS("no process used a GPU: CMD failed before");
}

/* --steps ends the run when each rank has come so far, and --batch finds the largest that each rank fits with. */
Test(world, steps_and_batches_are_of_all_ranks)
{
    char line[512];
    json_t *top = dryrun_json("--gpu=t4 --json --world=64 --local-world=4 --ranks=0,2 --steps=4 -- /bin/sh -c "
                              "[\t$RANK\t=\t0\t]||sleep\t3;exec\t%s\tmib=$((64+RANK*8))\tmarked=3000",
                              0);
    cr_expect(json_is_true(json_object_get(top, "ended")));
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 2);
    cr_expect_geq(number(at(top, "ranks", 1), "steps"), 4);
    json_decref(top);
    dryrun("--world=64 --ranks=0-3 --jobs=2 --steps=3 -- %s mib=64", 2);
    WARNS("--steps: with --jobs=2 the 4 ranks run in turns");
    snprintf(line, sizeof(line), "%s/script", folder);
    FILE *script = fopen(line, "w");
    cr_assert(script && fprintf(script, "#!/bin/sh\n[ \"$1\" = --local_rank=$LOCAL_RANK ] && exec $2 $3\n") > 0 &&
              fclose(script) == 0 && chmod(line, 0700) == 0);
    snprintf(line, sizeof(line),
             "--gpu=t4 --json --world=8 --local-world=4 --ranks=2,5 --batch=1024 --budget=8GiB -- deepspeed "
             "--num_nodes=2 --num_gpus=4 --no_python %s/script %%s mib={batch}",
             folder);
    top = dryrun_json(line, 0);
    cr_expect_eq(json_array_size(json_object_get(at(top, "ranks", 0), "stands_for")), 2);
    cr_expect_leq(number(at(top, "ranks", 0), "needed_bytes"), 8192 * MIB);
    cr_expect_geq(number(at(top, "ranks", 0), "needed_bytes"), 7000 * MIB);
    json_decref(top);
    left[0] = "script";
}

/* Above the number of processes that are watched at once. */
Test(world, more_ranks_than_are_watched)
{
    json_t *top = dryrun_json("--gpu=t4 --json --world=72 --ranks=all --jobs=12 -- %s local=8", 0);
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 8);
    for (size_t i = 0; i < 8; i++)
        cr_expect_eq(json_array_size(json_object_get(at(top, "ranks", i), "stands_for")), 9);
    cr_expect_eq(number(top, "world_unanswered"), 0);
    json_decref(top);
}

/* Why a rank ended is in the JSON, also where none used a GPU. */
Test(world, the_json_says_why_ranks_ended)
{
    json_t *top = dryrun_json("--gpu=t4 --json --world=4 --ranks=1 -- /bin/sh -c "
                              "echo\trank\t$RANK\tcannot\tgo\ton>>$GPUPROF_SIM_SAYS;exit\t7",
                              1);
    json_t *messages = json_object_get(top, "messages");
    cr_assert_eq(json_array_size(messages), 2);
    cr_expect_str_eq(json_string_value(json_array_get(messages, 0)), "rank 1 cannot go on");
    cr_expect_str_eq(json_string_value(json_array_get(messages, 1)), "rank 1 ended with status 7");
    cr_expect_eq(number(top, "status"), 7);
    json_decref(top);
}

/* One rank that fails ends the others. */
Test(world, a_rank_that_fails_ends_the_job)
{
    dryrun("--gpu=t4 --world=4 --ranks=0,1 -- /bin/sh -c [\t$RANK\t=\t0\t]&&exit\t5;exec\tsleep\t100", 1);
    WARNS("no process used a GPU: CMD failed before");
}

/* Ranks that ran elsewhere, each by itself, are one answer. */
Test(world, recordings_of_ranks_are_merged)
{
    char line[512];
    for (int rank = 0; rank < 3; rank++) {
        snprintf(line, sizeof(line),
                 "--gpu=t4 --world=64 --local-world=4 --ranks=%d --record=%s/r%d.gpuprof -- %%s local=64", rank, folder,
                 rank);
        dryrun(line, 0);
    }
    snprintf(line, sizeof(line),
             "--merge --local-world=4 %s/r0.gpuprof %s/r1.gpuprof %s/r2.gpuprof -o %s/page.html --json", folder, folder,
             folder, folder);
    json_t *top = dryrun_json(line, 0);
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 3);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(number(at(top, "ranks", i), "rank"), (long long)i);
        cr_expect_eq(number(at(top, "ranks", i), "allocated_peak_bytes"), (64 + 64 * (long long)i) / 4 * 5 * MIB);
    }
    cr_expect_eq(number(top, "world"), 64);
    cr_expect_eq(number(top, "world_unanswered"), 61);
    cr_expect_str_eq(json_string_value(json_object_get(at(top, "gpus", 0), "gpu")), "t4");
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), number(at(top, "ranks", 2), "needed_bytes"));
    json_decref(top);
    dryrun("--merge", 2);
    dryrun("--merge /nonexistent.gpuprof", 1);
    WARNS("--merge: no file is an answer or a recording of a rank");
    snprintf(line, sizeof(line), "--merge %s/r0.gpuprof --steps=3", folder);
    dryrun(line, 2);
    WARNS("after the files only -o PAGE, --json and --force may follow");
    left[0] = "r0.gpuprof", left[1] = "r1.gpuprof", left[2] = "r2.gpuprof", left[3] = "page.html";
}

/* The answer of one rank, as a file of the folder. */
static void answer_keep(const char *name, const char *arguments)
{
    char path[128];
    dryrun(arguments, 0);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(said.out, file) >= 0 && fclose(file) == 0);
}

/* An answer has all that the rank's own has: the text of the merged one is the same, but for its times. */
Test(world, answers_of_ranks_are_merged)
{
    char line[512];
    answer_keep("0.json", "--gpu=t4 --json --world=64 --local-world=4 --ranks=0,2 -- %s local=8192");
    json_t *own = said_json();
    answer_keep("1.json", "--gpu=t4 --json --world=64 --local-world=4 --ranks=1 -- %s local=8192");
    snprintf(line, sizeof(line), "--merge %s/0.json %s/1.json --json", folder, folder);
    json_t *top = dryrun_json(line, 0);
    cr_assert_eq(json_array_size(json_object_get(top, "ranks")), 3);
    cr_expect(json_equal(at(top, "ranks", 0), at(own, "ranks", 0)));
    cr_expect(json_equal(at(top, "ranks", 2), at(own, "ranks", 1)));
    cr_expect(json_equal(json_object_get(top, "assumptions"), json_object_get(own, "assumptions")));
    cr_expect(json_equal(json_object_get(top, "command"), json_object_get(own, "command")));
    cr_expect_eq(number(at(top, "gpus", 0), "needed_bytes"), number(at(own, "gpus", 0), "needed_bytes"));
    cr_expect_eq(number(at(top, "gpus", 0), "smallest_bytes"), number(at(own, "gpus", 0), "smallest_bytes"));
    cr_expect_eq(number(top, "world_unanswered"), 61);
    /* The GPU that is enough is found with the memory that an answer has without its context. */
    cr_expect_str_eq(json_string_value(json_object_get(top, "enough")),
                     json_string_value(json_object_get(own, "enough")));
    json_decref(own);
    json_decref(top);
    snprintf(line, sizeof(line), "--merge --budget=100MiB %s/0.json %s/1.json -o %s/p.html", folder, folder, folder);
    dryrun(line, 3);
    SAYS("over the budget of 100.0 MiB");
    WARNS("answers have no events to draw a page of");
    left[0] = "0.json", left[1] = "1.json";
}

/* What is of something else, of another job or damaged is said, and is not in the answer. */
Test(world, what_is_no_part_of_the_job_is_left_out)
{
    static const char *const why[] = {"it is of a job of 32 ranks, and the files before it of one of 64",
                                      "its command is another than that of",
                                      "it is an answer about the GPU a100-40g, not t4",
                                      "rank 0 is in a file before it",
                                      "it begins as JSON and is damaged",
                                      "it is JSON, and no answer of 'gpuprof dryrun --json'",
                                      "it is empty",
                                      "is out of range: the answer is damaged"};
    static const char *const names[] = {"world", "command", "gpu", "again", "cut", "foreign", "empty", "negative"};
    char line[1024];
    answer_keep("0", "--gpu=t4 --json --world=64 --ranks=0 -- %s mib=64");
    answer_keep("world", "--gpu=t4 --json --world=32 --ranks=1 -- %s mib=64");
    answer_keep("command", "--gpu=t4 --json --world=64 --ranks=1 -- %s mib=32");
    answer_keep("gpu", "--gpu=a100-40g --json --world=64 --ranks=1 -- %s mib=64");
    answer_keep("again", "--gpu=t4 --json --world=64 --ranks=0,1 -- %s mib=64");
    snprintf(line, sizeof(line),
             "cd %s; head -c 200 0 >cut; echo '{\"schema\":1}' >foreign; : >empty; "
             "sed 's/\"needed_bytes\": [0-9]*/\"needed_bytes\": -1/' world >negative; sed -i s/32,/64,/ negative",
             folder);
    cr_assert_eq(system(line), 0);
    int at_byte = snprintf(line, sizeof(line), "--merge --json %s/0", folder);
    for (size_t i = 0; i < GP_COUNT(names); i++)
        at_byte += snprintf(line + at_byte, sizeof(line) - (size_t)at_byte, " %s/%s", folder, names[i]);
    json_t *top = dryrun_json(line, 1);
    cr_assert_eq(json_array_size(json_object_get(top, "left_out")), GP_COUNT(names));
    for (size_t i = 0; i < GP_COUNT(names); i++) {
        const char *text = json_string_value(json_object_get(at(top, "left_out", i), "why"));
        cr_expect(strstr(text, why[i]), "%s: %s", names[i], text);
        WARNS(why[i]);
    }
    cr_expect_eq(json_array_size(json_object_get(top, "ranks")), 1);
    json_decref(top);
    for (const char *const *name = (const char *const[]){"0", "world", "command", "gpu", "again", "cut", "foreign",
                                                         "empty", "negative", NULL};
         *name; name++) {
        snprintf(line, sizeof(line), "%s/%s", folder, *name);
        cr_expect_eq(unlink(line), 0, "%s", line);
    }
}
