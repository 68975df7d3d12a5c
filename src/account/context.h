/* SPDX-License-Identifier: MIT
 *
 * context.h: the table of contexts (contexttable.c).
 */
#ifndef GP_ACCOUNT_CONTEXT_H
#define GP_ACCOUNT_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Removes the context from the table. False: it was not counted, or belonged to another device. */
bool gp_context_forget(uint32_t ctx, int device);
/* False: this context is counted already, or there is no room (more than a thousand live ones). */
bool gp_context_count(uint32_t ctx, int device);

#endif
