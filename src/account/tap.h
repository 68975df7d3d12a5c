/* SPDX-License-Identifier: MIT
 *
 * tap.h: the only way out of the accounts: exact numbers, resets, scopes. Called by session/ on
 * our own threads (and once at exit).
 */
#ifndef GP_ACCOUNT_TAP_H
#define GP_ACCOUNT_TAP_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* True if the index has been used. */
bool gp_tap_known(unsigned index);

/* Reads one device at one instant. False: the index was never used. */
bool gp_tap_device(unsigned index, struct gp_wire_device *out);
/* The same, and at that instant the memory of each owner; owners: untouched if it is false. */
bool gp_tap_owned(unsigned index, struct gp_wire_device *out, struct gp_wire_owner_value owners[GP_WIRE_OWNERS]);

/* The bytes that the summed call sites of a device hold, given its numbers: allocated bytes, and
 * the parts of cuMemCreate handles that are not mapped. */
int64_t gp_tap_site_bytes(unsigned index, const struct gp_wire_device *device);

/* what: GP_RESET_*. Fills before/after of the `all` pools. False: the index was never used. */
bool gp_tap_reset(unsigned index, unsigned what, struct gp_wire_before_after *out);

/* Scopes by slot, on every device at once. begin: 0, or -EBUSY. end: fills the peaks of each
 * device; 0, or -ENOENT. */
int gp_tap_scope_begin(unsigned slot);
int gp_tap_scope_end(unsigned slot, struct gp_wire_scope_value out[GP_WIRE_DEVICES]);
/* One device's peaks so far: 0, -ENODEV (index never used), -ENOENT. */
int gp_tap_scope_read(unsigned slot, unsigned index, struct gp_wire_scope_value *out);

/* The program has used pools or graphs, so parts of the numbers are as of the last poll. */
bool gp_tap_polled(void);

/* Visits every block that counts as allocated, and every physical allocation, once each, in no
 * order; blocks that are allocated or freed meanwhile may be left out. index: GP_TAP_EVERY for
 * all devices in one walk. Memory of virtual memory management is visited by its mappings, each
 * reservation once as a block of kind virtual, and what a handle has beyond its mappings once at
 * the handle's number. visit runs under the map's locks: it must be short and must not call
 * the accounts. rest runs under no lock, at least once every GP_TAP_REST blocks. */
#define GP_TAP_EVERY UINT32_MAX
#define GP_TAP_REST  64u
struct gp_tap_block {
    uint64_t address; /* the handle, for an array and for vmm memory that is not mapped */
    uint64_t bytes, requested_bytes;
    uint64_t time_ns; /* when it was allocated */
    uint32_t site;
    uint8_t kind, device;
    uint8_t owner;
    bool segment; /* a framework's, which contains blocks */
    bool inside;  /* a block of a framework, inside a segment */
    bool mapped;  /* a mapping of vmm memory */
    bool before;  /* from before the attach: in no total */
};
typedef void gp_tap_block_fn(void *arg, const struct gp_tap_block *block);
void gp_tap_blocks(unsigned index, void *arg, gp_tap_block_fn *visit, void (*rest)(void *arg));

/* The libraries whose own pools are watched. */
void gp_tap_doors(struct gp_wire_doors *out);

/* The numbers of the framework that reports its blocks on one device, its own and ours, and those
 * of sub-allocators that describe their heaps. False: the index was never used, or no block was
 * ever reported. */
bool gp_tap_framework(unsigned index, struct gp_wire_framework *framework, struct gp_wire_framework *heaps);

/* Memory from before the attach; index: a GPU's. */
void gp_tap_before(unsigned index, struct gp_wire_before_device *out);
void gp_tap_before_blocks(struct gp_wire_blocks *out);

/* Reads the numbers of a device that a batch reports. The high-water mark counts since the last
 * call, or since batches began. calls, frees and failures only rise, whatever is reset. False: the
 * index was never used, or is the host's. */
struct gp_batch_device;
bool gp_tap_batch(unsigned index, struct gp_batch_device *out);
/* Start and end tracking of the high-water mark, also for devices that are used later. */
void gp_tap_batch_begin(void);
void gp_tap_batch_end(void);

/* Events attempted so far (written and lost). */
uint64_t gp_tap_events(void);

#endif
