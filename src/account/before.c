/* SPDX-License-Identifier: MIT
 *
 * before.c: what the program had before gpuprof was attached to it.
 */
#include "account/before.h"
#include "account/feed/before.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/survey.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/segment.h"
#include "account/tap.h"
#include "base/compiler.h"
#include "base/map.h"
#include <gpuprof/wire.h>
#include <string.h>

/* ==== a framework's blocks ======================================================================================== */
/* The blocks that a framework had handed out before gpuprof was attached. The framework is asked for
 * a snapshot of all its blocks (account/framework/survey.c), and those that are not known from its
 * reports are from before. Called by framework.c too, with every block that is handed out or taken
 * back.
 *
 * The snapshot is taken while other threads allocate and free, and it is read later. The framework
 * takes its lock of a device for the snapshot of that device, and for each block with its report. So
 * of two reports one was complete before the snapshot, or the other one sees what was written before
 * it:
 *
 *      survey    watch; the snapshot; for each block of it: note it, then look whether it is known,
 *                or was freed since the watch began; if so, forget it
 *      a free    if watched: write down the address; take the block, or what is noted at its address
 *
 * A block of the snapshot that was not freed since the watch began is still there. If it was handed
 * out after the attach, its report is in the map of blocks; else it is from before. If its address
 * was freed since then, a block there now has been reported. So no block is listed twice, none that
 * was freed is listed, and none is left out. Reports from between the attach and the watch need no
 * record. */

#define SURVEY_LIMIT (1u << 23) /* blocks, and frees while the snapshot is taken: half a GiB of memory each */
#define SURVEY_STEP  (2ull << 20)

struct survey_device {
    int64_t x_count, x_bytes;
    uint64_t x_differs;
};

static struct gp_map *x_noted; /* NULL: no survey yet */
static struct gp_map *x_freed; /* addresses that were freed while one was under way */
static uint32_t x_watched;
static uint32_t x_broken; /* an address could not be written down */
static uint32_t x_survey; /* enum gp_wire_blocks_state */
static const char *x_text;
static uint64_t x_took_ns;
static struct survey_device survey_devices[GP_WIRE_GPUS];

static bool survey_has(struct gp_map *map, uint64_t address)
{
    struct gp_record record;
    return gp_map_find(map, GP_SPACE_BLOCK, address, &record) == 0;
}

/* Takes what is noted at an address. */
static bool survey_take(struct gp_map *noted, uint64_t address)
{
    struct gp_record record;
    if (gp_map_take(noted, GP_SPACE_BLOCK, address, &record) != 0)
        return false;
    __atomic_fetch_sub(&survey_devices[record.device].x_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&survey_devices[record.device].x_bytes, (int64_t)record.bytes, __ATOMIC_RELAXED);
    return true;
}

static bool survey_all(struct gp_record *record, void *arg)
{
    (void)record;
    (void)arg;
    return true;
}

static void survey_forget(void)
{
    gp_map_each(x_noted, survey_all, NULL);
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
        survey_devices[i].x_count = survey_devices[i].x_bytes = 0;
}

/* ---- reports of the framework ------------------------------------------------------------------------------------ */

