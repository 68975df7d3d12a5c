/* SPDX-License-Identifier: MIT
 * churn.c: `gpuprof churn`: what is allocated and freed again in every step.  Called by main.c. */
#include <cmd/load.h>

static const char churn_help[] =
    "usage: gpuprof churn (FILE | -p PID [--duration SECS]) [--json]\n"
    "\n"
    "Prints the call sites whose memory is freed within the step that allocated it: what a cache would save.\n"
    "\n"
    "  -p, --pid PID        a running process, recorded for a while (^C ends it early)\n"
    "      --duration SECS  for so long (default 10)\n"
    "      --json           schema gpuprof.churn/1\n"
    "\n"
    "docs/analyses.md says what each number means.\n";

int gp_cmd_churn(int argc, char **argv)
{
    return gp_load_command("churn", churn_help, argc, argv, GP_REPORT_CHURN, gp_report_churn_json, gp_page_churn);
}
