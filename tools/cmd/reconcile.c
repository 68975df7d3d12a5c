/* SPDX-License-Identifier: MIT
 * reconcile.c: `gpuprof reconcile`: the itemised bill against what NVML says.  Called by main.c. */
#include <cmd/load.h>

static const char reconcile_help[] =
    "usage: gpuprof reconcile (FILE | -p PID [--duration SECS]) [--json]\n"
    "\n"
    "Prints all that the process is known to hold on each device, and what NVML says that it holds beyond that.\n"
    "\n"
    "  -p, --pid PID        a running process, recorded for a while (^C ends it early)\n"
    "      --duration SECS  for so long (default 10)\n"
    "      --json           schema gpuprof.reconcile/1\n"
    "\n"
    "docs/analyses.md says what each number means.\n";

int gp_cmd_reconcile(int argc, char **argv)
{
    return gp_load_command("reconcile", reconcile_help, argc, argv, GP_REPORT_BILL, gp_report_reconcile_json,
                           gp_page_reconcile);
}
