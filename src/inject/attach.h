/* SPDX-License-Identifier: MIT
 *
 * attach.h: what init.c, which starts the stages, and attach.c, which starts and ends them in a
 * program that runs, need of each other.
 */
#ifndef GP_INJECT_ATTACH_H
#define GP_INJECT_ATTACH_H

#include "session/session.h"
#include <stdbool.h>

extern struct gp_session gp_inject_session;

/* Starts every stage. settings: of gpuprof_attach (option.h); NULL: the program is in its first cuInit,
 * and the environment has the settings. */
void gp_inject_start(const char *settings);
/* The start is over and was successful. */
bool gp_inject_is_ready(void);
/* Takes the start away from InitializeInjection. False: that one is under way. */
bool gp_inject_claim(void);

/* For the drain thread (session.h). */
int gp_inject_leave(void);
bool gp_inject_left(void);

#endif
