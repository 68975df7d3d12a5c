/* SPDX-License-Identifier: MIT
 *
 * A child graph with memory moves into its parent (CUDA 12.9) and is destroyed with it, without a
 * call of its own.  Allocation nodes of cuGraphAddNode_v3 (13.4). Leaves a graph of 3 MiB whose child
 * has 6 MiB; one of 5 MiB and 7 MiB is gone.
 */
#include <cuda.h>

#include "finish.h"
#include "later.h"

typedef CUresult (*add_fn)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t,
                           CUgraphNodeParams *);

static add_fn add;

static void add_memory(CUgraph graph, CUdevice device, size_t bytes)
{
    CUgraphNodeParams shape;
    CUgraphNode node = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    shape.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.alloc.poolProps.location.id = device;
    shape.alloc.bytesize = bytes;
    CHECK(LATER(add, &node, graph, NULL, NULL, 0, &shape));
}

static CUgraph family(CUdevice device, size_t own, size_t child_bytes)
{
    CUgraph parent = NULL, child = NULL;
    CUgraphNodeParams shape;
    CUgraphNode node = NULL;
    CHECK(cuGraphCreate(&parent, 0));
    CHECK(cuGraphCreate(&child, 0));
    add_memory(parent, device, own);
    add_memory(child, device, child_bytes);
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_GRAPH_NODE_TYPE_GRAPH;
    shape.graph.graph = child;
    shape.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CHECK(LATER(add, &node, parent, NULL, NULL, 0, &shape));
    REPORT("child destroyed by itself", cuGraphDestroy(child));
    return parent;
}

int main(void)
{
    CUdevice device = later_start(13040);
    CUgraph doomed, kept;
    add = (add_fn)later("cuGraphAddNode", 13040);
    doomed = family(device, 5 * MIB, 7 * MIB);
    kept = family(device, 3 * MIB, 6 * MIB);
    CHECK(cuGraphDestroy(doomed));
    printf("kept: %d\n", kept != NULL);
    return finish();
}
