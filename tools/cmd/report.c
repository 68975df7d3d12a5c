/* SPDX-License-Identifier: MIT
 * report.c: `gpuprof report`: a recording on one page.  Called by main.c. */
#include <cmd/load.h>
#include <html/html.h>
#include <write/write.h>

#include <stdlib.h>
#include <string.h>

static const char report_help[] =
    "usage: gpuprof report FILE [-o report.html] [--json]\n"
    "\n"
    "How much memory a recorded program held, when it held most, who held it then, who holds more with every step, "
    "and\n"
    "how much of what was reserved was of use.\n"
    "\n"
    "  -o, --output FILE  one HTML page that needs nothing else ('-': standard output)\n"
    "      --json         schema gpuprof.report/1, all that the page shows\n";

static int report_text(struct gp_loaded *loaded)
{
    struct gp_text_page page = gp_load_page();
    if (gp_report_run(&loaded->report, GP_REPORT_SUMMARY, GP_DETAIL_SUMMARY) != 0)
        return gp_load_memory("report");
    gp_page_summary(&page, &loaded->report);
    return GP_EXIT_OK;
}

static int report_page(const struct gp_load_options *o, json_t *document)
{
    char why[256] = "";
    int rc = gp_report_html(o->output, document, why, sizeof(why));
    if (rc == 0 && strcmp(o->output, "-") != 0)
        fprintf(stderr, "gpuprof: report: %s: a page for any browser, whole in itself\n", o->output);
    if (rc == 0)
        return GP_EXIT_OK;
    gp_error("report", "%s", why[0] ? why : strerror(-rc));
    return GP_EXIT_FAILED;
}

static int report_made(const struct gp_load_options *o, struct gp_loaded *loaded)
{
    if (!o->output && !o->json)
        return report_text(loaded);
    bool ran = gp_report_run(&loaded->report, GP_REPORT_DOCUMENT, GP_DETAIL_PLOT) == 0;
    json_t *document = ran ? gp_report_document(&loaded->report) : NULL;
    if (!document)
        return gp_load_memory("report");
    int rc = o->output ? report_page(o, document) : GP_EXIT_OK;
    if (!rc && o->json)
        return gp_load_json("report", document);
    json_decref(document);
    return rc;
}

int gp_cmd_report(int argc, char **argv)
{
    struct gp_load_options o;
    struct gp_loaded loaded;
    int rc = gp_load_parse(&o, "report", GP_LOAD_OUTPUT, argc, argv);
    if (!rc && o.help) {
        fputs(report_help, stdout);
    } else if (!rc && o.json && o.output && strcmp(o.output, "-") == 0) {
        rc = gp_usage_error("report", "-o - and --json: only one of them fits on standard output");
    } else if (!rc && gp_load_overwrites("report", o.output)) {
        rc = GP_EXIT_FAILED;
    } else if (!rc) {
        rc = gp_load(&loaded, &o, 0);
        if (!rc) {
            rc = report_made(&o, &loaded);
            gp_load_free(&loaded);
        }
    }
    gp_load_end(&o);
    return rc;
}
