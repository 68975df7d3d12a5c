/* SPDX-License-Identifier: MIT
 * User objects: a program's own data whose life graphs share.  The last reference that goes, of the
 * program or of a graph, calls the program's destructor, on the thread that runs host functions. */
#include <limits.h>
#include <stdlib.h>

#include "cuda/graph.h"

struct sim_user_object {
    struct sim_user_object *next;
    void *data;
    CUhostFn destroy;
    uint64_t program, graphs; /* references */
};
static struct sim_user_object *sim_user_objects;

struct sim_graph_owned {
    struct sim_graph_owned *next;
    struct sim_user_object *object;
    uint64_t count;
};

static struct sim_user_object *sim_user_object_find(CUuserObject handle)
{
    for (struct sim_user_object *at = sim_user_objects; at; at = at->next)
        if ((CUuserObject)at == handle)
            return at;
    return NULL;
}

static void sim_user_object_settle(struct sim_user_object *object)
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

static struct sim_graph_owned *sim_graph_owned_of(struct sim_graph *g, struct sim_user_object *object, bool make)
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

static void sim_graph_owned_add(struct sim_graph *g, struct sim_user_object *object, uint64_t count)
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

SIM_API5(633, 11030, cuUserObjectCreate, CUuserObject *, object_out, void *, ptr, CUhostFn, destroy, unsigned int,
         initialRefcount, unsigned int, flags)
{
    if (!object_out || !destroy || !initialRefcount || initialRefcount > INT_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_user_object *made = sim_grow(NULL, sizeof *made);
    *made = (struct sim_user_object){sim_user_objects, ptr, destroy, initialRefcount, 0};
    sim_user_objects = made;
    *object_out = (CUuserObject)made;
    return CUDA_SUCCESS;
}

SIM_API2(634, 11030, cuUserObjectRetain, CUuserObject, object, unsigned int, count)
{
    struct sim_user_object *found = sim_user_object_find(object);

    if (!found || !count || count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    found->program += count;
    return CUDA_SUCCESS;
}

SIM_API2(635, 11030, cuUserObjectRelease, CUuserObject, object, unsigned int, count)
{
    struct sim_user_object *found = sim_user_object_find(object);

    if (!found || !count || count > found->program)
        return CUDA_ERROR_INVALID_VALUE;
    found->program -= count;
    sim_user_object_settle(found);
    return CUDA_SUCCESS;
}

SIM_API4(636, 11030, cuGraphRetainUserObject, CUgraph, graph, CUuserObject, object, unsigned int, count, unsigned int,
         flags)
{
    struct sim_graph *g = sim_graph_of(graph);
    struct sim_user_object *found = sim_user_object_find(object);
    const bool move = flags == CU_GRAPH_USER_OBJECT_MOVE;

    if (!g || !found || !count || count > INT_MAX || (flags && !move) || (move && count > found->program))
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_owned_add(g, found, count);
    if (move)
        found->program -= count;
    return CUDA_SUCCESS;
}

SIM_API3(637, 11030, cuGraphReleaseUserObject, CUgraph, graph, CUuserObject, object, unsigned int, count)
{
    struct sim_graph *g = sim_graph_of(graph);
    struct sim_user_object *found = sim_user_object_find(object);
    struct sim_graph_owned *owned = g && found ? sim_graph_owned_of(g, found, false) : NULL;

    if (!owned || !count || count > owned->count)
        return CUDA_ERROR_INVALID_VALUE;
    owned->count -= count;
    found->graphs -= count;
    if (!owned->count) { /* no list may keep an object that is gone */
        struct sim_graph_owned **at = &g->owned;

        while (*at != owned)
            at = &(*at)->next;
        *at = owned->next;
        free(owned);
    }
    sim_user_object_settle(found);
    return CUDA_SUCCESS;
}
