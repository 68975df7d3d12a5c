/* SPDX-License-Identifier: MIT
 *
 * map.h: the pointer map: live objects by (space, key). It is sharded by hash. Every shard has its
 * own lock and its own index, which grows a few entries at a time while other threads work, so no
 * operation ever waits for a whole rehash. Records never move. Memory comes from mmap, never from
 * malloc. The map does not know CUDA: the caller defines what a space or a kind means.
 */
#ifndef GP_BASE_MAP_H
#define GP_BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct gp_map;

/* The map itself reads the key and the space, and so does not know what the rest means (account/). */
struct gp_record { /* one cache line */
    uint64_t key;
    uint8_t space; /* what kind of key, and so which member of the union holds; 0 is reserved for "empty" */
    uint8_t kind;
    uint8_t device;
    uint8_t flags;
    uint32_t ctx;             /* that it ends with; 0: none */
    uint64_t bytes;           /* 0: not known yet */
    uint64_t requested_bytes; /* of a mapping: what no other mapping of its handle had before */
    uint64_t time_ns;
    uint32_t site;
    uint8_t owner;
    uint8_t segment; /* not 0: smaller blocks are cut out of it */
    uint8_t pair;    /* of the counters that its bytes move, + 1 (account/move.h); 0: none is known */
    uint8_t pad_;
    union {
        struct gp_record_memory { /* what the driver allocated at one address */
            union {
                uint64_t pool;   /* kind POOL: the created pool that it came from; 0: none */
                uint64_t raises; /* kind LINEAR: where the peaks were before it (gp_account_raises) */
            };
            uint32_t own_site; /* of a segment that may become an ordinary allocation */
        } memory;
        struct gp_record_block { /* of a framework or a heap, inside a segment */
            uint64_t lacks;      /* bytes that do not count as allocated (ground.c) */
            uint32_t request;    /* its number in the framework's history; 0: none */
        } block;
        struct gp_record_handle { /* physical memory */
            uint64_t mapped;      /* the sum of its mappings */
            uint32_t references;  /* create, retain, import */
            uint32_t uses;        /* mappings and bindings */
        } handle;
        struct gp_record_mapping {
            uint64_t handle;
            uint64_t raises; /* as of memory */
        } mapping;
        struct gp_record_binding { /* of a handle to a multicast object */
            uint64_t handle, object;
        } binding;
        struct gp_record_pending { /* a mapping while it is being unmapped; requested_bytes left the totals */
            uint64_t handle;
            uint64_t next : 56;    /* the next mapping of the unmap's range; 0: none */
            uint64_t was_last : 1; /* of its handle */
            uint64_t died : 1;     /* the handle did, and pends too */
            uint64_t large : 1;    /* the pool of the handle */
        } pending;
        struct gp_record_pool { /* bytes: reserved at the last poll */
            int64_t high;       /* the highest reserve that the driver reported */
            uint32_t blocks;    /* live ones */
            uint8_t state, flags;
        } pool;
        struct gp_record_import {
            uint32_t opens;
        } import;
        struct gp_record_stream {
            uint64_t graph;   /* that is captured, once an allocation has shown it */
            uint32_t capture; /* under way (enum gp_capture); 0: none */
            uint32_t asks;    /* of the poller before it began */
        } stream;
        struct gp_record_graph {
            union { /* in graph.c */
                struct gp_graph_node *node;
                uint64_t handle; /* the node's own, while the driver is destroying it */
            };
        } graph;
        struct gp_record_before { /* memory from before the attach */
            bool mapped;
        } before;
    };
};
_Static_assert(sizeof(struct gp_record) == 64, "one cache line");

/* limit: the most records in the map (memory is bounded by about 64 B x limit / 0.4). 0, -EINVAL,
 * -ENOMEM. */
int gp_map_new(struct gp_map **out, uint64_t limit);
void gp_map_free(struct gp_map *map);

/* Asks the processor for the cache lines that the next call for this key reads first. Takes no lock. Returns the key's
 * hash, for gp_map_insert_hold and gp_map_take_hashed. */
uint64_t gp_map_prefetch(struct gp_map *map, uint8_t space, uint64_t key);
/* 0: inserted. 1: replaced a live record of that key, copied to *old (may be NULL). -EINVAL: space
 * is 0. -ENOSPC: not inserted, because of the limit or for lack of memory. */
int gp_map_insert(struct gp_map *map, const struct gp_record *record, struct gp_record *old);
/* The same, but if it returns 0 or 1, the record's shard stays locked, and hold->record is the one in the map, which the
 * caller may change as in gp_map_update, until it calls gp_map_release. In between it must not call into the map, nor
 * wait for anything. hash: of the record's space and key. */
struct gp_map_hold {
    struct gp_record *record;
    uint32_t *lock; /* private */
};
int gp_map_insert_hold(struct gp_map *map, uint64_t hash, const struct gp_record *record, struct gp_record *old,
                       struct gp_map_hold *hold);
void gp_map_release(const struct gp_map_hold *hold);
/* Removes the record and copies it to *out. 0, -ENOENT. */
int gp_map_take_hashed(struct gp_map *map, uint64_t hash, uint8_t space, uint64_t key, struct gp_record *out);
int gp_map_take(struct gp_map *map, uint8_t space, uint64_t key, struct gp_record *out);
/* Copies the record to *out. 0, -ENOENT. */
int gp_map_find(struct gp_map *map, uint8_t space, uint64_t key, struct gp_record *out);

/* Runs fn on the record under its shard's lock. fn may change every field but space and key; it
 * must be short and must not call into the map. It returns true to remove the record. 0, -ENOENT
 * (fn not run). */
typedef bool (*gp_map_fn)(struct gp_record *record, void *arg);
int gp_map_update(struct gp_map *map, uint8_t space, uint64_t key, gp_map_fn fn, void *arg);

/* Runs fn (as above; true removes) on every record, one shard at a time, while other threads use
 * the map. A record that stays is visited exactly once; one that is inserted or removed during the
 * walk may be missed. Returns the number of removed records. */
uint64_t gp_map_each(struct gp_map *map, gp_map_fn fn, void *arg);
/* Does the same, and runs rest without a lock after at most GP_MAP_WALK records, which take some 5
 * us if they are not in the processor's cache. */
#define GP_MAP_WALK 64u
uint64_t gp_map_each_rest(struct gp_map *map, gp_map_fn fn, void (*rest)(void *arg), void *arg);

uint64_t gp_map_count(struct gp_map *map);
/* Records that walks have looked at since the map was made: tests bound the walks of an event with it. */
uint64_t gp_map_walked(struct gp_map *map);

#endif
