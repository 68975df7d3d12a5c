/* SPDX-License-Identifier: MIT
 *
 * map.h: the pointer map: live objects by (space, key). It is sharded by hash. Every shard has its
 * own lock and its own index, which grows a few entries at a time while other threads work, so no
 * operation ever waits for a whole rehash. Records never move. Memory comes from mmap, never from
 * malloc. The map does not know CUDA: the caller defines what a space or a kind means.
 */
#ifndef GP_DS_MAP_H
#define GP_DS_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct gp_map;

struct gp_record { /* one cache line */
    uint64_t key;
    uint8_t space; /* what kind of key; 0 is reserved for "empty" */
    uint8_t kind;
    uint8_t device;
    uint8_t flags;
    uint32_t ctx;
    uint64_t bytes;
    uint64_t requested_bytes;
    uint64_t time_ns;
    uint64_t link; /* another key: handle, pool, graph, stream */
    uint32_t site;
    uint32_t refs;
    uint32_t uses;
    uint8_t owner;
    uint8_t segment; /* the caller's; not 0: smaller blocks are cut out of it */
    uint8_t pad_[2];
};
_Static_assert(sizeof(struct gp_record) == 64, "one cache line");

/* limit: the most records in the map (memory is bounded by about 64 B x limit / 0.4). 0, -EINVAL,
 * -ENOMEM. */
int gp_map_new(struct gp_map **out, uint64_t limit);
void gp_map_free(struct gp_map *map);

/* Asks the processor for the cache lines that the next call for this key reads first. Takes no lock. */
void gp_map_prefetch(struct gp_map *map, uint8_t space, uint64_t key);
/* 0: inserted. 1: replaced a live record of that key, copied to *old (may be NULL). -EINVAL: space
 * is 0. -ENOSPC: not inserted, because of the limit or for lack of memory. */
int gp_map_insert(struct gp_map *map, const struct gp_record *record, struct gp_record *old);
/* Removes the record and copies it to *out. 0, -ENOENT. */
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
