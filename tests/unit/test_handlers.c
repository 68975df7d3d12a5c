/* SPDX-License-Identifier: MIT
 *
 * test_handlers.c: what the handler of each entry point reports to the accounts before and after the call, word by word: when
 * the call succeeds, when it fails, and in the states that change the report.  The accounts are a text (feed_log.h).
 */
#include "base/clock.h"
#include "feed_log.h"
#include "source/internal.h"
#include "source/source.h"
#include <criterion/criterion.h>
#include <time.h>

#define P(_name, ...) &(struct gp_params_##_name)__VA_ARGS__
#define ROW(_name, _params, _ok, _failed, ...)                                                                         \
    {                                                                                                                  \
        .name = _name, .params = _params, .ok = _ok, .failed = _failed, __VA_ARGS__                                    \
    }
#define PTR(_number) ((void *)(uintptr_t)(_number))

static uint64_t address = 0x1000;
static void *handle = PTR(0x2000), *pool_made = PTR(0xe44);
static size_t pitch = 512;
static struct gp_cu_array_desc flat = {.width = 8, .height = 2, .format = 0x20, .channels = 2};
static struct gp_cu_array3d_desc deep = {.width = 8, .height = 4, .depth = 2, .format = 0x20, .channels = 2};
static struct gp_cu_mem_prop prop = {.location = {.type = GP_CU_LOCATION_DEVICE, .id = 3}};
static struct gp_cu_pool_props pinned = {.type = GP_CU_ALLOCATION_PINNED,
                                         .location = {.type = GP_CU_LOCATION_DEVICE, .id = 3}};
static struct gp_cu_pool_props managed = {.type = GP_CU_ALLOCATION_MANAGED,
                                          .location = {.type = GP_CU_LOCATION_HOST, .id = 3}};
static struct gp_cu_location on_device = {.type = GP_CU_LOCATION_DEVICE, .id = 3};
static struct gp_cu_location on_host = {.type = GP_CU_LOCATION_HOST, .id = 3};
static struct gp_cu_alloc_node node = {
    .pool = {.location = {.type = GP_CU_LOCATION_DEVICE, .id = 3}}, .bytes = 100, .address = 0x1000};
static struct gp_cu_node_params alloc_node = {
    .type = GP_CU_NODE_ALLOC,
    .alloc = {.pool = {.location = {.type = GP_CU_LOCATION_DEVICE, .id = 3}}, .bytes = 100, .address = 0x1000}};
static struct gp_cu_node_params child = {.type = GP_CU_NODE_CHILD,
                                         .child = {.graph = PTR(0x62), .ownership = GP_CU_CHILD_MOVED}};
static struct gp_cu_node_params copied = {.type = GP_CU_NODE_CHILD, .child = {.graph = PTR(0x62), .ownership = 0}};
static struct gp_cu_node_params other_node = {.type = GP_CU_NODE_FREE,
                                              .child = {.graph = PTR(0x62), .ownership = GP_CU_CHILD_MOVED}};
static struct gp_cu_buffer_desc buffer = {.offset = 50, .size = 100};

/* The context 8 is of device 1, and 9 is not known. */
struct row {
    const char *name;
    const void *params;
    const char *ok, *failed; /* reports: before the call|after it; failed: without the line of the failure itself */
    uint64_t asked;          /* of a failure */
    int device;              /* of a failure: + 1; 0: of the context */
    uint32_t ctx;            /* 0: 8 */
    bool is_unknown;         /* begins return no token */
    uint8_t node_type;       /* during the call, + 1 */
    uint64_t capturing;
};

static void run(const struct row *row, uint32_t result)
{
    uint64_t slot = 77;
    struct gp_call call = {.params = row->params,
                           .context = PTR(0xc8),
                           .ctx = row->ctx ? row->ctx : 8,
                           .result = result,
                           .slot = &slot,
                           .device = 99};
    for (unsigned i = 0; i < gp_hook_count && !call.hook; i++)
        call.hook = strcmp(gp_hooks[i].name, row->name) == 0 ? &gp_hooks[i] : NULL;
    cr_assert_not_null(call.hook, "%s", row->name);
    feed_token = row->is_unknown ? 0 : 0x70;
    feed_capturing = row->capturing;
    gp_thread.node_type = 55;
    gp_dispatch_enter(&call);
    cr_assert_eq(gp_thread.node_type, 0, "%s: a node of another call", row->name);
    size_t used = strlen(feed_text);
    memcpy(feed_text + used, "|", 2);
    gp_thread.node_type = row->node_type;
    gp_thread.node = 0x63;
    gp_thread.graph = 0x64;
    gp_dispatch_exit(&call);
    gp_thread.node_type = 0;
}

