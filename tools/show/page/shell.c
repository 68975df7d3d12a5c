/* SPDX-License-Identifier: MIT
 * shell.c: includes web/dist/report.html in the program; see shell.h.  The path is relative to the
 * root of the repository, where make runs.  The compiler does not report this dependency, so
 * html.mk declares it. */
#include "shell.h"

__asm__(".pushsection .rodata\n"
        ".globl gp_report_shell\n"
        ".globl gp_report_shell_end\n"
        "gp_report_shell:\n"
        ".incbin \"tools/show/page/web/dist/report.html\"\n"
        "gp_report_shell_end:\n"
        ".byte 0\n"
        ".popsection\n");
