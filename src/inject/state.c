/* SPDX-License-Identifier: MIT
 *
 * state.c: the state of the library that its start (init.c), its late start (attach.c) and its end (leave.c) share.
 */
#include "base/compiler.h"
#include "base/kept.h"
#include "inject/inject.h"
#include <stdio.h>

struct gp_session gp_inject_session;
static uint32_t x_ready; /* the start was successful: the exit path may use everything */
GP_EXPORT struct gp_wire_attach_state gpuprof_attach_state;
GP_KEEP(gpuprof_attach_state);

void gp_inject_set_ready(void)
{
    /* [ready.R] release: all that the start made; pairs with [ready.A]. */
    __atomic_store_n(&x_ready, 1, __ATOMIC_RELEASE);
}

bool gp_inject_is_ready(void)
{
    return __atomic_load_n(&x_ready, __ATOMIC_ACQUIRE); /* [ready.A] acquire: pairs with [ready.R] */
}

void gp_inject_say(enum gp_wire_attach state, int error, const char *text)
{
    gpuprof_attach_state.error = error;
    snprintf(gpuprof_attach_state.text, sizeof(gpuprof_attach_state.text), "%s", text);
    /* [attach.R] release: everything that the state says; pairs with [attach.A]. */
    __atomic_store_n(&gpuprof_attach_state.state, state, __ATOMIC_RELEASE);
}
