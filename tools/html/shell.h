/* SPDX-License-Identifier: MIT
 *
 * shell.h: the page without its data, which is web/dist/report.html, and where the data go.
 */
#ifndef GP_HTML_SHELL_H
#define GP_HTML_SHELL_H

#include <stddef.h>

#define GP_SHELL_MARK "<!--@DATA@-->" /* once in the page */

extern const char gp_report_shell[], gp_report_shell_end[];

#endif
