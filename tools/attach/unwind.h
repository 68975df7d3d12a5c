/* SPDX-License-Identifier: MIT
 *
 * unwind.h: looks at the stack of a stopped thread: may it be borrowed, and where does it end?
 */
#ifndef GP_ATTACH_UNWIND_H
#define GP_ATTACH_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_unwind;
/* Opens what is needed to read stacks of the process, before any of its threads is stopped.  NULL:
 * its stacks cannot be read. */
struct gp_unwind *gp_unwind_new(pid_t pid);
void gp_unwind_free(struct gp_unwind *unwind);
/* Whether a stopped thread may start a thread.  False: `why` says what it is doing. */
bool gp_unwind_allows(struct gp_unwind *unwind, pid_t tid, char *why, size_t why_bytes);

struct gp_stacks;
/* NULL: out of memory. */
struct gp_stacks *gp_unwind_stacks_new(pid_t pid);
void gp_unwind_stacks_free(struct gp_stacks *stacks);
/* Reads where the process may have stacks, unless it did so within a tenth of a second.  Before a
 * thread is stopped: it takes milliseconds in a large process. */
void gp_unwind_stacks_look(struct gp_stacks *stacks);
/* The lowest address that belongs to the stack of a stopped thread, from its stack and thread
 * pointers; 0: it does not run on its own stack, or that has no guard page at its end. */
uint64_t gp_unwind_stack_low(const struct gp_stacks *stacks, pid_t tid, uint64_t sp, uint64_t thread_pointer);

#endif
