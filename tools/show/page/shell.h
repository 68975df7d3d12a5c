/* SPDX-License-Identifier: MIT
 *
 * shell.h: the page without data (web/dist/report.html), and the mark that the data replace.
 */
#ifndef GP_HTML_SHELL_H
#define GP_HTML_SHELL_H

#include <stddef.h>

#define GP_SHELL_MARK "<!--@DATA@-->" /* once in the page */

extern const char gp_report_shell[], gp_report_shell_end[];

#endif
