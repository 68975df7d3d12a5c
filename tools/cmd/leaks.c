/* SPDX-License-Identifier: MIT
 * leaks.c: `gpuprof leaks`: which call sites hold more with every step.  Called by main.c. */
#include <cmd/load.h>
#include <write/write.h>

#include <stdlib.h>

static const char leaks_help[] =
    "usage: gpuprof leaks (FILE | -p PID [--duration SECS]) [--older SECS] [--json] [--error-exitcode N]\n"
    "\n"
    "Names the call sites that hold more memory with every step of the program, how much, and how long it can go on.\n"
    "Steps are marks that come again and again, NVTX ranges, or what the program repeats by itself.\n"
    "\n"
    "  -p, --pid PID           a running process, recorded for a while (^C ends it early)\n"
    "      --duration SECS     for so long (default 10)\n"
    "      --older SECS        only blocks that are at least so old at the end count as kept\n"
    "      --json              schema gpuprof.leaks/1\n"
    "      --error-exitcode N  the exit status if there is a suspect (default 0)\n"
    "\n"
    "docs/analyses.md has the rule by which a site is suspected.\n";

int gp_cmd_leaks(int argc, char **argv)
{
    struct gp_load_options o;
    struct gp_loaded loaded;
    int rc = gp_load_parse(&o, "leaks", GP_LOAD_LEAKS, argc, argv);
    if (!rc && o.help) {
        fputs(leaks_help, stdout);
    } else if (!rc) {
        rc = gp_load(&loaded, &o, 0);
        if (!rc) {
            struct gp_report *report = &loaded.report;
            report->older_ns = o.older_seconds > 0 ? (uint64_t)o.older_seconds * 1000000000ull : 0;
            struct gp_text_page page = gp_load_page();
            if (gp_report_run(report, GP_REPORT_LEAKS, GP_DETAIL_TABLE) != 0)
                rc = gp_load_memory("leaks");
            else if (o.json)
                rc = gp_load_json("leaks", gp_report_leaks_json(report));
            else
                gp_page_leaks(&page, report);
            if (!rc && report->leaks->count && o.error_exitcode >= 0)
                rc = (int)o.error_exitcode;
            gp_load_free(&loaded);
        }
    }
    gp_load_end(&o);
    return rc;
}
