/* SPDX-License-Identifier: MIT
 *
 * reader_oracle.h: a reader of events comes while frameworks allocate and free blocks, walks over the live blocks, and
 * goes again.
 *
 * framework.c and event.c are the product's, over the real map, ring and counters (reader_base.h). The walk with the
 * events after it must give exactly the blocks that live. A writer owns a device, as under PyTorch's lock.
 */
#ifndef GP_TEST_TORTURE_READER_ORACLE_H
#define GP_TEST_TORTURE_READER_ORACLE_H

#include "account/before.h"
#include "account/feed/framework.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/move.h"
#include "torture/reader_base.h"

#include "../../src/account/framework.c"

enum { BLOCKS = 48 };

static struct gp_account reader_accounts[WRITERS];
static uint8_t x_live[WRITERS][BLOCKS], known[WRITERS][BLOCKS];

struct gp_account *gp_account_of(int device)
{
    return &reader_accounts[device];
}

struct gp_move gp_account_block_move(const struct gp_record *record)
{
    return (struct gp_move){.bytes = (int64_t)record->bytes};
}

uint64_t gp_account_move(int device, enum gp_counter_op op, const struct gp_move *move)
{
    (void)device;
    (void)op;
    (void)move;
    return 0;
}

/* Nothing is from before an attach. */
uint32_t gp_ground_x_odd;

bool gp_ground_block(struct gp_record *block, int64_t reserved_bytes, int *status)
{
    (void)block, (void)reserved_bytes, (void)status;
    return false; /* all of them lie in segments */
}

bool gp_ground_unblock(const struct gp_record *block)
{
    (void)block;
    return false;
}

void gp_before_block_freed(uint64_t address)
{
    (void)address;
}

void gp_before_block_made(uint64_t address)
{
    (void)address;
}

void gp_before_block_compare(int device, int64_t before_bytes)
{
    (void)device;
    (void)before_bytes;
}

/* ---- writers ------------------------------------------------------------------------------------------------------- */

static unsigned reader_most(void)
{
    return 8000;
}

static void reader_begin(void)
{
    if (gp_map_new(&gp_accounts.blocks, 1u << 20) != 0)
        exit(1);
    for (unsigned i = 0; i < WRITERS; i++)
        if (gp_counter_new(&reader_accounts[i].counter, GP_GAUGES, GP_SHARDS) != 0)
            exit(1);
}

static uint64_t reader_address(unsigned writer, unsigned block)
{
    return ((uint64_t)writer + 1) << 40 | (uint64_t)block << 9;
}

static void reader_step(unsigned writer)
{
    unsigned block = (unsigned)(reader_random() % BLOCKS);
    uint8_t *live = &x_live[writer][block];
    gp_feed_framework_block(&(struct gp_framework_event){.device = (int)writer,
                                                         .address = reader_address(writer, block),
                                                         .bytes = *live ? -512 : 512,
                                                         .allocated_bytes = -1},
                            0);
    *live = !*live;
}

/* ---- the reader ------------------------------------------------------------------------------------------------------ */

static void reader_know(uint64_t address, bool is_live)
{
    known[(address >> 40) - 1][address >> 9 & 0xff] = is_live;
}

static void reader_forget(void)
{
    memset(known, 0, sizeof(known));
}

static bool reader_visit(struct gp_record *record, void *arg)
{
    if (record->time_ns < *(uint64_t *)arg)
        reader_know(record->key, true);
    reader_walked++;
    return false;
}

static void reader_walk(uint64_t begin)
{
    gp_map_each(gp_accounts.blocks, reader_visit, &begin);
}

static void reader_take(const struct gp_wire_event *event, uint64_t begin)
{
    (void)begin;
    reader_know(event->address, event->type == GP_EVENT_ALLOC);
}

static bool reader_is_right(void)
{
    return memcmp(known, x_live, sizeof(known)) == 0;
}

#endif
