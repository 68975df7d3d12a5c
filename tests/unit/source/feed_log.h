/* SPDX-License-Identifier: MIT
 *
 * feed_log.h: stands in for the accounts: writes each report into a text instead, and answers questions from tables that
 * differ for each argument.  For tests of what the source reports; one test program includes it once.
 */
#ifndef GP_TEST_FEED_LOG_H
#define GP_TEST_FEED_LOG_H

#include "account/feed/before.h"
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/heap.h"
#include "base/numbers.h"
#include "base/thread.h"
#include "lib/standin.h"
#include <gpuprof/wire.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char feed_text[1 << 16];
static uint32_t feed_token = 0x70; /* of each begin; 0: unknown */

__attribute__((format(printf, 1, 2))) static void feed_note(const char *form, ...)
{
    size_t used = strlen(feed_text);
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(feed_text + used, sizeof(feed_text) - used, form, arguments);
    va_end(arguments);
    used = strlen(feed_text);
    if (used + 1 < sizeof(feed_text))
        memcpy(feed_text + used, ";", 2);
}

static const char *feed_taken(void)
{
    static char taken[sizeof(feed_text)];
    memcpy(taken, feed_text, strlen(feed_text) + 1);
    feed_text[0] = '\0';
    return taken;
}

/* By number, as in account/feed/feed.h and wire.h. */
static const char *const feed_spaces[] = {"none",    "device", "host", "registered", "array", "block",  "vmm",
                                          "mapping", "range",  "pool", "graph",      "ipc",   "stream", "module"};

#define L (unsigned long)

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

STANDIN(void, gp_feed_alloc, const struct gp_allocation *block)
{
    feed_note("alloc %s %s device %d ctx %u at %lx of %lu asked %lu stream %lx pool %lx%s", feed_spaces[block->space],
              gp_kind_name(block->kind), block->device, block->ctx, L block->address, L block->bytes,
              L block->requested_bytes, L block->stream, L block->pool, block->estimated ? " estimated" : "");
}

STANDIN(void, gp_feed_linear, uint64_t address, uint64_t bytes, int device, uint32_t ctx)
{
    feed_note("alloc device linear device %d ctx %u at %lx of %lu asked %lu stream 0 pool 0", device, ctx, L address,
              L bytes, L bytes);
}

STANDIN(uint32_t, gp_feed_free_begin, enum gp_space space, uint64_t address)
{
    feed_note("free %s at %lx", feed_spaces[space], L address);
    return feed_token;
}

STANDIN(void, gp_feed_free_end, uint32_t token, bool ok, uint64_t stream)
{
    feed_note("freed %x %d stream %lx", token, ok, L stream);
}

STANDIN(void, gp_feed_unknown_free, enum gp_space space, uint64_t address)
{
    feed_note("unknown %s at %lx", feed_spaces[space], L address);
}

STANDIN_SAYS(bool, gp_feed_is_known, address == 0, uint64_t address);

STANDIN(void, gp_feed_failed, const char *api, uint32_t error, uint64_t requested_bytes, int device,
        enum gp_wire_kind kind)
{
    (void)kind;
    feed_note("failed %s %u asked %lu device %d", api, error, L requested_bytes, device);
}

STANDIN_IDLE(gp_feed_context_used, int device, uint32_t ctx, uint64_t context);

STANDIN(void, gp_feed_oom_context, uint32_t ctx, uint64_t context)
{
    feed_note("oom ctx %u %lx", ctx, L context);
}

STANDIN(void, gp_feed_lost, enum gp_wire_lost cause)
{
    feed_note("lost %d", cause);
}

STANDIN(void, gp_feed_event, enum gp_wire_event_type type, const char *name)
{
    feed_note("event %d %s", type, name);
}

/* ---- heaps ------------------------------------------------------------------------------------------------------- */

STANDIN(bool, gp_feed_heap_begin, uint64_t address, uint64_t bytes)
{
    feed_note("heap at %lx of %lu", L address, L bytes);
    return feed_token != 0;
}

STANDIN(void, gp_feed_heap_end, uint64_t address)
{
    feed_note("heap end %lx", L address);
}

STANDIN(void, gp_feed_heap_reset, uint64_t address)
{
    feed_note("heap reset %lx", L address);
}

STANDIN(void, gp_feed_heap_block, uint64_t heap, uint64_t address, uint64_t bytes)
{
    feed_note("block in %lx at %lx of %lu", L heap, L address, L bytes);
}

STANDIN(void, gp_feed_heap_resize, uint64_t address, uint64_t bytes)
{
    feed_note("resize %lx to %lu", L address, L bytes);
}

STANDIN(void, gp_feed_heap_unblock, uint64_t address)
{
    feed_note("unblock %lx", L address);
}

STANDIN(void, gp_feed_graph_node_destroyed, uint64_t node)
{
    feed_note("node gone %lx", L node);
}

STANDIN(uint32_t, gp_feed_graph_node_destroy_begin, uint64_t node)
{
    feed_note("node ends %lx", L node);
    return feed_token;
}

STANDIN(void, gp_feed_graph_node_destroy_end, uint32_t token, bool ok)
{
    feed_note("node ended %x %d", token, ok);
}

STANDIN(void, gp_feed_call_left, void)
{
    feed_note("a call was left");
}

/* ---- contexts, streams, modules ---------------------------------------------------------------------------------- */

static bool feed_learns; /* contexts that were reported are known */
static int feed_learned[64];

STANDIN(void, gp_feed_context_created, uint32_t ctx, int device)
{
    feed_learned[ctx % 64] = device + 1;
    feed_note("ctx %u device %d", ctx, device);
}

STANDIN(void, gp_feed_context_destroyed, uint32_t ctx, int device, bool announced)
{
    feed_note("ctx gone %u device %d %d", ctx, device, announced);
}

STANDIN(uint32_t, gp_feed_context_destroy_begin, uint32_t ctx, int device)
{
    feed_note("ctx ends %u device %d", ctx, device);
    return feed_token;
}

STANDIN(void, gp_feed_context_destroy_end, uint32_t token, bool ok, bool announced)
{
    feed_note("ctx ended %x %d %d", token, ok, announced);
}

STANDIN(void, gp_feed_green_destroyed, uint32_t ctx, int device)
{
    feed_note("green gone %u device %d", ctx, device);
}

STANDIN(void, gp_feed_context_learned, uint32_t ctx, int device)
{
    feed_learned[ctx % 64] = device + 1;
    feed_note("learned ctx %u device %d", ctx, device);
}

/* Else the contexts 7 and 8 are known. */
STANDIN(int, gp_feed_context_device, uint32_t ctx)
{
    if (feed_learns)
        return feed_learned[ctx % 64] - 1;
    return ctx == 7 || ctx == 8 ? (int)ctx - 7 : GP_DEVICE_UNKNOWN;
}

STANDIN(uint32_t, gp_feed_primary_of, int device)
{
    return 70 + (uint32_t)device;
}

STANDIN(void, gp_feed_stream_created, uint64_t stream, uint32_t ctx)
{
    feed_note("stream %lx ctx %u", L stream, ctx);
}

STANDIN(void, gp_feed_stream_destroyed, uint64_t stream)
{
    feed_note("stream gone %lx", L stream);
}

STANDIN(void, gp_feed_module_loaded, uint32_t module, uint64_t bytes, uint32_t ctx)
{
    feed_note("module %u of %lu ctx %u", module, L bytes, ctx);
}

STANDIN(void, gp_feed_module_unloaded, uint32_t module)
{
    feed_note("module gone %u", module);
}

#undef L

#endif
