/* SPDX-License-Identifier: MIT
 * open.c: reads a trace from a file of any format that read/recording/input.h knows; see trace.h.  Called
 * by the commands and the fuzz target.  Its bounds are those of input.c and of the readers. */
#include "trace.h"
#include <read/recording/input.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gp_replay_read(struct gp_replay_trace *trace, const uint8_t *data, size_t bytes, struct gp_replay_problem *problem)
{
    struct gp_replay_builder builder = {.trace = trace};
    struct gp_input file;
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    int rc = gp_input_unwrap(&file, data, bytes, builder.problem.text, sizeof(builder.problem.text));
    if (!rc && file.format == GP_INPUT_TRACE) {
        trace->format = GP_INPUT_TRACE_NAME;
        rc = gp_replay_text(&builder, file.data, file.bytes);
    } else if (!rc) {
        rc = gp_replay_recording(&builder, file.data, file.bytes);
    }
    if (rc && !builder.problem.text[0])
        gp_replay_say(&builder.problem, "%s", strerror(-rc));
    gp_input_free(&file);
    gp_replay_builder_free(&builder);
    if (rc) {
        *problem = builder.problem;
        gp_replay_trace_free(trace);
    }
    return rc;
}

int gp_replay_load(struct gp_replay_trace *trace, const char *path, struct gp_replay_problem *problem)
{
    int64_t size;
    uint8_t *data = NULL;
    size_t bytes = 0;
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    int fd = gp_input_open(path, &size);
    int rc = fd < 0 ? fd : gp_input_slurp(fd, size, &data, &bytes, problem->text, sizeof(problem->text), NULL, NULL);
    if (!rc)
        rc = gp_replay_read(trace, data, bytes, problem);
    else if (!problem->text[0])
        gp_replay_say(problem, "%s", strerror(-rc));
    free(data);
    if (fd >= 0)
        close(fd);
    return rc;
}