void gp_before_block_freed(uint64_t address)
{
    struct gp_map *noted = __atomic_load_n(&x_noted, __ATOMIC_ACQUIRE); /* [survey.A] pairs with [survey.R] */
    struct gp_record record = {.key = address, .space = GP_SPACE_BLOCK};
    if (!noted)
        return;
    if (__atomic_load_n(&x_watched, __ATOMIC_RELAXED) && gp_map_insert(x_freed, &record, NULL) < 0)
        __atomic_store_n(&x_broken, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* between writing and looking; the other is in gp_feed_survey_block */
    survey_take(noted, address);
}

void gp_before_block_made(uint64_t address)
{
    struct gp_map *noted = __atomic_load_n(&x_noted, __ATOMIC_ACQUIRE);
    if (noted) /* its free was not reported */
        survey_take(noted, address);
}

void gp_before_block_compare(int device, int64_t before_bytes)
{
    struct survey_device *to = &survey_devices[device < (int)GP_WIRE_GPUS ? device : 0];
    if (device < (int)GP_WIRE_GPUS && gp_feed_survey_state() == GP_BLOCKS_DONE &&
        __atomic_load_n(&to->x_bytes, __ATOMIC_RELAXED) != before_bytes)
        __atomic_fetch_add(&to->x_differs, 1, __ATOMIC_RELAXED);
}

void gp_feed_survey_stop(void)
{
    if (x_noted)
        gp_map_free(x_noted);
    if (x_freed)
        gp_map_free(x_freed);
    x_noted = x_freed = NULL;
}

/* ---- the survey -------------------------------------------------------------------------------------------------- */

bool gp_feed_survey_late(void)
{
    return gp_accounts.setup.late;
}

bool gp_feed_survey_reported(void)
{
    return gp_framework_name() != NULL;
}

uint32_t gp_feed_survey_state(void)
{
    return __atomic_load_n(&x_survey, __ATOMIC_ACQUIRE);
}

bool gp_feed_survey_say(uint32_t from, uint32_t state, const char *text)
{
    if (gp_feed_survey_state() != from)
        return false;
    __atomic_store_n(&x_text, text, __ATOMIC_RELAXED); /* one thread at a time moves on from a state */
    return __atomic_compare_exchange_n(&x_survey, &from, state, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

bool gp_feed_survey_begin(void)
{
    struct gp_map *noted = x_noted;
    if (!x_freed && gp_map_new(&x_freed, SURVEY_LIMIT) != 0)
        return false;
    if (!noted && gp_map_new(&noted, SURVEY_LIMIT) != 0)
        return false;
    gp_map_each(x_freed, survey_all, NULL);
    __atomic_store_n(&x_broken, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&x_noted, noted, __ATOMIC_RELEASE); /* [survey.R] both maps; pairs with [survey.A] */
    __atomic_store_n(&x_watched, 1, __ATOMIC_SEQ_CST);
    return true;
}

void gp_feed_survey_block(const struct gp_survey_piece *block)
{
    const struct gp_record record = {.key = block->address,
                                     .space = GP_SPACE_BLOCK,
                                     .kind = GP_KIND_LINEAR,
                                     .device = (uint8_t)block->device,
                                     .bytes = block->bytes,
                                     .requested_bytes = block->requested_bytes,
                                     .time_ns = 1};
    if (block->device < 0 || block->device >= (int)GP_WIRE_GPUS || !block->bytes || survey_has(x_noted, record.key))
        return;
    __atomic_fetch_add(&survey_devices[block->device].x_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&survey_devices[block->device].x_bytes, (int64_t)block->bytes, __ATOMIC_RELAXED);
    if (gp_map_insert(x_noted, &record, NULL) != 0) {
        __atomic_store_n(&x_broken, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (survey_has(x_freed, record.key) || survey_has(gp_accounts.blocks, record.key))
        survey_take(x_noted, record.key);
}

static bool before_segment(struct gp_record *record, void *arg)
{
    struct gp_record *mark = arg;
    record->segment = GP_SEGMENT_FRAMEWORK;
    record->before = mark->before;
    mark->bytes = record->bytes;
    return false;
}

/* A framework has such memory as a segment. Returns the size of what is at the address; 0: nothing. */
static uint64_t before_mark(uint64_t address, bool mapped)
{
    struct gp_record mark = {.before.mapped = mapped};
    struct gp_map *map = gp_before_map();
    return map && gp_map_update(map, GP_SPACE_DEVICE, address, before_segment, &mark) == 0 ? mark.bytes : 0;
}

/* The driver's memory below it, which before.c knows: it shows with its blocks. */
void gp_feed_survey_segment(const struct gp_survey_piece *segment)
{
    uint64_t at = segment->address, end = at + segment->bytes, size;
    for (; at < end; at += size) {
        size = before_mark(at, segment->growable);
        size = size ? size : SURVEY_STEP;
    }
}

bool gp_feed_survey_end(bool complete, uint64_t took_ns)
{
    __atomic_store_n(&x_watched, 0, __ATOMIC_SEQ_CST);
    complete = complete && !__atomic_load_n(&x_broken, __ATOMIC_RELAXED);
    if (!complete)
        survey_forget();
    __atomic_store_n(&x_took_ns, took_ns, __ATOMIC_RELAXED);
    return complete;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

struct gp_map *gp_before_blocks(void)
{
    return gp_feed_survey_state() == GP_BLOCKS_DONE ? __atomic_load_n(&x_noted, __ATOMIC_ACQUIRE) : NULL;
}

void gp_tap_before_blocks(struct gp_wire_blocks *out)
{
    uint32_t state = gp_feed_survey_state();
    const char *text = __atomic_load_n(&x_text, __ATOMIC_RELAXED);
    memset(out, 0, sizeof(*out));
    out->state = state;
    out->took_ns = __atomic_load_n(&x_took_ns, __ATOMIC_RELAXED);
    strncpy(out->text, text ? text : "", sizeof(out->text) - 1);
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        const struct survey_device *device = &survey_devices[i];
        bool known = state == GP_BLOCKS_DONE;
        out->devices[i] =
            (struct gp_wire_blocks_device){known ? __atomic_load_n(&device->x_count, __ATOMIC_RELAXED) : -1,
                                           known ? __atomic_load_n(&device->x_bytes, __ATOMIC_RELAXED) : -1,
                                           __atomic_load_n(&device->x_differs, __ATOMIC_RELAXED)};
    }
}

/* ==== the driver's memory ========================================================================================= */
/* The memory that the program had before gpuprof was attached to it. It is in none of the totals,
 * which count from the attach on, and is a number of its own. source/before.c asks the driver for it
 * once; frees make it smaller.
 *
 * The program goes on while the driver is asked. So an address may be freed before it is noted here,
 * or be new and not in the map of blocks yet. Each side first writes and then looks:
 *
 *      noting   read x_frees; ask the driver; note; look for a block; read x_frees again
 *      a free   the driver frees; add to x_frees; take what is noted
 *      alloc    the driver allocates; the block enters its map; take what is noted */

/* As many as a program with a leak of small blocks has; the rest stays unknown. */
#define BEFORE_LIMIT (1u << 20)

static uint64_t x_frees;   /* of addresses that no block had */
static int64_t x_unmapped; /* mappings of cuMemMap that ended, and whose handles may still be released */
static uint32_t x_source;  /* enum gp_wire_before_source of what the driver said */

struct before_device {
    int64_t x_bytes, x_at_attach, x_count;
    uint64_t x_freed;
};
static struct before_device before_devices[GP_WIRE_GPUS];

void gp_feed_before_start(void)
{
    struct gp_map *map;
    if (gp_map_new(&map, BEFORE_LIMIT) != 0)
        return;
    __atomic_store_n(&gp_accounts.x_before, map, __ATOMIC_RELEASE); /* [before.R] pairs with [before.A] */
}

void gp_feed_before_stop(void)
{
    if (gp_accounts.x_before)
        gp_map_free(gp_accounts.x_before);
    gp_accounts.x_before = NULL;
}

static void before_move(const struct gp_record *record, int sign)
{
    struct before_device *device = &before_devices[record->device];
    __atomic_fetch_add(&device->x_bytes, sign * (int64_t)record->bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&device->x_count, sign, __ATOMIC_RELAXED);
}

/* Takes an entry that should not have been made. */
static void before_undo(uint64_t address)
{
    struct gp_record record;
    if (gp_map_take(gp_accounts.x_before, GP_SPACE_DEVICE, address, &record) != 0)
        return;
    before_move(&record, -1);
    __atomic_fetch_sub(&before_devices[record.device].x_at_attach, (int64_t)record.bytes, __ATOMIC_RELAXED);
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
    __atomic_fetch_add(&before_devices[device].x_at_attach, (int64_t)bytes, __ATOMIC_RELAXED);
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
    __atomic_store_n(&x_source, complete ? GP_BEFORE_DRIVER : GP_BEFORE_PART, __ATOMIC_RELEASE);
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
    __atomic_fetch_add(&before_devices[record.device].x_freed, 1, __ATOMIC_RELAXED);
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
    unsigned holes = 0;
    for (; gp_before_map() && at - address < bytes && holes < 32768; at += size) {
        size = before_free(at);
        if (size) {
            __atomic_fetch_add(&x_unmapped, 1, __ATOMIC_RELAXED);
            continue;
        }
        holes++; /* the driver passes over them: the next mapping begins on a step */
        size = SURVEY_STEP - at % SURVEY_STEP;
    }
}

void gp_before_replaced(uint64_t address)
{
    struct gp_record record;
    if (gp_map_take(gp_accounts.x_before, GP_SPACE_DEVICE, address, &record) == 0)
        before_move(&record, -1);
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
    const struct before_device *device = &before_devices[index];
    struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[index], __ATOMIC_ACQUIRE);
    uint32_t state = __atomic_load_n(&x_source, __ATOMIC_ACQUIRE);
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