static void check(const struct row *row)
{
    char want[1024];
    int device = row->device ? row->device - 1 : (row->ctx ? row->ctx : 8) == 8 ? 1 : -1;
    run(row, 0);
    const char *is = feed_taken();
    cr_expect_str_eq(is, row->ok, "%s:\n%s\n%s", row->name, is, row->ok);
    for (uint32_t result = 1; result <= 3; result++) {
        run(row, result);
        int used = snprintf(want, sizeof(want), "%sfailed %s %u asked %lu device %d;", row->failed, row->name, result,
                            (unsigned long)row->asked, device);
        if (result == GP_ERROR_OUT_OF_MEMORY)
            snprintf(want + used, sizeof(want) - (size_t)used, "oom ctx %u c8;", row->ctx ? row->ctx : 8);
        is = feed_taken();
        cr_expect_str_eq(is, want, "%s:\n%s\n%s", row->name, is, want);
    }
}

#define CHECK(_rows)                                                                                                   \
    for (size_t i = 0; i < sizeof(_rows) / sizeof((_rows)[0]); i++)                                                    \
    check(&(_rows)[i])

/* ---- linear, host and array memory ------------------------------------------------------------------------------- */

Test(handlers, linear_and_host_memory)
{
    const struct row rows[] = {
        ROW("cuMemAlloc_v2", P(cuMemAlloc_v2, {&address, 100}),
            "|alloc device linear device 1 ctx 8 at 1000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100),
        ROW("cuMemAlloc_v2", P(cuMemAlloc_v2, {&address, 100}),
            "|alloc device linear device -1 ctx 9 at 1000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100,
            .ctx = 9),
        ROW("cuMemAllocPitch_v2", P(cuMemAllocPitch_v2, {&address, &pitch, 100, 3, 4}),
            "|alloc device pitched device 1 ctx 8 at 1000 of 1536 asked 300 stream 0 pool 0;", "|", .asked = 300),
        ROW("cuMemAllocManaged", P(cuMemAllocManaged, {&address, 100, 1}),
            "|alloc device managed device 1 ctx 8 at 1000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100),
        ROW("cuMemAllocHost_v2", P(cuMemAllocHost_v2, {&handle, 100}),
            "|alloc host pinned device 64 ctx 8 at 2000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100,
            .device = 65),
        ROW("cuMemHostAlloc", P(cuMemHostAlloc, {&handle, 100, 1}),
            "|alloc host pinned device 64 ctx 8 at 2000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100,
            .device = 65),
        ROW("cuMemHostRegister_v2", P(cuMemHostRegister_v2, {PTR(0x3000), 100, 1}),
            "|alloc registered registered device 64 ctx 8 at 3000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100,
            .device = 65),
        ROW("cuMemHostRegister", P(cuMemHostRegister, {PTR(0x3000), 100, 1}),
            "|alloc registered registered device 64 ctx 8 at 3000 of 100 asked 100 stream 0 pool 0;", "|", .asked = 100,
            .device = 65),
        ROW("cuMemAlloc", P(cuMemAlloc, {NULL, 100}), "|lost 6;", "|lost 6;"),
        ROW("cuMemAllocPitch", P(cuMemAllocPitch, {NULL, NULL, 1, 1, 1}), "|lost 6;", "|lost 6;"),
        ROW("cuMemFree", P(cuMemFree, {1}), "|lost 6;", "|lost 6;"),
        ROW("cuMemAllocHost", P(cuMemAllocHost, {NULL, 100}), "|lost 6;", "|lost 6;"),
        ROW("cuArrayCreate", P(cuArrayCreate, {NULL, NULL}), "|lost 6;", "|lost 6;"),
        ROW("cuArray3DCreate", P(cuArray3DCreate, {NULL, NULL}), "|lost 6;", "|lost 6;"),
    };
    CHECK(rows);
}

Test(handlers, arrays)
{
    const struct row rows[] = {
        ROW("cuArrayCreate_v2", P(cuArrayCreate_v2, {&handle, &flat}),
            "|alloc array array device 1 ctx 8 at 2000 of 128 asked 128 stream 0 pool 0 estimated;", "|", .asked = 128),
        ROW("cuArrayCreate_v2", P(cuArrayCreate_v2, {&handle, NULL}),
            "|alloc array array device 1 ctx 8 at 2000 of 0 asked 0 stream 0 pool 0 estimated;", "|"),
        ROW("cuArray3DCreate_v2", P(cuArray3DCreate_v2, {&handle, &deep}),
            "|alloc array array device 1 ctx 8 at 2000 of 512 asked 512 stream 0 pool 0 estimated;", "|", .asked = 512),
        ROW("cuArray3DCreate_v2", P(cuArray3DCreate_v2, {&handle, NULL}),
            "|alloc array array device 1 ctx 8 at 2000 of 0 asked 0 stream 0 pool 0 estimated;", "|"),
        ROW("cuMipmappedArrayCreate", P(cuMipmappedArrayCreate, {&handle, &deep, 2}),
            "|alloc array array device 1 ctx 8 at 2000 of 576 asked 576 stream 0 pool 0 estimated;", "|", .asked = 576),
        ROW("cuMipmappedArrayCreate", P(cuMipmappedArrayCreate, {&handle, NULL, 2}),
            "|alloc array array device 1 ctx 8 at 2000 of 0 asked 0 stream 0 pool 0 estimated;", "|"),
        ROW("cuArrayDestroy", P(cuArrayDestroy, {PTR(0x2000)}), "free array at 2000;|freed 70 1 stream 0;",
            "free array at 2000;|freed 70 0 stream 0;"),
        ROW("cuMipmappedArrayDestroy", P(cuMipmappedArrayDestroy, {PTR(0x2000)}),
            "free array at 2000;|freed 70 1 stream 0;", "free array at 2000;|freed 70 0 stream 0;"),
        ROW("cuArrayDestroy", P(cuArrayDestroy, {PTR(0x2000)}), "free array at 2000;|unknown array at 2000;",
            "free array at 2000;|", .is_unknown = true),
    };
    CHECK(rows);
}

Test(handlers, frees)
{
    const struct row rows[] = {
        ROW("cuMemFree_v2", P(cuMemFree_v2, {0x1000}), "free device at 1000;|freed 70 1 stream 0;",
            "free device at 1000;|freed 70 0 stream 0;"),
        ROW("cuMemFree_v2", P(cuMemFree_v2, {0x1000}), "free device at 1000;|unknown device at 1000;",
            "free device at 1000;|", .is_unknown = true),
        ROW("cuMemFree_v2", P(cuMemFree_v2, {1}), "free device at 1;|unknown device at 1;", "free device at 1;|",
            .is_unknown = true),
        ROW("cuMemFree_v2", P(cuMemFree_v2, {0}), "free device at 0;|", "free device at 0;|", .is_unknown = true),
        ROW("cuMemFree_v2", P(cuMemFree_v2, {0x6000}), "free device at 6000;|", "free device at 6000;|",
            .is_unknown = true),
        ROW("cuMemFreeHost", P(cuMemFreeHost, {PTR(0x2000)}), "free host at 2000;|freed 70 1 stream 0;",
            "free host at 2000;|freed 70 0 stream 0;"),
        ROW("cuMemFreeHost", P(cuMemFreeHost, {PTR(0x2000)}), "free host at 2000;|unknown host at 2000;",
            "free host at 2000;|", .is_unknown = true),
        ROW("cuMemHostUnregister", P(cuMemHostUnregister, {PTR(0x3000)}),
            "free registered at 3000;|freed 70 1 stream 0;", "free registered at 3000;|freed 70 0 stream 0;"),
        ROW("cuMemHostUnregister", P(cuMemHostUnregister, {PTR(0x3000)}),
            "free registered at 3000;|unknown registered at 3000;", "free registered at 3000;|", .is_unknown = true),
        ROW("cuMemFreeAsync", P(cuMemFreeAsync, {0x1000, PTR(0x50)}), "free device at 1000;|freed 70 1 stream 50;",
            "free device at 1000;|freed 70 0 stream 50;"),
        ROW("cuMemFreeAsync_ptsz", P(cuMemFreeAsync_ptsz, {0x1000, PTR(0x50)}),
            "free device at 1000;|freed 70 1 stream 50;", "free device at 1000;|freed 70 0 stream 50;"),
        ROW("cuMemFreeAsync", P(cuMemFreeAsync, {0x1000, PTR(0x50)}), "free device at 1000;|unknown device at 1000;",
            "free device at 1000;|", .is_unknown = true),
        ROW("cuMemFreeAsync", P(cuMemFreeAsync, {0x1000, PTR(0x50)}), "free device at 1000;|freed 70 0 stream 50;",
            "free device at 1000;|freed 70 0 stream 50;", .capturing = 0x50),
        ROW("cuMemFreeAsync", P(cuMemFreeAsync, {0x1000, PTR(0x50)}), "free device at 1000;|freed 70 0 stream 50;",
            "free device at 1000;|freed 70 0 stream 50;", .node_type = GP_CU_NODE_FREE + 1),
        ROW("cuMemFreeAsync", P(cuMemFreeAsync, {0x1000, PTR(0x50)}), "free device at 1000;|freed 70 1 stream 50;",
            "free device at 1000;|freed 70 0 stream 50;", .node_type = GP_CU_NODE_ALLOC + 1, .capturing = 0x51),
    };
    CHECK(rows);
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

#define POOL_BLOCK(_device, _stream, _pool)                                                                            \
    "|alloc device pool device " #_device " ctx 0 at 1000 of 100 asked 100 stream " #_stream " pool " #_pool ";"

Test(handlers, memory_of_pools)
{
    const struct row rows[] = {
        /* The stream's device; of a default stream, or one that is not known, the context's. */
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x50)}), POOL_BLOCK(3, 50, d03), "|",
            .asked = 100, .device = 4),
        ROW("cuMemAllocAsync_ptsz", P(cuMemAllocAsync_ptsz, {&address, 100, PTR(0x50)}), POOL_BLOCK(3, 50, d03), "|",
            .asked = 100, .device = 4),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0)}), POOL_BLOCK(1, 0, d01), "|", .asked = 100),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(1)}), POOL_BLOCK(1, 1, d01), "|", .asked = 100),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(2)}), POOL_BLOCK(1, 2, d01), "|", .asked = 100),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(3)}), POOL_BLOCK(3, 3, d03), "|", .asked = 100,
            .device = 4),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x60)}), POOL_BLOCK(1, 60, d01), "|",
            .asked = 100),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x60)}), POOL_BLOCK(0, 60, d00), "|",
            .asked = 100, .device = 1, .ctx = 7),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x60)}), POOL_BLOCK(-1, 60, 0), "|", .asked = 100,
            .ctx = 9),
        /* The pool's device comes first, where it is known. */
        ROW("cuMemAllocFromPoolAsync", P(cuMemAllocFromPoolAsync, {&address, 100, PTR(0xe01), PTR(0x50)}),
            POOL_BLOCK(4, 50, e01), "|", .asked = 100, .device = 5),
        ROW("cuMemAllocFromPoolAsync_ptsz", P(cuMemAllocFromPoolAsync_ptsz, {&address, 100, PTR(0xe00), PTR(0x50)}),
            POOL_BLOCK(0, 50, e00), "|", .asked = 100, .device = 1),
        ROW("cuMemAllocFromPoolAsync", P(cuMemAllocFromPoolAsync, {&address, 100, PTR(0xe03), PTR(0x50)}),
            POOL_BLOCK(-1, 50, e03), "|", .asked = 100),
        ROW("cuMemAllocFromPoolAsync", P(cuMemAllocFromPoolAsync, {&address, 100, PTR(0xe04), PTR(0x50)}),
            POOL_BLOCK(3, 50, e04), "|", .asked = 100, .device = 4),
        ROW("cuMemAllocFromPoolAsync", P(cuMemAllocFromPoolAsync, {&address, 100, PTR(0xe02), PTR(0x50)}),
            "|alloc device managed device 3 ctx 0 at 1000 of 100 asked 100 stream 50 pool e02;", "|", .asked = 100,
            .device = 4),
        /* Captured: by what the source says of the node, or by what is known of the stream. */
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x50)}),
            "|node at 1000 of 100 device 3 node 63 graph 64;stream 50 captures 64;", "|", .asked = 100, .device = 4,
            .node_type = GP_CU_NODE_ALLOC + 1),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x50)}),
            "|node at 1000 of 100 device 3 node 0 graph 0;stream 50 captures 0;", "|", .asked = 100, .device = 4,
            .capturing = 0x50),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&address, 100, PTR(0x50)}), POOL_BLOCK(3, 50, d03), "|",
            .asked = 100, .device = 4, .node_type = GP_CU_NODE_FREE + 1, .capturing = 0x51),
        ROW("cuMemAllocAsync", P(cuMemAllocAsync, {&(uint64_t){0x4000}, 100, PTR(0x50)}), "|", "|", .asked = 100,
            .device = 4, .capturing = 0x50),
        ROW("cuMemPoolImportPointer", P(cuMemPoolImportPointer, {&address, PTR(0xe01), NULL}),
            "|import pointer 1000 device 4;", "|"),
        ROW("cuMemPoolImportPointer", P(cuMemPoolImportPointer, {&address, PTR(0xe04), NULL}),
            "|import pointer 1000 device 0;", "|"),
    };
    CHECK(rows);
}

