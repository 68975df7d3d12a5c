/* SPDX-License-Identifier: MIT
 *
 * feed_log.h: stands in for the accounts: writes each report into a text instead, and answers questions from tables that
 * differ for each argument.  For tests of what the source reports; one test program includes it once.
 */
#ifndef GP_TEST_FEED_LOG_H
#define GP_TEST_FEED_LOG_H

#include "account/feed.h"
#include "base/thread.h"
#include "lib/standin.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char feed_text[1 << 16];
static uint32_t feed_token = 0x70; /* of each begin; 0: unknown */
static uint64_t feed_capturing;    /* the stream that captures */
static uint8_t feed_cost;          /* gp_thread.cost at the last report */

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
    feed_cost = gp_thread.cost;
}

static const char *feed_taken(void)
{
    static char taken[sizeof(feed_text)];
    memcpy(taken, feed_text, strlen(feed_text) + 1);
    feed_text[0] = '\0';
    return taken;
}

/* By number, as in feed.h and wire.h. */
static const char *const feed_spaces[] = {"none",  "device", "host",    "registered", "array",
                                          "block", "vmm",    "mapping", "range",      "pool"};
static const char *const feed_kinds[] = {"none",    "linear", "pitched",    "array",    "vmm",     "pool",    "graph",
                                         "managed", "pinned", "registered", "imported", "virtual", "context", "module"};

#define L (unsigned long)

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

