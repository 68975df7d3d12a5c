/* SPDX-License-Identifier: MIT
 *
 * doors.h: libraries with pools of their own, beside PyTorch (torch.c). Private to framework/.
 */
#ifndef GP_FRAMEWORK_DOORS_H
#define GP_FRAMEWORK_DOORS_H

#include "account/framework/slot.h"
#include <link.h>
#include <stdbool.h>

/* Looks for them, as gp_owner_on_change says. */
bool gp_doors_find(const uint64_t *pcs, unsigned count);
/* Puts their functions back. */
void gp_doors_restore(void);

/* rmm.c. Both inside gp_loader_with. */
bool gp_rmm_find(const struct gp_slot_caller *caller);
void gp_rmm_restore(void);
/* reported.c. The same. */
bool gp_reported_find(const struct gp_slot_caller *caller);
void gp_reported_restore(void);
/* pjrt.c. The first inside gp_loader_with; the second outside, as it calls the program. */
void gp_pjrt_find(const struct gp_slot_caller *caller);
void gp_pjrt_look(void);
void gp_pjrt_restore(void);

#define GP_DOOR_NAME 160u

/* doornames.c. The names of functions that a loaded library defines, by their forms: '*' is any one character, '#' an
 * inline namespace for a version, such as 10_RMM_26_10, or nothing. names[i]: "" if there is none. Returns in how many
 * loaded objects whose file name starts with `library` any of them was found. */
unsigned gp_door_names(const char *library, const char *const *forms, unsigned count, char (*names)[GP_DOOR_NAME]);
/* doorform.c. Whether a name has that form. */
bool gp_door_form(const char *form, const char *name);

#endif
