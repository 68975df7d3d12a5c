/* SPDX-License-Identifier: MIT
 * attach.c: the order of the steps; see attach.h. */
#include <attach/attach.h>
#include <attach/facts.h>
#include <attach/inject.h>
#include <attach/pep768.h>
#include <attach/remote.h>

#include <errno.h>
#include <gpuprof/wire.h>

enum gp_attach_outcome gp_attach(struct gp_attach *attach)
{
    struct gp_facts facts;
    enum gp_attach_outcome outcome = gp_facts_read(&facts, attach);
    if (outcome == GP_ATTACH_DONE && !gp_attach_python(attach, &facts, &outcome))
        outcome = gp_attach_inject(attach, &facts);
    gp_remote_let_go();
    return outcome;
}

int gp_attach_state(pid_t pid, struct gp_wire_attach_state *state)
{
    struct gp_facts facts = {.pid = pid};
    const char *name = "gpuprof_attach_state";
    uint64_t at = 0;
    int rc = gp_facts_maps(&facts);
    if (!rc)
        rc = gp_remote_symbols(pid, &facts.profiler, &name, &at, 1);
    if (!rc)
        rc = at ? gp_remote_read(pid, state, sizeof(*state), at) : -ENOENT;
    state->text[sizeof(state->text) - 1] = '\0';
    return rc;
}
