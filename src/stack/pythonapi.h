/* SPDX-License-Identifier: MIT
 *
 * pythonapi.h: the C interface of the Python that runs in the process, which nothing is linked with.
 */
#ifndef GP_STACK_PYTHONAPI_H
#define GP_STACK_PYTHONAPI_H

#include <stdbool.h>

/* Addresses of functions and variables that the interpreter exports, NULL for a name that it lacks; it stays
 * loaded from then on. False: no interpreter is loaded, or the process is forking. It may wait for the
 * loader, so only a thread of ours calls it. */
bool gp_python_symbols(const char *const *names, void **out, unsigned count);

#endif
