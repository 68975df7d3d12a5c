/* SPDX-License-Identifier: MIT
 *
 * oomfacts.h: the facts of a failed request.
 */
#ifndef GP_ACCOUNT_OOMFACTS_H
#define GP_ACCOUNT_OOMFACTS_H

#include <stdint.h>

/* Keeps the facts; tells that a context is about to be destroyed. */
void gp_oom_capture(const char *api, uint64_t asked_bytes, int device, uint32_t site, int failures);
void gp_oom_context_gone(uint32_t ctx);

#endif
