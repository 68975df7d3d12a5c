/* SPDX-License-Identifier: MIT
 *
 * reported.c: libraries that report each piece which their pools hand out or take back to a
 * function of their own, also if no profiler is on: TensorFlow's "best fit with coalescing"
 * allocators to its profiler, with the pool's lock held; PaddlePaddle's allocators to its own,
 * after a piece is out and before it is back. The calls go through slots of the library, and are
 * led through functions here.
 *
 * The functions are private to these libraries, so each call is checked: the events, the sizes, and
 * pieces that fit to those before. A call that does not fit ends this for good.
 *
 * Their functions may throw; nothing is held here when they are called. JAX has TensorFlow's pools,
 * but its library exports no function of them.
 */
#include "account/feed/door.h"
#include "account/framework/internal.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/thread.h"
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
static struct gp_door_library libraries[REPORTED] = {
    [TENSORFLOW] = {.door = GP_DOOR_TENSORFLOW,
                    .name = "TensorFlow",
                    .owner = "tensorflow",
                    .file = "libtensorflow_framework.so"},
    [PADDLE] = {.door = GP_DOOR_PADDLE, .name = "PaddlePaddle", .owner = "paddle", .file = "libpaddle.so"},
};
static const struct {
    const char *unknown;
    uint32_t unit; /* of the sizes of its pieces */
} forms[REPORTED] = {
    [TENSORFLOW] = {"this version of TensorFlow is not known", 256},
    [PADDLE] = {"this version of PaddlePaddle is not known", 1},
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

static void reported_piece(unsigned i, uint64_t pool, bool out, uint64_t address, uint64_t bytes)
{
    if (!bytes || bytes % forms[i].unit)
        gp_door_shut(&libraries[i], forms[i].unknown);
    else if (out)
        gp_door_piece(&libraries[i], pool, address, bytes);
    else
        gp_door_piece_back(&libraries[i], pool, address);
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
    if (gp_door_enter(&libraries[TENSORFLOW])) {
        bool out = tensorflow_is("MemoryAllocation", length, text);
        if (asked <= bytes && (out || tensorflow_is("MemoryDeallocation", length, text)))
            reported_piece(TENSORFLOW, pool, out, address, bytes);
        else
            gp_door_shut(&libraries[TENSORFLOW], forms[TENSORFLOW].unknown);
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
    if (event != PADDLE_RESERVED && event != PADDLE_UNRESERVED && address && bytes &&
        gp_door_enter(&libraries[PADDLE])) {
        if (event != PADDLE_OUT && event != PADDLE_BACK)
            gp_door_shut(&libraries[PADDLE], forms[PADDLE].unknown);
        else
            reported_piece(PADDLE, 1, event == PADDLE_OUT, address, bytes);
        gp_thread_leave();
    }
    errno = saved_errno;
    ((record_fn *)original(PADDLE))(made, address, place, bytes, event);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

bool gp_reported_find(const struct gp_slot_caller *caller)
{
    uint32_t early = 0;
    for (unsigned i = 0; i < REPORTED; i++) {
        if (libraries[i].told && !gp_door_is_open(&libraries[i]))
            continue;
        gp_slots_replace(&imports[i], 1, caller);
        const char *why = imports[i].refused ? "its calls cannot be changed" : NULL;
        if (imports[i].slots && !libraries[i].told && !gp_door_open(&libraries[i], why))
            gp_slots_restore(&imports[i], 1);
        early += imports[i].early;
    }
    return !early;
}

void gp_reported_restore(void)
{
    for (unsigned i = 0; i < REPORTED; i++)
        __atomic_store_n(&libraries[i].x_open, 0, __ATOMIC_RELAXED);
    gp_slots_restore(imports, REPORTED);
}
