/* SPDX-License-Identifier: MIT
 *
 * before.c: the memory that the program had before gpuprof was attached to it. It is in none of the
 * totals, which count from the attach on, and is a number of its own. source/before.c asks the driver
 * for it once; frees make it smaller.
 *
 * The program goes on while the driver is asked. So an address may be freed before it is noted here,
 * or be new and not in the map of blocks yet. Each side first writes and then looks:
 *
 *      noting   read x_frees; ask the driver; note; look for a block; read x_frees again
 *      a free   the driver frees; add to x_frees; take what is noted
 *      alloc    the driver allocates; the block enters its map; take what is noted
 */
#include "account/account.h"
#include "account/tap.h"
#include <string.h>

/* As many as a program with a leak of small blocks has; the rest stays unknown. */
#define BEFORE_LIMIT (1u << 20)

static struct gp_map *x_before; /* NULL: not attached late, or no memory */
static uint64_t x_frees;        /* of addresses that no block had */
static int64_t x_unmapped;      /* mappings of cuMemMap that ended, and whose handles may still be released */
static uint32_t x_state;        /* enum gp_wire_before_source of what the driver said */

struct before_device {
    int64_t x_bytes, x_at_attach, x_count;
    uint64_t x_freed;
};
static struct before_device devices[GP_WIRE_GPUS];

void gp_feed_before_start(void)
{
    struct gp_map *map;
    if (gp_map_new(&map, BEFORE_LIMIT) != 0)
        return;
    __atomic_store_n(&x_before, map, __ATOMIC_RELEASE); /* [before.R] pairs with [before.A] */
}

void gp_feed_before_stop(void)
{
    if (x_before)
        gp_map_free(x_before);
    x_before = NULL;
}

struct gp_map *gp_before_map(void)
{
    return __atomic_load_n(&x_before, __ATOMIC_ACQUIRE); /* [before.A] */
}

static bool before_segment(struct gp_record *record, void *arg)
{
    struct gp_record *mark = arg;
    record->segment = GP_SEGMENT_FRAMEWORK;
    record->before = mark->before;
    mark->bytes = record->bytes;
    return false;
}

uint64_t gp_before_mark(uint64_t address, bool mapped)
{
    struct gp_record mark = {.before.mapped = mapped};
    struct gp_map *map = gp_before_map();
    return map && gp_map_update(map, GP_SPACE_DEVICE, address, before_segment, &mark) == 0 ? mark.bytes : 0;
}

static void before_move(const struct gp_record *record, int sign)
{
    struct before_device *device = &devices[record->device];
    __atomic_fetch_add(&device->x_bytes, sign * (int64_t)record->bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&device->x_count, sign, __ATOMIC_RELAXED);
}

/* Takes an entry that should not have been made. */
static void before_undo(uint64_t address)
{
    struct gp_record record;
    if (gp_map_take(x_before, GP_SPACE_DEVICE, address, &record) != 0)
        return;
    before_move(&record, -1);
    __atomic_fetch_sub(&devices[record.device].x_at_attach, (int64_t)record.bytes, __ATOMIC_RELAXED);
}

uint64_t gp_feed_before_begin(void)
{
    return __atomic_load_n(&x_frees, __ATOMIC_SEQ_CST);
}

bool gp_feed_before(uint64_t begun, uint64_t address, uint64_t bytes, int device, uint32_t ctx)
{
    struct gp_map *map = gp_before_map();
    struct gp_record old, record = {.key = address,
                                    .space = GP_SPACE_DEVICE,
                                    .device = (uint8_t)device,
                                    .ctx = ctx,
                                    .bytes = bytes,
                                    .time_ns = 1};
    if (!map || device < 0 || device >= (int)GP_WIRE_GPUS || !gp_account_of(device))
        return true;
    if (gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, address, &old) == 0 ||
        gp_map_find(map, GP_SPACE_DEVICE, address, &old) == 0)
        return true;
    int status = gp_map_insert(map, &record, &old);
    if (status != 0)
        return true;
    before_move(&record, 1);
    __atomic_fetch_add(&devices[device].x_at_attach, (int64_t)bytes, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, address, &old) == 0) {
        before_undo(address);
        return true;
    }
    if (__atomic_load_n(&x_frees, __ATOMIC_SEQ_CST) == begun)
        return true;
    before_undo(address); /* it may have been this one: the driver must be asked again */
    return false;
}

bool gp_feed_is_known(uint64_t address)
{
    struct gp_record found;
    return gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, address, &found) == 0 ||
           gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, address, &found) == 0 ||
           gp_map_find(gp_accounts.objects, GP_SPACE_IPC, address, &found) == 0 || gp_feed_graph_knows(address);
}

