/* SPDX-License-Identifier: MIT
 * gateend.c: prints findings and turns them into an exit status; see load.h. */
#include <cmd/cmd.h>
#include <cmd/load.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int gate_junit_write(FILE *out, const void *gate)
{
    errno = 0;
    gp_gate_junit(out, gate);
    return ferror(out) ? -(errno ? errno : EIO) : 0;
}

static int gate_junit(const char *command, const struct gp_findings *gate, const char *path)
{
    int rc = gp_output_write(path, gate_junit_write, gate);
    if (rc)
        gp_error(command, "--junit=%s: cannot be written: %s", path, strerror(-rc));
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}

int gp_gate_end(const char *command, const struct gp_findings *gate, FILE *out, const char *junit, int exitcode)
{
    const char *github = getenv("GITHUB_ACTIONS");
    int broken = exitcode >= 0 ? exitcode : GP_GATE_BROKEN;
    if (gate->failed) {
        gp_error(command, "out of memory");
        return GP_EXIT_FAILED;
    }
    if (out)
        gp_gate_print(out, gate);
    /* Workflows read both streams; standard output may be JSON. */
    if (github && strcmp(github, "true") == 0)
        gp_gate_annotate(stderr, gate, getenv("GITHUB_WORKSPACE"));
    int rc = junit ? gate_junit(command, gate, junit) : GP_EXIT_OK;
    return rc ? rc : gp_gate_ok(gate) ? GP_EXIT_OK : broken;
}
