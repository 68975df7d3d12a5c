/* SPDX-License-Identifier: MIT
 *
 * graph.h: graphs with memory of their own, and the capture of streams into graphs.
 */
#ifndef GP_ACCOUNT_FEED_GRAPH_H
#define GP_ACCOUNT_FEED_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph);
void gp_feed_graph_node_destroyed(uint64_t node);
uint32_t gp_feed_graph_node_destroy_begin(uint64_t node);
void gp_feed_graph_node_destroy_end(uint32_t token, bool ok);
uint32_t gp_feed_graph_destroy_begin(uint64_t graph);
void gp_feed_graph_destroy_end(uint32_t token, bool ok);
/* A graph was destroyed without a call that names it. */
void gp_feed_graph_gone(uint64_t graph);
/* A graph became a part of another one, and is destroyed with that. */
void gp_feed_graph_moved(uint64_t graph, uint64_t into);
bool gp_feed_graph_knows(uint64_t address);

/* A capture began in the stream; an allocation in it showed its graph; the capture ended, and
 * its graph was handed out or discarded. */
enum gp_capture {
    GP_CAPTURE_NEW = 1,
    GP_CAPTURE_INTO,  /* into a graph that the program made and keeps */
    GP_CAPTURE_AGAIN, /* the nodes of such a graph are captured again, with the memory that they have */
};
void gp_feed_capture_begin(uint64_t stream, enum gp_capture how);
/* Before that, and before the driver's call: what the capture's gp_feed_capture_asks gets. */
uint32_t gp_feed_poll_asks(void);
void gp_feed_capture_asks(uint64_t stream, uint32_t asks);
/* A call of the program failed because of a capture, and has invalidated that. */
void gp_feed_capture_forbidden(void);
/* The capture was invalidated (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED). Call it before gp_feed_capture_end. */
void gp_feed_capture_broke(uint64_t stream);
/* Whether an allocation at this address, just made by the program, is one of a graph that is being
 * captured again. */
bool gp_feed_recaptured(uint64_t address);
void gp_feed_capture_graph(uint64_t stream, uint64_t graph);
void gp_feed_capture_end(uint64_t stream, bool discarded);
bool gp_feed_stream_is_capturing(uint64_t stream);

#endif
