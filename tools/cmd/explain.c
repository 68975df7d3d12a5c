/* SPDX-License-Identifier: MIT
 * explain.c: `gpuprof explain`: a recording in a few sentences.  Called by commands.c. */
#include <cmd/load.h>
#include <jansson.h>
#include <show/gate/explain.h>
#include <stdio.h>

#include <errno.h>
#include <string.h>

static int explain_run(void *options)
{
    const struct gp_load_options *o = options;
    struct gp_loaded loaded;
    int rc = gp_load(&loaded, o, 0);
    if (rc)
        return rc;
    json_t *explained = gp_explain_json(&loaded.report);
    if (o->json) {
        rc = gp_load_json("explain", explained);
    } else {
        if (!gp_explain_print(stdout, explained))
            rc = gp_memory_error("explain");
        json_decref(explained);
    }
    gp_load_free(&loaded);
    return rc;
}

static const struct gp_command_option explain_options[] = {GP_LOAD_OPTION_PID,
                                                           GP_LOAD_OPTION_DURATION,
                                                           GP_LOAD_OPTION_STEP(struct gp_load_options),
                                                           GP_OPTION_JSON(struct gp_load_options, "gpuprof.explain/1"),
                                                           {0}};

const struct gp_command_spec gp_command_explain = {
    .name = "explain",
    .summary = "say in a few sentences what a recording shows",
    .group = GP_GROUP_ANALYSE,
    .usage = GP_LIST("(FILE | -p PID [--duration=SECS]) [--step=NAME|TIME] [--json]"),
    .about = GP_LIST("Prints at most 2 KB, for a chat, a ticket or a program: how much GPU memory was needed and when, "
                     "which lines held it and what it was for, what grows, what would help and how much at most, and "
                     "how sure that is. Of several GPUs it is the one on which the last request failed, else the one "
                     "with the highest peak."),
    .options = explain_options,
    .examples = GP_EXAMPLES({"gpuprof explain train.gpuprof", "Answer a question about a program's memory."},
                            {"gpuprof explain train.gpuprof --json", "The same for a script."}),
    GP_LOAD_SPEC("explain", explain_run, true),
};
