/* SPDX-License-Identifier: MIT
 * Entry points of user objects (userobject.c). */
#include "cuda/userobject.h"

#include <limits.h>
#include <stdlib.h>

static struct sim_user_object *sim_user_object_find(CUuserObject handle)
{
    for (struct sim_user_object *at = sim_user_objects; at; at = at->next)
        if ((CUuserObject)at == handle)
            return at;
    return NULL;
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
