/* SPDX-License-Identifier: MIT
 *
 * reported.c: libraries that report each piece which their pools hand out or take back to a
 * function of their own, whether or not anybody listens: TensorFlow's "best fit with coalescing"
 * allocators to its profiler, with the pool's lock held; PaddlePaddle's allocators to its own,
 * after a piece is out and before it is back. The calls go through slots of the library, and are
 * led through functions here.
 *
 * The functions are private to these libraries, so each call is checked: the events, the sizes, and
 * pieces that fit to those before. What does not fit ends this for good.
 *
 * Their functions may throw; nothing is held here when they are called. JAX has TensorFlow's pools,
 * but its library exports no function of them.
 */
#include "account/feed.h"
#include "account/framework/internal.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/log.h"
#include "base/thread.h"
#include "stack/stack.h"
#include <errno.h>
#include <string.h>

/* TensorFlow: (pool, length and text of a std::string_view, address, bytes asked for, bytes of the piece) */
typedef void trace_fn(uint64_t pool, uint64_t length, const char *text, uint64_t address, uint64_t asked,
                      uint64_t bytes);
/* PaddlePaddle: (an object that is made, address, where it is, bytes, the event) */
typedef void record_fn(void *made, uint64_t address, const void *place, uint64_t bytes, int event);
static trace_fn tensorflow_trace;
static record_fn paddle_record;

enum { TENSORFLOW, PADDLE, REPORTED };
static const struct {
    const char *name, *owner, *library, *unknown;
    enum gp_door door;
    uint32_t unit; /* of the sizes of its pieces */
} libraries[REPORTED] = {
    [TENSORFLOW] = {"TensorFlow", "tensorflow", "libtensorflow_framework.so", "this version of TensorFlow is not known",
                    GP_DOOR_TENSORFLOW, 256},
    [PADDLE] = {"PaddlePaddle", "paddle", "libpaddle.so", "this version of PaddlePaddle is not known", GP_DOOR_PADDLE,
                1},
};
static struct gp_slot_import imports[REPORTED] = {
    [TENSORFLOW] = {.name = "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
                    .replacement = (void *)tensorflow_trace,
                    .definer = "libtensorflow_framework",
                    .importer = "libtensorflow_framework"},
    [PADDLE] = {.name = "_ZN6paddle8platform14RecordMemEventC1EPKvRKN3phi5PlaceEmNS4_18TracerMemEventTypeE",
                .replacement = (void *)paddle_record,
                .definer = "libpaddle.so",
                .importer = "libpaddle.so"},
};
/* A thread that has just left our code goes on to the original. */
GP_KEEP(imports);

static uint32_t x_open[REPORTED]; /* pieces are counted */
static bool told[REPORTED];       /* under the doors' lock */

static GP_COLD void reported_say_off(unsigned i, const char *why)
{
    gp_feed_door_say(libraries[i].door, GP_WIRE_DOOR_OFF, why);
    gp_log(GP_LOG_WARN, "%s's pools: %s: each counts as a whole", libraries[i].name, why);
}

/* Ends it for good. */
static GP_COLD void reported_shut(unsigned i, const char *why)
{
    if (!__atomic_exchange_n(&x_open[i], 0, __ATOMIC_RELAXED))
        return;
    gp_feed_door_end(libraries[i].door);
    reported_say_off(i, why);
}

static void reported_piece(unsigned i, uint64_t pool, bool out, uint64_t address, uint64_t bytes)
{
    if (!bytes || bytes % libraries[i].unit)
        reported_shut(i, libraries[i].unknown);
    else if (out && !gp_feed_piece(libraries[i].door, pool, address, bytes))
        reported_shut(i, "a piece lies where another one is");
    else if (!out && !gp_feed_piece_back(libraries[i].door, pool, address))
        reported_shut(i, "a piece came back that was not handed out");
}

static bool reported_enter(unsigned i)
{
    return __atomic_load_n(&x_open[i], __ATOMIC_RELAXED) && gp_thread_enter();
}

static void *original(unsigned i)
{
    return __atomic_load_n(&imports[i].x_original, __ATOMIC_RELAXED);
}

/* ---- what the libraries call --------------------------------------------------------------------------------------- */

static bool tensorflow_is(const char *event, uint64_t length, const char *text)
{
    return length == strlen(event) && memcmp(text, event, length) == 0;
}

static void tensorflow_trace(uint64_t pool, uint64_t length, const char *text, uint64_t address, uint64_t asked,
                             uint64_t bytes)
{
    int saved_errno = errno;
    if (reported_enter(TENSORFLOW)) {
        bool out = tensorflow_is("MemoryAllocation", length, text);
        if (asked <= bytes && (out || tensorflow_is("MemoryDeallocation", length, text)))
            reported_piece(TENSORFLOW, pool, out, address, bytes);
        else
            reported_shut(TENSORFLOW, libraries[TENSORFLOW].unknown);
        gp_thread_leave();
    }
    errno = saved_errno;
    ((trace_fn *)original(TENSORFLOW))(pool, length, text, address, asked, bytes);
}

enum { PADDLE_OUT, PADDLE_BACK, PADDLE_RESERVED, PADDLE_UNRESERVED };

/* One pool for all: it does not say which. Memory of the host is reported too, and is none of the driver's. */
static void paddle_record(void *made, uint64_t address, const void *place, uint64_t bytes, int event)
{
    int saved_errno = errno;
    if (event != PADDLE_RESERVED && event != PADDLE_UNRESERVED && address && bytes && reported_enter(PADDLE)) {
        if (event != PADDLE_OUT && event != PADDLE_BACK)
            reported_shut(PADDLE, libraries[PADDLE].unknown);
        else
            reported_piece(PADDLE, 1, event == PADDLE_OUT, address, bytes);
        gp_thread_leave();
    }
    errno = saved_errno;
    ((record_fn *)original(PADDLE))(made, address, place, bytes, event);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

static bool reported_open(unsigned i)
{
    const char *why = imports[i].refused ? "its calls cannot be changed" : NULL;
    uint8_t owner = why ? 0 : gp_owner_named(libraries[i].owner, libraries[i].library);
    if (!why && owner == GP_OWNER_OTHER)
        why = "there are too many owners of memory";
    told[i] = true;
    if (why) {
        reported_say_off(i, why);
        return false;
    }
    gp_feed_door_open(libraries[i].door, owner);
    gp_feed_door_say(libraries[i].door, GP_WIRE_DOOR_EXACT, "");
    __atomic_store_n(&x_open[i], 1, __ATOMIC_RELAXED);
    gp_log(GP_LOG_INFO, "%s's pools: their pieces are counted", libraries[i].name);
    return true;
}

bool gp_reported_find(const struct gp_slot_caller *caller)
{
    uint32_t early = 0;
    for (unsigned i = 0; i < REPORTED; i++) {
        if (told[i] && !__atomic_load_n(&x_open[i], __ATOMIC_RELAXED))
            continue;
        gp_slots_replace(&imports[i], 1, caller);
        if (imports[i].slots && !told[i] && !reported_open(i))
            gp_slots_restore(&imports[i], 1);
        early += imports[i].early;
    }
    return !early;
}

void gp_reported_restore(void)
{
    for (unsigned i = 0; i < REPORTED; i++)
        __atomic_store_n(&x_open[i], 0, __ATOMIC_RELAXED);
    gp_slots_restore(imports, REPORTED);
}
