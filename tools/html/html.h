/* SPDX-License-Identifier: MIT
 *
 * html.h: a report document (schema gpuprof.report/1, see docs/report.md) as one page that needs nothing else.
 */
#ifndef GP_HTML_HTML_H
#define GP_HTML_HTML_H

#include <jansson.h>
#include <stddef.h>

/* Written aside and moved into place; "-": to stdout.  0, or -errno and a sentence in `why`. */
int gp_report_html(const char *out_path, const json_t *document, char *why, size_t why_bytes);

#endif
