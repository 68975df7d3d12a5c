/* SPDX-License-Identifier: MIT
 * fragmentation.c: `gpuprof fragmentation`: how much of the reserved memory is of use.  Called by main.c. */
#include <cmd/load.h>

static const char fragmentation_help[] =
    "usage: gpuprof fragmentation (FILE | -p PID [--duration SECS]) [--json]\n"
    "\n"
    "Prints how much of what is reserved was in use, how free memory is cut up, and what rounding costs, over time.\n"
    "\n"
    "  -p, --pid PID        a running process, recorded for a while (^C ends it early)\n"
    "      --duration SECS  for so long (default 10)\n"
    "      --json           schema gpuprof.fragmentation/1\n"
    "\n"
    "docs/analyses.md says what each number means.\n";

int gp_cmd_fragmentation(int argc, char **argv)
{
    return gp_load_command("fragmentation", fragmentation_help, argc, argv, GP_REPORT_FRAGMENTATION,
                           gp_report_fragmentation_json, gp_page_fragmentation);
}
