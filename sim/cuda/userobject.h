/* SPDX-License-Identifier: MIT
 * Shared by userobject.c and api/userobject.c.  Call everything with the lock held. */
#ifndef SIM_USEROBJECT_H
#define SIM_USEROBJECT_H

#include "cuda/graph.h"

struct sim_user_object {
    struct sim_user_object *next;
    void *data;
    CUhostFn destroy;
    uint64_t program, graphs; /* references */
};

struct sim_graph_owned {
    struct sim_graph_owned *next;
    struct sim_user_object *object;
    uint64_t count;
};

/* userobject.c */
extern struct sim_user_object *sim_user_objects;
void sim_user_object_settle(struct sim_user_object *object);
struct sim_graph_owned *sim_graph_owned_of(struct sim_graph *g, struct sim_user_object *object, bool make);
void sim_graph_owned_add(struct sim_graph *g, struct sim_user_object *object, uint64_t count);

#endif