void gp_feed_before_end(bool complete)
{
    __atomic_store_n(&x_state, complete ? GP_BEFORE_DRIVER : GP_BEFORE_PART, __ATOMIC_RELEASE);
}

/* Returns the size, or 0. */
static uint64_t before_free(uint64_t address)
{
    struct gp_record record;
    struct gp_map *map = gp_before_map();
    if (!map)
        return 0;
    __atomic_fetch_add(&x_frees, 1, __ATOMIC_SEQ_CST);
    if (gp_map_take(map, GP_SPACE_DEVICE, address, &record) != 0)
        return 0;
    before_move(&record, -1);
    __atomic_fetch_add(&devices[record.device].x_freed, 1, __ATOMIC_RELAXED);
    return record.bytes;
}

bool gp_before_free(enum gp_space space, uint64_t address)
{
    if (space == GP_SPACE_DEVICE)
        return before_free(address) != 0;
    if (space != GP_SPACE_VMM)
        return false;
    /* A handle whose mapping ended before: the memory has left the number already. */
    int64_t unmapped = __atomic_load_n(&x_unmapped, __ATOMIC_RELAXED);
    while (unmapped > 0 && !__atomic_compare_exchange_n(&x_unmapped, &unmapped, unmapped - 1, false, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
    return unmapped > 0;
}

void gp_feed_before_unmapped(uint64_t address, uint64_t bytes)
{
    uint64_t at = address, size;
    for (; gp_before_map() && at - address < bytes && (size = before_free(at)); at += size)
        __atomic_fetch_add(&x_unmapped, 1, __ATOMIC_RELAXED);
}

static GP_COLD void before_replaced(uint64_t address)
{
    struct gp_record record;
    if (gp_map_take(x_before, GP_SPACE_DEVICE, address, &record) == 0)
        before_move(&record, -1);
}

void gp_before_alloc(uint64_t address)
{
    if (GP_UNLIKELY(gp_before_map() != NULL))
        before_replaced(address);
}

static bool before_owned(struct gp_record *record, void *arg)
{
    if (record->ctx != *(uint32_t *)arg)
        return false;
    before_move(record, -1);
    return true;
}

void gp_before_context(uint32_t ctx)
{
    struct gp_map *map = gp_before_map();
    if (map)
        gp_map_each(map, before_owned, &ctx);
}

static bool before_renumber(struct gp_record *record, void *arg)
{
    const uint32_t *numbers = arg;
    if (record->ctx == numbers[0])
        record->ctx = numbers[1];
    return false;
}

void gp_before_renumber(uint32_t from, uint32_t to)
{
    struct gp_map *map = gp_before_map();
    if (map)
        gp_map_each(map, before_renumber, (uint32_t[]){from, to});
}

void gp_tap_before(unsigned index, struct gp_wire_before_device *out)
{
    const struct before_device *device = &devices[index];
    struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[index], __ATOMIC_ACQUIRE);
    uint32_t state = __atomic_load_n(&x_state, __ATOMIC_ACQUIRE);
    *out = (struct gp_wire_before_device){
        .source = state,
        .bytes = state ? __atomic_load_n(&device->x_bytes, __ATOMIC_RELAXED) : -1,
        .at_attach_bytes = state ? __atomic_load_n(&device->x_at_attach, __ATOMIC_RELAXED) : -1,
        .count = state ? __atomic_load_n(&device->x_count, __ATOMIC_RELAXED) : -1,
        .freed = __atomic_load_n(&device->x_freed, __ATOMIC_RELAXED),
        .framework_allocated_bytes = -1,
        .framework_reserved_bytes = -1,
    };
    if (!gp_before_map() || !account)
        return;
    const struct gp_framework *framework = &account->framework;
    if (__atomic_load_n(&framework->x_events, __ATOMIC_RELAXED) &&
        __atomic_load_n(&framework->x_their_reserved_bytes, __ATOMIC_RELAXED) > 0) {
        out->framework_allocated_bytes = __atomic_load_n(&framework->x_before_allocated_bytes, __ATOMIC_RELAXED);
        out->framework_reserved_bytes = __atomic_load_n(&framework->x_before_reserved_bytes, __ATOMIC_RELAXED);
    }
    /* The framework reports a segment that it gave back only with its next block. */
    if (state == GP_BEFORE_DRIVER && out->framework_reserved_bytes > out->bytes)
        out->framework_reserved_bytes = out->bytes;
    /* The driver could not be asked, or not for all: what the framework says is a lower bound, too. */
    if (state != GP_BEFORE_DRIVER && out->framework_reserved_bytes > out->bytes) {
        out->source = GP_BEFORE_FRAMEWORK;
        out->bytes = out->framework_reserved_bytes;
        out->at_attach_bytes = out->count = -1;
    }
}
