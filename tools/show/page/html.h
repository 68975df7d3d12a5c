/* SPDX-License-Identifier: MIT
 *
 * html.h: writes a report document (schema gpuprof.report/1) as one HTML page that needs no other
 * file; see docs/report.md.  `gpuprof report -o` calls it.
 */
#ifndef GP_HTML_HTML_H
#define GP_HTML_HTML_H

#include <jansson.h>
#include <stddef.h>

/* Writes a temporary file and renames it, so that a failure leaves an old page as it is.  "-" is
 * stdout.  0, or -errno with a sentence in `why`. */
int gp_html_report(const char *out_path, const json_t *document, char *why, size_t why_bytes);

#endif
