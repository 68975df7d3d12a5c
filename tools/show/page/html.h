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

/* ---- the page without data --------------------------------------------------------------------------------------- */
/* The page without data (web/dist/report.html), and the mark that the data replace. */

#define GP_SHELL_MARK "<!--@DATA@-->" /* once in the page */

extern const char gp_report_shell[], gp_report_shell_end[];

#endif
