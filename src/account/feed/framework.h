/* SPDX-License-Identifier: MIT
 *
 * framework.h: blocks of a framework.
 *
 * A framework's allocator reports each block that it hands out of its segments and takes back. The
 * reports of one device must be ordered: the framework holds its lock of the device. Unknown totals
 * are -1.
 */
#ifndef GP_ACCOUNT_FEED_FRAMEWORK_H
#define GP_ACCOUNT_FEED_FRAMEWORK_H

#include <stdbool.h>
#include <stdint.h>

struct gp_framework_event {
    int device;
    uint64_t address;
    int64_t bytes;                           /* > 0 handed out, < 0 taken back */
    int64_t allocated_bytes, reserved_bytes; /* the framework's totals, this block included */
};
/* owner: its row in the table of owners. */
void gp_feed_framework_block(const struct gp_framework_event *event, uint8_t owner);
/* The framework gave up on a request, after it freed what it had cached. api: constant text. */
void gp_feed_framework_oom(const char *api, int device, uint64_t requested_bytes);
/* From now on blocks are reported, and a failed driver allocation of a segment is not the end. */
void gp_feed_framework_start(const char *name);
/* How its allocator is set up. */
struct gp_framework_conf {
    char text[128];          /* PYTORCH_CUDA_ALLOC_CONF; "": not set */
    uint64_t (*pools)(void); /* private pools that it has made; NULL: not known */
};
/* Before its first block. */
void gp_feed_framework_conf(const struct gp_framework_conf *conf);

/* From now on the framework tells which threads use a private pool, of which none does now; or it does not. */
void gp_feed_framework_tells_pools(bool tells);
/* From now on a pool is used: for what this thread asks, or for what is captured. Until any thread says that it is not. */
enum gp_pool_use { GP_POOL_UNUSED, GP_POOL_OF_THREAD, GP_POOL_OF_CAPTURE };
void gp_feed_framework_pool(int device, uint64_t first, uint64_t second, enum gp_pool_use use);

#endif
