/* SPDX-License-Identifier: MIT
 * dryrunoptions.c: the options of `gpuprof dryrun`, their check and their help.  Called by commands.c; dryrun.c runs
 * the command. */
#include <cmd/cmd.h>
#include <cmd/dryrunoptions.h>
#include <dryrun/merge.h>

#include <base/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_DRYRUN_IMBALANCE 2048 /* as many experts at most (sim/python/gpuprof_routing.py) */

static int dryrun_check_try(const struct gp_dryrun_options *o)
{
    char word[64], names[256];
    size_t used = 0;
    for (size_t i = 0; gp_dryrun_try_names[i][0]; i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", gp_dryrun_try_names[i]);
    if (gp_dryrun_try_unknown(o->change, word, sizeof(word)))
        return gp_usage_error("dryrun", "--try=%s: it takes %s", word, names);
    if (o->gpu && (strchr(o->gpu, ',') || strcmp(o->gpu, "all") == 0))
        return gp_usage_error("dryrun", "--try: name one GPU");
    return o->batch ? gp_usage_error("dryrun", "--try and --batch each run CMD many times: give one of them")
                    : GP_EXIT_OK;
}

static bool dryrun_is_factor(const char *text)
{
    char *end;
    double factor = strtod(text, &end);
    return text[0] >= '0' && text[0] <= '9' && !*end && factor >= 1 && factor <= GP_DRYRUN_IMBALANCE;
}

static int dryrun_check(void *options)
{
    struct gp_dryrun_options *o = options;
    int rc;
    int64_t bytes;
    char why[GP_TEXT_WHY];
    if (o->list)
        return GP_EXIT_OK;
    if (!o->launch.argv)
        return gp_usage_error("dryrun", "no program given");
    if (o->merge &&
        (o->world || o->ranks || o->jobs || o->steps || o->batch || o->record || o->fill || o->change || o->imbalance))
        return gp_usage_error("dryrun", "--merge reads files and runs nothing: of the other options it takes --gpu, "
                                        "--local-world, --budget, --budgets, -o and --json");
    if (o->merge)
        return gp_dryrun_merge_words(o->launch.argv, &o->output, &o->json, &o->force);
    if (!o->world && (o->local_world || o->ranks || o->jobs))
        return gp_usage_error("dryrun", "--%s is of a job of --world=N ranks: say how many it has",
                              o->ranks         ? "ranks"
                              : o->local_world ? "local-world"
                                               : "jobs");
    if (o->world && o->devices)
        return gp_usage_error("dryrun", "--devices: with --world the machine has a GPU for each rank of a node: say "
                                        "--local-world");
    if (o->memory && (gp_text_size_parse(o->memory, &bytes) != 0 || bytes <= 0))
        return gp_usage_error("dryrun", "--memory=%s: %s", o->memory, gp_text_size_why(why, o->memory));
    if (o->imbalance && !dryrun_is_factor(o->imbalance))
        return gp_usage_error("dryrun", "--imbalance=%s: not a number from 1 to %d", o->imbalance, GP_DRYRUN_IMBALANCE);
    if (o->change && (rc = dryrun_check_try(o)) != GP_EXIT_OK)
        return rc;
    if (!o->batch)
        return GP_EXIT_OK;
    int64_t sizes[2];
    if (gp_dryrun_batch_parse(o->batch, sizes) != 0)
        return gp_usage_error("dryrun", "--batch=%s: not a size, or two sizes of which the second is larger", o->batch);
    if (!gp_dryrun_batch_named(o->launch.argv))
        return gp_usage_error("dryrun", "--batch: no argument of CMD has {batch} in it, which stands for the size");
    if (o->gpu && (strchr(o->gpu, ',') || strcmp(o->gpu, "all") == 0))
        return gp_usage_error("dryrun", "--batch: name one GPU");
    return GP_EXIT_OK;
}

static const struct gp_command_option dryrun_options[] = {
    GP_OPTION(struct gp_dryrun_options, gpu, 0, "gpu", "NAME,..", GP_ARG_TEXT,
              "the GPUs to try, as --list names them; all: every GPU of the list, with one run for each compute "
              "capability (default " GP_DRYRUN_GPU ")"),
    GP_OPTION(struct gp_dryrun_options, memory, 0, "memory", "SIZE", GP_ARG_TEXT,
              "the memory of each GPU, instead of its own"),
    GP_OPTION(struct gp_dryrun_options, devices, 0, "devices", "N", GP_ARG_NUMBER,
              "how many GPUs the machine has (default 1)", .low = 1, .high = GP_WIRE_GPUS),
    GP_OPTION(struct gp_dryrun_options, world, 0, "world", "N", GP_ARG_NUMBER,
              "CMD is one rank of a job of N: run some of them, and answer for the others", .low = 1,
              .high = GP_WORLD_MOST),
    GP_OPTION(
        struct gp_dryrun_options, local_world, 0, "local-world", "M", GP_ARG_NUMBER,
        "how many ranks, and GPUs, each node of the job has (default 8, or what the launcher in front of CMD says)",
        .low = 1, .high = GP_WORLD_MOST),
    GP_OPTION(
        struct gp_dryrun_options, ranks, 0, "ranks", "WHICH", GP_ARG_TEXT,
        "the ranks to run: a list like 0,8-15, all, or auto: the first two, the last, and those to which they send "
        "(default auto)"),
    GP_OPTION(struct gp_dryrun_options, jobs, 0, "jobs", "J", GP_ARG_NUMBER,
              "run at most J ranks at a time; those of one turn are absent for the others", .low = 1,
              .high = GP_WORLD_MOST),
    GP_OPTION(struct gp_dryrun_options, steps, 0, "steps", "N", GP_ARG_NUMBER,
              "end CMD when N steps have ended and the peak repeats, if marks, ranges or stacks tell its steps",
              .low = 2, .high = 1000000),
    GP_OPTION(struct gp_dryrun_options, batch, 0, "batch", "N[,M]", GP_ARG_TEXT,
              "find the largest batch that fits: CMD runs with N and with M (default 2 N) where its arguments have "
              "{batch}, and then with others"),
    GP_OPTION(struct gp_dryrun_options, change, 0, "try", "NAME,..", GP_ARG_TEXT,
              "run CMD again with each change that could help, of these: allocator, checkpoint, loss, optimizer, "
              "gradients, offload, outputs, shard (default all), and say what it saves",
              .optional = true),
    GP_OPTION(struct gp_dryrun_options, fill, 0, "fill", "WHAT", GP_ARG_CHOICE,
              "what CMD reads back of results: zeros, or random values that it could have computed (default zeros)",
              .words = GP_LIST("zeros", "random")),
    GP_OPTION(struct gp_dryrun_options, imbalance, 0, "imbalance", "F", GP_ARG_TEXT,
              "how many times the mean number of words the experts of a rank get: the first 1/F of all experts get all "
              "words (default 1: each gets as many)"),
    GP_OPTION(struct gp_dryrun_options, share, 0, "budget", "SIZE|PERCENT", GP_ARG_SHARE,
              "exit with status 3 if CMD needs more of a GPU than this", .low = 1),
    GP_OPTION_BUDGETS(struct gp_dryrun_options, gate),
    GP_OPTION_JUNIT(struct gp_dryrun_options, gate),
    GP_OPTION(struct gp_dryrun_options, record, 0, "record", "FILE", GP_ARG_RECORDING,
              "keep the recording (default CMD.gpuprof in the current directory); of several processes each has its "
              "own, FILE with its number; an older recording is replaced only with --force, at the end",
              .optional = true),
    GP_OPTION(struct gp_dryrun_options, output, 'o', "output", "PAGE", GP_ARG_FILE,
              "write the page of 'gpuprof report' of the run that is shown"),
    GP_FLAG(struct gp_dryrun_options, force, 0, "force",
            "replace an older recording, and a PAGE or a file of --junit that gpuprof did not write"),
    GP_FLAG(struct gp_dryrun_options, json, 0, "json",
            "print JSON, schema gpuprof.dryrun/1; CMD's standard output goes to standard error"),
    GP_FLAG(struct gp_dryrun_options, merge, 0, "merge",
            "the words after the options are files of ranks that ran elsewhere, by --json or --record: their answer as "
            "one"),
    GP_FLAG(struct gp_dryrun_options, list, 0, "list", "print the GPUs that --gpu takes"),
    GP_OPTION_LIBRARY(struct gp_dryrun_options),
    {0}};

static const struct gp_command_option dryrun_operands[] = {
    GP_OPERAND(struct gp_dryrun_options, launch.argv, "CMD", GP_ARG_PROGRAM, "the program and its arguments"), {0}};

const struct gp_command_spec gp_command_dryrun = {
    .name = "dryrun",
    .summary = "say what a program would need of a GPU, without one",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("[--gpu=NAME,..|all] [--memory=SIZE] [--devices=N] [--world=N] [--local-world=M] [--ranks=WHICH] "
                     "[--jobs=J] [--steps=N] [--batch=N[,M]] [--try[=NAME,..]] [--fill=WHAT] "
                     "[--imbalance=F] [--budget=SIZE|PERCENT] [--budgets=FILE] "
                     "[--junit=FILE] [--record[=FILE]] [-o PAGE] [--force] [--json] [--library=FILE] [--] CMD...",
                     "--merge [--gpu=NAME] [--local-world=M] [--budget=SIZE] [-o PAGE] [--json] FILE...", "--list"),
    .about =
        GP_LIST("Runs CMD, unmodified, on a simulated GPU, whose kernels compute nothing, and prints what it needs of "
                "the GPU: whether it fits, the peak, by use and by line of code, and what would help. The exit status "
                "is 0 if it fits on every GPU named (with 'all' on one of them), 3 if it does not or is over the "
                "budget, and 1 if CMD failed for "
                "another reason; 126 and 127 are as with 'gpuprof run'.",
                "It fits if each request got memory, at the latest when it was repeated: one that got none counts "
                "whatever the status of CMD. Then CMD runs once more on a device of 1 TiB, which shows how much it "
                "needs. So CMD may run several times, as it does with several GPUs.",
                "docs/dryrun.md explains what is exact, and which programs take another path because kernels compute "
                "nothing."),
    .options = dryrun_options,
    .operands = dryrun_operands,
    .examples = GP_EXAMPLES(
        {"gpuprof dryrun --gpu=rtx-4090,a100-40g -- python3 train.py", "Ask whether a job fits on two GPUs."},
        {"gpuprof dryrun --gpu=h100-80g --budget=22GiB -- python3 train.py", "Fail if it needs more than 22 GiB."},
        {"gpuprof dryrun --steps=3 -- python3 train.py", "Do not wait for more than three steps."},
        {"gpuprof dryrun --gpu=rtx-4090 --batch=8 -- python3 train.py --batch '{batch}'",
         "Find the largest multiple of 8 that fits."},
        {"gpuprof dryrun --gpu=rtx-4090 --try -- python3 train.py", "Ask what would make it fit."},
        {"gpuprof dryrun --world=512 -- python3 train.py", "Ask what ranks of a job of 512 GPUs need."},
        {"gpuprof dryrun --gpu=all -- python3 train.py", "Find the smallest GPU that is enough."},
        {"gpuprof dryrun --list", "Show the GPUs."}),
    GP_DEFAULTS(struct gp_dryrun_options, .launch = {.command = "dryrun", .limit = -1}),
    .operand_ends = true,
    .check = dryrun_check,
    .run = gp_dryrun_command,
};
