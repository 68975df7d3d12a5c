/* SPDX-License-Identifier: MIT
 *
 * bfc.c: the pools of TensorFlow, its "best fit with coalescing" allocators. Each tells TensorFlow's profiler of every
 * piece that it hands out or takes back, whether or not one is active, by a call to a function that its own library
 * exports, with the pool's lock held. The calls are led through the function here.
 *
 * The function is private to TensorFlow, so each call is checked: the names of both events, sizes in units of 256 bytes,
 * and pieces that fit to those before. What does not fit ends this for good.
 *
 * TensorFlow's function may throw; nothing is held here when it is called. JAX has the same pools, but its library exports
 * no function of them.
 */
#include "account/feed.h"
#include "account/framework/doors.h"
#include "base/compiler.h"
#include "base/kept.h"
#include "base/log.h"
#include "base/thread.h"
#include "stack/owner.h"
#include <errno.h>
#include <string.h>

#define BFC_UNIT 256u /* of all pieces */

/* (pool, length and text of a std::string_view, address, bytes asked for, bytes of the piece) */
typedef void trace_fn(uint64_t pool, uint64_t length, const char *text, uint64_t address, uint64_t asked,
                      uint64_t bytes);
static trace_fn bfc_trace;

static struct gp_slot_import import = {
    .name = "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
    .replacement = (void *)bfc_trace,
    .definer = "libtensorflow_framework",
    .importer = "libtensorflow_framework",
};
/* A thread that has just left our code goes on to the original. */
GP_KEEP(import);

static uint32_t x_open; /* pieces are counted */
static bool told;       /* under the doors' lock */

static GP_COLD void bfc_say_off(const char *why)
{
    gp_feed_door_say(GP_DOOR_TENSORFLOW, GP_WIRE_DOOR_OFF, why);
    gp_log(GP_LOG_WARN, "TensorFlow's pools: %s: each counts as a whole", why);
}

/* Ends it for good. */
static GP_COLD void bfc_shut(const char *why)
{
    if (!__atomic_exchange_n(&x_open, 0, __ATOMIC_RELAXED))
        return;
    gp_feed_door_end(GP_DOOR_TENSORFLOW);
    bfc_say_off(why);
}

static bool bfc_is(const char *event, uint64_t length, const char *text)
{
    return length == strlen(event) && memcmp(text, event, length) == 0;
}

static void bfc_piece(uint64_t pool, bool out, uint64_t address, uint64_t asked, uint64_t bytes)
{
    if (!bytes || bytes % BFC_UNIT || asked > bytes)
        bfc_shut("this version of TensorFlow is not known");
    else if (out && !gp_feed_piece(GP_DOOR_TENSORFLOW, pool, address, bytes))
        bfc_shut("a piece lies where another one is");
    else if (!out && !gp_feed_piece_back(GP_DOOR_TENSORFLOW, pool, address))
        bfc_shut("a piece came back that was not handed out");
}

static void bfc_trace(uint64_t pool, uint64_t length, const char *text, uint64_t address, uint64_t asked,
                      uint64_t bytes)
{
    int saved_errno = errno;
    if (__atomic_load_n(&x_open, __ATOMIC_RELAXED) && gp_thread_enter()) {
        bool out = bfc_is("MemoryAllocation", length, text);
        if (out || bfc_is("MemoryDeallocation", length, text))
            bfc_piece(pool, out, address, asked, bytes);
        else
            bfc_shut("this version of TensorFlow is not known");
        gp_thread_leave();
    }
    errno = saved_errno;
    ((trace_fn *)__atomic_load_n(&import.x_original, __ATOMIC_RELAXED))(pool, length, text, address, asked, bytes);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

static bool bfc_open(void)
{
    const char *why = import.refused ? "its calls cannot be changed" : NULL;
    uint8_t owner = why ? 0 : gp_owner_named("tensorflow", "libtensorflow_framework.so");
    if (!why && owner == GP_OWNER_OTHER)
        why = "there are too many owners of memory";
    told = true;
    if (why) {
        bfc_say_off(why);
        return false;
    }
    gp_feed_door_open(GP_DOOR_TENSORFLOW, owner);
    gp_feed_door_say(GP_DOOR_TENSORFLOW, GP_WIRE_DOOR_EXACT, "");
    __atomic_store_n(&x_open, 1, __ATOMIC_RELAXED);
    gp_log(GP_LOG_INFO, "TensorFlow's pools: their pieces are counted");
    return true;
}

bool gp_bfc_find(const struct gp_slot_caller *caller)
{
    if (told && !__atomic_load_n(&x_open, __ATOMIC_RELAXED))
        return true;
    gp_slots_replace(&import, 1, caller);
    if (!import.slots || told)
        return !import.early;
    if (!bfc_open())
        gp_slots_restore(&import, 1);
    return !import.early;
}

void gp_bfc_restore(void)
{
    __atomic_store_n(&x_open, 0, __ATOMIC_RELAXED);
    gp_slots_restore(&import, 1);
}