STANDIN(void, gp_feed_alloc, const struct gp_allocation *block)
{
    feed_note("alloc %s %s device %d ctx %u at %lx of %lu asked %lu stream %lx pool %lx%s", feed_spaces[block->space],
              feed_kinds[block->kind], block->device, block->ctx, L block->address, L block->bytes,
              L block->requested_bytes, L block->stream, L block->pool, block->estimated ? " estimated" : "");
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

STANDIN(bool, gp_feed_is_known, uint64_t address)
{
    return address == 0;
}

STANDIN(void, gp_feed_before_unmapped, uint64_t address, uint64_t bytes)
{
    feed_note("before unmapped at %lx of %lu", L address, L bytes);
}

STANDIN(void, gp_feed_failed, const char *api, uint32_t error, uint64_t requested_bytes, int device,
        enum gp_wire_kind kind)
{
    (void)kind;
    feed_note("failed %s %u asked %lu device %d", api, error, L requested_bytes, device);
}

STANDIN(void, gp_feed_poll_oom_replay, uint32_t most)
{
    (void)most;
}

STANDIN(void, gp_feed_context_used, int device, uint32_t ctx, uint64_t context)
{
    (void)device;
    (void)ctx;
    (void)context;
}

STANDIN(void, gp_feed_oom_context, uint32_t ctx, uint64_t context)
{
    feed_note("oom ctx %u %lx", ctx, L context);
}

STANDIN(void, gp_feed_lost, enum gp_wire_lost cause)
{
    feed_note("lost %d", cause);
}

static bool is_followed;

STANDIN(bool, gp_feed_followed, void)
{
    return is_followed;
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

/* ---- virtual memory management ----------------------------------------------------------------------------------- */

STANDIN(void, gp_feed_vmm_create, uint64_t handle, uint64_t bytes, int device)
{
    feed_note("create %lx of %lu device %d", L handle, L bytes, device);
}

STANDIN(void, gp_feed_vmm_import, uint64_t handle, int device)
{
    feed_note("import %lx device %d", L handle, device);
}

STANDIN(void, gp_feed_vmm_object, uint64_t handle, int device)
{
    feed_note("object %lx device %d", L handle, device);
}

STANDIN(void, gp_feed_vmm_retain, uint64_t handle)
{
    feed_note("retain %lx", L handle);
}

STANDIN(uint32_t, gp_feed_vmm_release_begin, uint64_t handle)
{
    feed_note("release %lx", L handle);
    return feed_token;
}

STANDIN(void, gp_feed_vmm_release_end, uint32_t token, bool ok)
{
    feed_note("released %x %d", token, ok);
}

STANDIN(void, gp_feed_vmm_map, uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle)
{
    feed_note("map at %lx of %lu from %lx of %lx", L address, L bytes, L offset, L handle);
}

STANDIN(uint64_t, gp_feed_vmm_handle_at, uint64_t address)
{
    return address == 0x5000 ? 0 : address + 0xa;
}

STANDIN(uint32_t, gp_feed_vmm_unmap_begin, uint64_t address, uint64_t bytes)
{
    feed_note("unmap at %lx of %lu", L address, L bytes);
    return feed_token;
}

STANDIN(void, gp_feed_vmm_unmap_end, uint32_t token, bool ok)
{
    feed_note("unmapped %x %d", token, ok);
}

STANDIN(void, gp_feed_vmm_bind, uint64_t object, int device, uint64_t offset, uint64_t bytes, uint64_t handle)
{
    feed_note("bind to %lx device %d at %lx of %lu handle %lx", L object, device, L offset, L bytes, L handle);
}

STANDIN(void, gp_feed_vmm_unbind, uint64_t object, int device, uint64_t offset, uint64_t bytes)
{
    feed_note("unbind from %lx device %d at %lx of %lu", L object, device, L offset, L bytes);
}

STANDIN(void, gp_feed_vmm_unbind_all, uint64_t object)
{
    feed_note("unbind all from %lx", L object);
}

/* ---- pools, graphs, imports -------------------------------------------------------------------------------------- */

STANDIN(void, gp_feed_pool_create, uint64_t pool, int device, unsigned flags)
{
    feed_note("pool %lx device %d flags %u", L pool, device, flags);
}

STANDIN(void, gp_feed_pool_found, uint64_t pool, int device, unsigned flags)
{
    feed_note("found pool %lx device %d flags %u", L pool, device, flags);
}

STANDIN(uint32_t, gp_feed_pool_destroy_begin, uint64_t pool)
{
    feed_note("destroy pool %lx", L pool);
    return feed_token;
}

STANDIN(void, gp_feed_pool_destroy_end, uint32_t token, bool ok)
{
    feed_note("destroyed pool %x %d", token, ok);
}

STANDIN(void, gp_feed_pool_use, int device, uint64_t pool)
{
    feed_note("device %d uses %lx", device, L pool);
}

STANDIN(void, gp_feed_pools_unsure, int device)
{
    feed_note("unsure of device %d", device);
}

STANDIN(void, gp_feed_pool_sure, uint64_t pool)
{
    feed_note("sure of %lx", L pool);
}

STANDIN(void, gp_feed_pool_default, uint64_t pool, int device)
{
    feed_note("named pool %lx device %d", L pool, device);
}

STANDIN(uint64_t, gp_feed_pool_of, int device)
{
    return device < 0 ? 0 : 0xd00 + (uint64_t)device;
}

STANDIN(int, gp_feed_pool_device, uint64_t pool)
{
    return pool == 0xe01 ? 4 : pool == 0xe00 ? 0 : GP_DEVICE_UNKNOWN;
}

STANDIN(bool, gp_feed_pool_is_managed, uint64_t pool)
{
    return pool == 0xe02;
}

STANDIN(bool, gp_feed_pool_is_nowhere, uint64_t pool)
{
    return pool == 0xe03;
}

STANDIN(void, gp_feed_pool_import_pointer, uint64_t address, int device)
{
    feed_note("import pointer %lx device %d", L address, device);
}

STANDIN(void, gp_feed_graph_node, uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph)
{
    feed_note("node at %lx of %lu device %d node %lx graph %lx", L address, L bytes, device, L node, L graph);
}

STANDIN(void, gp_feed_graph_node_destroyed, uint64_t node)
{
    feed_note("node gone %lx", L node);
}

STANDIN(uint32_t, gp_feed_graph_destroy_begin, uint64_t graph)
{
    feed_note("destroy graph %lx", L graph);
    return feed_token;
}

STANDIN(void, gp_feed_graph_destroy_end, uint32_t token, bool ok)
{
    feed_note("destroyed graph %x %d", token, ok);
}

STANDIN(void, gp_feed_graph_moved, uint64_t graph, uint64_t into)
{
    feed_note("graph %lx moved into %lx", L graph, L into);
}

STANDIN(bool, gp_feed_graph_knows, uint64_t address)
{
    return address == 0x6000;
}

STANDIN(void, gp_feed_ipc_open, uint64_t address, int device, uint32_t ctx)
{
    feed_note("ipc at %lx device %d ctx %u", L address, device, ctx);
}

STANDIN(uint32_t, gp_feed_ipc_close_begin, uint64_t address)
{
    feed_note("ipc close %lx", L address);
    return feed_token;
}

STANDIN(void, gp_feed_ipc_close_end, uint32_t token, bool ok)
{
    feed_note("ipc closed %x %d", token, ok);
}

STANDIN(void, gp_feed_poll_want, unsigned bits)
{
    feed_note("want %u", bits);
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

STANDIN(void, gp_feed_primary_context, int device, uint32_t ctx)
{
    feed_note("primary of device %d is ctx %u", device, ctx);
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

STANDIN(void, gp_feed_capture_begin, uint64_t stream, enum gp_capture how)
{
    feed_note("capture %lx %d", L stream, how);
}

STANDIN(bool, gp_feed_poll_ask, void)
{
    return true;
}

STANDIN(void, gp_feed_poll_refused, void)
{
    feed_note("refused");
}

STANDIN(bool, gp_feed_poll_silent, void)
{
    return false;
}

STANDIN(uint32_t, gp_feed_poll_asks, void)
{
    return 0xa5;
}

STANDIN(void, gp_feed_capture_asks, uint64_t stream, uint32_t asks)
{
    feed_note("stream %lx asks %x", L stream, asks);
}

STANDIN(void, gp_feed_capture_forbidden, void)
{
    feed_note("capture forbids");
}

STANDIN(void, gp_feed_capture_broke, uint64_t stream)
{
    feed_note("capture broke %lx", L stream);
}

STANDIN(bool, gp_feed_recaptured, uint64_t address)
{
    return address == 0x4000;
}

STANDIN(void, gp_feed_capture_graph, uint64_t stream, uint64_t graph)
{
    feed_note("stream %lx captures %lx", L stream, L graph);
}

STANDIN(void, gp_feed_capture_end, uint64_t stream, bool discarded)
{
    feed_note("capture end %lx %d", L stream, discarded);
}

STANDIN(bool, gp_feed_stream_is_capturing, uint64_t stream)
{
    return feed_capturing && stream == feed_capturing;
}

STANDIN(int, gp_feed_stream_device, uint64_t stream)
{
    return stream == 0x50 || stream < 4 ? 3 : GP_DEVICE_UNKNOWN;
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
