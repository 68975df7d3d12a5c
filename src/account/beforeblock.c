/* SPDX-License-Identifier: MIT
 *
 * beforeblock.c: the blocks that a framework had handed out before gpuprof was attached. The framework
 * is asked for a snapshot of all its blocks (account/framework/survey.c), and those that are not known from its
 * reports are from before. Called by framework.c too, with every block that is handed out or taken back.
 *
 * The snapshot is taken while other threads allocate and free, and it is read later. The framework
 * takes its lock of a device for the snapshot of that device, and for each block with its report. So of
 * two reports one was complete before the snapshot, or the other one sees what was written before it:
 *
 *      survey    watch; the snapshot; for each block of it: note it, then look whether it is known,
 *                or was freed since the watch began; if so, forget it
 *      a free    if watched: write down the address; take the block, or what is noted at its address
 *
 * A block of the snapshot that was not freed since the watch began is still there. If it was handed
 * out after the attach, its report is in the map of blocks; else it is from before. If its address was
 * freed since then, a block there now has been reported. So no block is listed twice, none that was
 * freed is listed, and none is left out. Reports from between the attach and the watch need no record.
 */
#include "account/account.h"
#include "account/tap.h"
#include <string.h>

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
static uint32_t x_state;  /* enum gp_wire_blocks_state */
static const char *x_text;
static uint64_t x_took_ns;
static struct survey_device devices[GP_WIRE_GPUS];

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
    __atomic_fetch_sub(&devices[record.device].x_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&devices[record.device].x_bytes, (int64_t)record.bytes, __ATOMIC_RELAXED);
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
        devices[i].x_count = devices[i].x_bytes = 0;
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
    struct survey_device *to = &devices[device < (int)GP_WIRE_GPUS ? device : 0];
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
    return __atomic_load_n(&x_state, __ATOMIC_ACQUIRE);
}

bool gp_feed_survey_say(uint32_t from, uint32_t state, const char *text)
{
    if (gp_feed_survey_state() != from)
        return false;
    __atomic_store_n(&x_text, text, __ATOMIC_RELAXED); /* one thread at a time moves on from a state */
    return __atomic_compare_exchange_n(&x_state, &from, state, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
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
    __atomic_fetch_add(&devices[block->device].x_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&devices[block->device].x_bytes, (int64_t)block->bytes, __ATOMIC_RELAXED);
    if (gp_map_insert(x_noted, &record, NULL) != 0) {
        __atomic_store_n(&x_broken, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (survey_has(x_freed, record.key) || survey_has(gp_accounts.blocks, record.key))
        survey_take(x_noted, record.key);
}

/* The driver's memory below it, which before.c knows: it shows with its blocks. */
void gp_feed_survey_segment(const struct gp_survey_piece *segment)
{
    uint64_t at = segment->address, end = at + segment->bytes, size;
    for (; at < end; at += size) {
        size = gp_before_mark(at, segment->growable);
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
        const struct survey_device *device = &devices[i];
        bool known = state == GP_BLOCKS_DONE;
        out->devices[i] =
            (struct gp_wire_blocks_device){known ? __atomic_load_n(&device->x_count, __ATOMIC_RELAXED) : -1,
                                           known ? __atomic_load_n(&device->x_bytes, __ATOMIC_RELAXED) : -1,
                                           __atomic_load_n(&device->x_differs, __ATOMIC_RELAXED)};
    }
}
