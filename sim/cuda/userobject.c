/* SPDX-License-Identifier: MIT
 * User objects: a program's own data whose life graphs share.  The last reference that goes, of the
 * program or of a graph, calls the program's destructor, on the thread that runs host functions. */
#include "cuda/userobject.h"

#include <stdlib.h>

struct sim_user_object *sim_user_objects;

void sim_user_object_settle(struct sim_user_object *object)
{
    struct sim_user_object **at = &sim_user_objects;

    if (object->program || object->graphs)
        return;
    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    sim_host_enqueue(object->destroy, object->data, NULL);
    free(object);
}

struct sim_graph_owned *sim_graph_owned_of(struct sim_graph *g, struct sim_user_object *object, bool make)
{
    for (struct sim_graph_owned *at = g->owned; at; at = at->next)
        if (at->object == object)
            return at;
    if (!make)
        return NULL;
    struct sim_graph_owned *owned = sim_grow(NULL, sizeof *owned);
    *owned = (struct sim_graph_owned){g->owned, object, 0};
    return g->owned = owned;
}

void sim_graph_owned_add(struct sim_graph *g, struct sim_user_object *object, uint64_t count)
{
    sim_graph_owned_of(g, object, true)->count += count;
    object->graphs += count;
}

/* Clones and instantiations share what their source holds. */
void sim_graph_owned_copy(struct sim_graph *to, const struct sim_graph *from)
{
    for (const struct sim_graph_owned *at = from->owned; at; at = at->next)
        if (at->count)
            sim_graph_owned_add(to, at->object, at->count);
}

void sim_graph_owned_drop(struct sim_graph *g)
{
    while (g->owned) {
        struct sim_graph_owned *owned = g->owned;

        g->owned = owned->next;
        owned->object->graphs -= owned->count;
        if (owned->count)
            sim_user_object_settle(owned->object);
        free(owned);
    }
}
