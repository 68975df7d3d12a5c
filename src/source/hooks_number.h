/* SPDX-License-Identifier: MIT
 *
 * hooks_number.h: numbers for the handles that the driver hands out (hooks_number.c).
 */
#ifndef GP_SOURCE_HOOKS_NUMBER_H
#define GP_SOURCE_HOOKS_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* The driver reuses handles of dead objects.  Numbers are never reused, like CUPTI's context and
 * module ids.  Any thread, inside gp_thread_enter/leave. */
struct gp_hooks_numbers;
extern struct gp_hooks_numbers gp_hooks_contexts, gp_hooks_modules;

/* Returns the handle's number, or 0. */
uint32_t gp_hooks_number_of(struct gp_hooks_numbers *numbers, uint64_t handle);
/* The handle's number, a new one if it has none.  0: the table is full (counted as lost). */
uint32_t gp_hooks_number_learn(struct gp_hooks_numbers *numbers, uint64_t handle);
/* Gives a new object at this handle a new number, also if the handle had one.  0 as above. */
uint32_t gp_hooks_number_new(struct gp_hooks_numbers *numbers, uint64_t handle);
/* Removes the handle's number and returns it, or 0. */
uint32_t gp_hooks_number_take(struct gp_hooks_numbers *numbers, uint64_t handle);
/* Gives the handle this number: after a take whose object stays alive, or for a second handle of one
 * object.  False: the table is full. */
bool gp_hooks_number_put(struct gp_hooks_numbers *numbers, uint64_t handle, uint32_t number);
/* Removes it, if it is still this one. */
void gp_hooks_number_drop(struct gp_hooks_numbers *numbers, uint64_t handle, uint32_t number);
/* New numbers come after this one. */
void gp_hooks_number_after(struct gp_hooks_numbers *numbers, uint32_t number);

#endif
