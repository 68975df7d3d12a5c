/* SPDX-License-Identifier: MIT
 * peak.c: `gpuprof peak`: who held a device's memory when it held most.  Called by main.c. */
#include <cmd/load.h>

static const char peak_help[] =
    "usage: gpuprof peak (FILE | -p PID [--duration SECS]) [--json]\n"
    "\n"
    "Prints, for each device, the moment at which most memory was allocated, and which call sites held it then.\n"
    "\n"
    "  -p, --pid PID        a running process, recorded for a while (^C ends it early)\n"
    "      --duration SECS  for so long (default 10)\n"
    "      --json           schema gpuprof.peak/1\n"
    "\n"
    "docs/analyses.md says what each number means.\n";

int gp_cmd_peak(int argc, char **argv)
{
    return gp_load_command("peak", peak_help, argc, argv, GP_REPORT_PEAK, gp_report_peak_json, gp_page_peak);
}
