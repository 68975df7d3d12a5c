/* SPDX-License-Identifier: MIT
 * shell.c: the page, as it lies in the repository, inside the program.  The path is relative to the repository's root,
 * where make runs; html.mk tells make of the dependency, which no compiler reports. */
#include "shell.h"

__asm__(".pushsection .rodata\n"
        ".globl gp_report_shell\n"
        ".globl gp_report_shell_end\n"
        "gp_report_shell:\n"
        ".incbin \"tools/html/web/dist/report.html\"\n"
        "gp_report_shell_end:\n"
        ".byte 0\n"
        ".popsection\n");