Test(handlers, pools)
{
    const struct row rows[] = {
        ROW("cuMemPoolCreate", P(cuMemPoolCreate, {&pool_made, &pinned}), "|pool e44 device 3 flags 0;", "|"),
        ROW("cuMemPoolCreate", P(cuMemPoolCreate, {&pool_made, &managed}), "|pool e44 device 64 flags 2;", "|"),
        ROW("cuMemPoolDestroy", P(cuMemPoolDestroy, {PTR(0xe44)}), "destroy pool e44;|destroyed pool 70 1;",
            "destroy pool e44;|destroyed pool 70 0;"),
        ROW("cuMemPoolTrimTo", P(cuMemPoolTrimTo, {PTR(0xe44), 0}), "|sure of e44;want 2;", "|want 2;"),
        ROW("cuMemPoolSetAttribute", P(cuMemPoolSetAttribute, {PTR(0xe44), 0, NULL}), "|sure of e44;want 2;",
            "|want 2;"),
        ROW("cuDeviceSetMemPool", P(cuDeviceSetMemPool, {3, PTR(0xe44)}), "|device 3 uses e44;sure of e44;", "|"),
        ROW("cuMemSetMemPool", P(cuMemSetMemPool, {&on_device, GP_CU_ALLOCATION_PINNED, PTR(0xe44)}),
            "|device 3 uses e44;", "|"),
        ROW("cuMemSetMemPool", P(cuMemSetMemPool, {&on_device, GP_CU_ALLOCATION_MANAGED, PTR(0xe44)}), "|", "|"),
        ROW("cuMemSetMemPool", P(cuMemSetMemPool, {&on_host, GP_CU_ALLOCATION_PINNED, PTR(0xe44)}), "|", "|"),
        ROW("cuMemGetDefaultMemPool", P(cuMemGetDefaultMemPool, {&pool_made, &on_device, GP_CU_ALLOCATION_PINNED}),
            "|found pool e44 device 3 flags 0;", "|"),
        ROW("cuMemGetDefaultMemPool", P(cuMemGetDefaultMemPool, {&pool_made, &on_host, GP_CU_ALLOCATION_MANAGED}),
            "|found pool e44 device 64 flags 2;", "|"),
        ROW("cuMemGetMemPool", P(cuMemGetMemPool, {&pool_made, &on_device, GP_CU_ALLOCATION_MANAGED}),
            "|found pool e44 device 3 flags 2;", "|"),
        ROW("cuMemPoolImportFromShareableHandle", P(cuMemPoolImportFromShareableHandle, {&pool_made, NULL, 1, 0}),
            "|pool e44 device 1 flags 1;", "|"),
        ROW("cuMemPoolImportFromShareableHandle", P(cuMemPoolImportFromShareableHandle, {&pool_made, NULL, 1, 0}),
            "|pool e44 device 0 flags 1;", "|", .ctx = 9),
    };
    CHECK(rows);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

#define NODE "|node at 1000 of 100 device 3 node 2000 graph 61;"

Test(handlers, graphs)
{
    const struct row rows[] = {
        ROW("cuGraphAddMemAllocNode", P(cuGraphAddMemAllocNode, {&handle, PTR(0x61), NULL, 0, &node}), NODE, "|",
            .asked = 100, .device = 4),
        ROW("cuGraphAddMemAllocNode", P(cuGraphAddMemAllocNode, {&handle, PTR(0x61), NULL, 0, NULL}), "|", "|"),
        ROW("cuGraphAddNode", P(cuGraphAddNode, {&handle, PTR(0x61), NULL, 0, &alloc_node}), NODE, "|", .asked = 100,
            .device = 4),
        ROW("cuGraphAddNode", P(cuGraphAddNode, {&handle, PTR(0x61), NULL, 0, &child}), "|graph 62 moved into 61;",
            "|"),
        ROW("cuGraphAddNode", P(cuGraphAddNode, {&handle, PTR(0x61), NULL, 0, &copied}), "|", "|"),
        ROW("cuGraphAddNode", P(cuGraphAddNode, {&handle, PTR(0x61), NULL, 0, &other_node}), "|", "|"),
        ROW("cuGraphAddNode", P(cuGraphAddNode, {&handle, PTR(0x61), NULL, 0, NULL}), "|", "|"),
        ROW("cuGraphAddNode_v2", P(cuGraphAddNode_v2, {&handle, PTR(0x61), NULL, NULL, 0, &alloc_node}), NODE, "|",
            .asked = 100, .device = 4),
        ROW("cuGraphAddNode_v3", P(cuGraphAddNode_v3, {&handle, PTR(0x61), NULL, NULL, 0, &child}),
            "|graph 62 moved into 61;", "|"),
        ROW("cuGraphUpload", P(cuGraphUpload, {PTR(0x61), NULL}), "|want 4;", "|want 4;"),
        ROW("cuGraphUpload_ptsz", P(cuGraphUpload_ptsz, {PTR(0x61), NULL}), "|want 4;", "|want 4;"),
        ROW("cuGraphExecDestroy", P(cuGraphExecDestroy, {PTR(0x61)}), "|want 4;", "|want 4;"),
        ROW("cuDeviceGraphMemTrim", P(cuDeviceGraphMemTrim, {0}), "|want 4;", "|want 4;"),
        ROW("cuDeviceSetGraphMemAttribute", P(cuDeviceSetGraphMemAttribute, {0, 0, NULL}), "|want 4;", "|want 4;"),
        ROW("cuGraphDestroy", P(cuGraphDestroy, {PTR(0x61)}), "destroy graph 61;|destroyed graph 70 1;",
            "destroy graph 61;|destroyed graph 70 0;"),
        ROW("cuStreamBeginCapture", P(cuStreamBeginCapture, {PTR(0x50)}), "|capture 50 1;stream 50 asks a5;", "|"),
        ROW("cuStreamBeginCapture_ptsz", P(cuStreamBeginCapture_ptsz, {PTR(0x50)}), "|capture 50 1;stream 50 asks a5;",
            "|"),
        ROW("cuStreamBeginCapture_v2", P(cuStreamBeginCapture_v2, {PTR(0x50), 0}), "|capture 50 1;stream 50 asks a5;",
            "|"),
        ROW("cuStreamBeginCapture_v2_ptsz", P(cuStreamBeginCapture_v2_ptsz, {PTR(0x50), 0}),
            "|capture 50 1;stream 50 asks a5;", "|"),
        ROW("cuStreamBeginCaptureToGraph", P(cuStreamBeginCaptureToGraph, {PTR(0x50), PTR(0x61), NULL, NULL, 0, 0}),
            "|capture 50 2;stream 50 asks a5;", "|"),
        ROW("cuStreamBeginCaptureToGraph_ptsz",
            P(cuStreamBeginCaptureToGraph_ptsz, {PTR(0x50), PTR(0x61), NULL, NULL, 0, 0}),
            "|capture 50 2;stream 50 asks a5;", "|"),
        ROW("cuStreamBeginRecaptureToGraph", P(cuStreamBeginRecaptureToGraph, {PTR(0x50), 0, PTR(0x61), NULL, NULL}),
            "|capture 50 3;stream 50 asks a5;", "|"),
        ROW("cuStreamEndCapture", P(cuStreamEndCapture, {PTR(0x50), NULL}), "|capture end 50 0;", "|"),
        ROW("cuStreamEndCapture_ptsz", P(cuStreamEndCapture_ptsz, {PTR(0x50), NULL}), "|capture end 50 0;", "|"),
    };
    CHECK(rows);
}

Test(handlers, ends_of_captures_that_fail)
{
    const struct row row = {.name = "cuStreamEndCapture", .params = P(cuStreamEndCapture, {PTR(0x50), NULL})};
    for (uint32_t result = 895; result < 925; result++) {
        char want[128];
        const char *end = result == 900   ? "capture forbids;"
                          : result == 901 ? "capture broke 50;capture end 50 1;"
                          : result == 904 ? "capture end 50 1;"
                          : result == 918 ? "capture end 50 0;"
                                          : "";
        snprintf(want, sizeof(want), "|%sfailed cuStreamEndCapture %u asked 0 device 1;", end, result);
        run(&row, result);
        const char *is = feed_taken();
        cr_expect_str_eq(is, want, "%s", is);
    }
}

/* ---- virtual memory management ----------------------------------------------------------------------------------- */

Test(handlers, virtual_memory)
{
    const struct row rows[] = {
        ROW("cuMemAddressReserve", P(cuMemAddressReserve, {&address, 100, 0, 0x9000, 0}),
            "|alloc range virtual device 1 ctx 0 at 1000 of 100 asked 100 stream 0 pool 0;", "|"),
        ROW("cuMemAddressReserve", P(cuMemAddressReserve, {&address, 100, 0, 0x9000, 0}),
            "|alloc range virtual device 0 ctx 0 at 1000 of 100 asked 100 stream 0 pool 0;", "|", .ctx = 9),
        ROW("cuMemAddressFree", P(cuMemAddressFree, {0x1000, 100}), "free range at 1000;|freed 70 1 stream 0;",
            "free range at 1000;|freed 70 0 stream 0;"),
        ROW("cuMemCreate", P(cuMemCreate, {&address, 100, &prop, 0}), "|create 1000 of 100 device 3;", "|",
            .asked = 100, .device = 4),
        ROW("cuMemCreate", P(cuMemCreate, {&address, 100, NULL, 0}), "|create 1000 of 100 device -1;", "|",
            .asked = 100),
        ROW("cuMemRelease", P(cuMemRelease, {0x1000}), "release 1000;|released 70 1;", "release 1000;|released 70 0;"),
        ROW("cuMemRelease", P(cuMemRelease, {0x1000}), "release 1000;|unknown vmm at 1000;", "release 1000;|",
            .is_unknown = true),
        ROW("cuMemRetainAllocationHandle", P(cuMemRetainAllocationHandle, {&address, NULL}), "|retain 1000;", "|"),
        ROW("cuMemMap", P(cuMemMap, {0x7000, 100, 16, 0x1000, 0}), "|map at 7000 of 100 from 10 of 1000;", "|"),
        ROW("cuMemUnmap", P(cuMemUnmap, {0x7000, 100}),
            "unmap at 7000 of 100;|unmapped 70 1;before unmapped at 7000 of 100;",
            "unmap at 7000 of 100;|unmapped 70 0;"),
        ROW("cuMemImportFromShareableHandle", P(cuMemImportFromShareableHandle, {&address, NULL, 1}),
            "|import 1000 device 1;", "|"),
        ROW("cuMemImportFromShareableHandle", P(cuMemImportFromShareableHandle, {&address, NULL, 1}),
            "|import 1000 device 0;", "|", .ctx = 9),
        ROW("cuMulticastCreate", P(cuMulticastCreate, {&address, NULL}), "|object 1000 device 1;", "|"),
        ROW("cuMulticastCreate", P(cuMulticastCreate, {&address, NULL}), "|object 1000 device 0;", "|", .ctx = 9),
        ROW("cuMulticastBindMem", P(cuMulticastBindMem, {0x8000, 16, 0x1000, 32, 100, 0}),
            "|bind to 8000 device -1 at 10 of 100 handle 1000;", "|"),
        ROW("cuMulticastBindMem", P(cuMulticastBindMem, {0x8000, 16, 0, 32, 100, 0}), "|", "|"),
        ROW("cuMulticastBindMem_v2", P(cuMulticastBindMem_v2, {0x8000, 3, 16, 0x1000, 32, 100, 0}),
            "|bind to 8000 device 3 at 10 of 100 handle 1000;", "|"),
        ROW("cuMulticastBindAddr", P(cuMulticastBindAddr, {0x8000, 16, 0x7000, 100, 0}),
            "|bind to 8000 device -1 at 10 of 100 handle 700a;", "|"),
        ROW("cuMulticastBindAddr", P(cuMulticastBindAddr, {0x8000, 16, 0x5000, 100, 0}), "|", "|"),
        ROW("cuMulticastBindAddr_v2", P(cuMulticastBindAddr_v2, {0x8000, 3, 16, 0x7000, 100, 0}),
            "|bind to 8000 device 3 at 10 of 100 handle 700a;", "|"),
        ROW("cuMulticastUnbind", P(cuMulticastUnbind, {0x8000, 3, 16, 100}), "|unbind from 8000 device 3 at 10 of 100;",
            "|"),
        ROW("cuLogicalEndpointBindMem", P(cuLogicalEndpointBindMem, {5, 3, 16, 0x1000, 32, 100, 0}),
            "|bind to 8000000000000005 device 3 at 10 of 100 handle 1000;", "|"),
        ROW("cuLogicalEndpointBindAddr", P(cuLogicalEndpointBindAddr, {5, 3, 16, PTR(0x7000), 100, 0}),
            "|bind to 8000000000000005 device 3 at 10 of 100 handle 700a;", "|"),
        ROW("cuLogicalEndpointUnbind", P(cuLogicalEndpointUnbind, {5, 3, 16, 100}),
            "|unbind from 8000000000000005 device 3 at 10 of 100;", "|"),
        ROW("cuLogicalEndpointDestroy", P(cuLogicalEndpointDestroy, {5}), "|unbind all from 8000000000000005;", "|"),
    };
    CHECK(rows);
}

/* ---- imports and contexts ---------------------------------------------------------------------------------------- */

static uint32_t number_of(void *context)
{
    return context == PTR(0x2000) ? 17 : 0;
}

Test(handlers, imports_and_contexts)
{
    const struct row rows[] = {
        ROW("cuIpcOpenMemHandle", P(cuIpcOpenMemHandle, {.pdptr = &address}), "|ipc at 1000 device 1 ctx 8;", "|"),
        ROW("cuIpcOpenMemHandle_v2", P(cuIpcOpenMemHandle_v2, {.pdptr = &address}), "|ipc at 1000 device 1 ctx 8;",
            "|"),
        ROW("cuIpcCloseMemHandle", P(cuIpcCloseMemHandle, {0x1000}), "ipc close 1000;|ipc closed 70 1;",
            "ipc close 1000;|ipc closed 70 0;"),
        ROW("cuExternalMemoryGetMappedBuffer", P(cuExternalMemoryGetMappedBuffer, {&address, NULL, &buffer}),
            "|alloc device imported device 1 ctx 8 at 1000 of 100 asked 100 stream 0 pool 0;", "|"),
        ROW("cuExternalMemoryGetMappedMipmappedArray",
            P(cuExternalMemoryGetMappedMipmappedArray, {&handle, PTR(0x99), NULL}),
            "|alloc array imported device 1 ctx 8 at 2000 of 0 asked 0 stream 0 pool 0;", "|"),
        ROW("cuDevicePrimaryCtxReset", P(cuDevicePrimaryCtxReset, {3}), "unsure of device 3;|ctx gone 73 device 3 0;",
            "unsure of device 3;|"),
        ROW("cuDevicePrimaryCtxReset_v2", P(cuDevicePrimaryCtxReset_v2, {3}),
            "unsure of device 3;|ctx gone 73 device 3 0;", "unsure of device 3;|"),
        ROW("cuModuleUnload", P(cuModuleUnload, {NULL}), "|", "|"),
        ROW("cuCtxCreate_v2", P(cuCtxCreate_v2, {&handle, 0, 0}), "|", "|"),
    };
    const struct row retain = ROW("cuDevicePrimaryCtxRetain", P(cuDevicePrimaryCtxRetain, {&handle, 3}),
                                  "|primary of device 3 is ctx 17;", "|");
    static void *unknown = PTR(0x2001);
    const struct row other = ROW("cuDevicePrimaryCtxRetain", P(cuDevicePrimaryCtxRetain, {&unknown, 3}), "|", "|");
    CHECK(rows);
    gp_call_ask_number = number_of;
    check(&retain);
    check(&other);
    gp_call_ask_number = NULL;
    run(&retain, 0);
    cr_expect_str_eq(feed_taken(), "|");
}

/* ---- around the handlers ----------------------------------------------------------------------------------------- */

static int answer;
static unsigned asked;

static int device_of(void *context, uint32_t ctx)
{
    cr_expect_eq(context, PTR(0xc8));
    cr_expect_eq(ctx, 9);
    asked++;
    return answer;
}

/* The source is asked for a context that the accounts do not know, and the accounts learn what it says. */
Test(handlers, a_context_that_is_not_known)
{
    uint64_t slot;
    struct gp_call call = {.ctx = 9, .slot = &slot};
    cr_expect_eq(gp_call_device(&call), -1);
    gp_call_ask_device = device_of;
    cr_expect_eq(gp_call_device(&call), -1, "without a context none is asked for");
    call.context = PTR(0xc8);
    call.ctx = 7;
    cr_expect_eq(gp_call_device(&call), 0);
    cr_expect_eq(asked, 0);
    call.ctx = 9;
    for (answer = -1; answer <= 2; answer++) {
        cr_expect_eq(gp_call_device(&call), answer);
        char want[64] = "";
        if (answer >= 0)
            snprintf(want, sizeof(want), "learned ctx 9 device %d;", answer);
        cr_expect_str_eq(feed_taken(), want);
    }
    cr_expect_eq(asked, 4);
    gp_call_ask_device = NULL;
    cr_expect_eq(gp_call_device(&call), -1);
}

/* The cost is known while the exit is handled, not before and not after, and only where calls are timed. */
Test(handlers, the_cost_of_a_call)
{
    const struct row row = {.name = "cuMemFree_v2", .params = P(cuMemFree_v2, {0x1000})};
    const struct timespec while_ns = {.tv_nsec = 2000000};
    uint64_t slot;
    struct gp_call call = {.hook = NULL, .params = row.params, .ctx = 8, .slot = &slot};
    for (unsigned i = 0; i < gp_hook_count; i++)
        call.hook = strcmp(gp_hooks[i].name, row.name) == 0 ? &gp_hooks[i] : call.hook;
    for (int timed = 0; timed < 2; timed++) {
        gp_call_timed = timed;
        uint64_t began = gp_clock_ns();
        gp_dispatch_enter(&call);
        cr_expect_eq(feed_cost, 0);
        nanosleep(&while_ns, NULL);
        gp_dispatch_exit(&call);
        uint64_t most = gp_clock_ns() - began;
        cr_expect_eq(feed_cost != 0, timed, "%u", feed_cost);
        cr_expect_eq(gp_thread.cost, 0);
        cr_expect(!timed || (feed_cost >= gp_wire_cost(2000000) && feed_cost <= gp_wire_cost(most)), "%u", feed_cost);
    }
    gp_call_timed = false;
}

/* Every row that is not only noted for its failures is in a table above: the other rows report nothing. */
Test(handlers, rows_without_a_handler_report_their_failures)
{
    static const uint64_t words[16];
    unsigned count = 0;
    for (unsigned i = 0; i < gp_hook_count; i++) {
        if (gp_hooks[i].handler->enter || gp_hooks[i].handler->exit)
            continue;
        char want[128];
        struct row row = {.name = gp_hooks[i].name, .params = words};
        run(&row, 0);
        cr_expect_str_eq(feed_taken(), "|", "%s", row.name);
        run(&row, 700);
        snprintf(want, sizeof(want), "|failed %s 700 asked 0 device 1;", row.name);
        cr_expect_str_eq(feed_taken(), want);
        count++;
    }
    cr_expect_geq(count, 30);
}
