/* SPDX-License-Identifier: MIT
 * What a stand-in for one of NVIDIA's libraries tells whoever runs the program: a line per distinct item,
 * appended to the file that GPUPROF_STANDIN_REPORT names.
 *
 *      PID<TAB>LIBRARY<TAB>KIND<TAB>TEXT
 *
 * KIND: loaded (the library is in use), assumed (TEXT is what a figure rests on), unsupported (TEXT is the
 * function that was called and did nothing).  Any thread; without the variable nothing happens. */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

void sim_report(const char *library, const char *kind, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
