/* SPDX-License-Identifier: MIT
 *
 * door.c: libraries whose own pools are watched ("doors"): the owner of each, its state, and the
 * rows that viewers read. Called by framework/, heap.c and session/.
 */
#include "account/door.h"
#include "account/feed/door.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/internal.h"
#include "account/tap.h"
#include "base/lock.h"
#include <gpuprof/wire.h>
#include <string.h>

static uint8_t x_owners[GP_DOORS]; /* 0: none yet */
static struct door_state {
    uint32_t x_state; /* enum gp_wire_door_state */
    const char *x_text;
} states[GP_DOORS];

static const char *const names[GP_DOORS] = {
#define GP_DOOR_NAME_ROW(_tag, _name) [GP_DOOR_##_tag] = _name,
    GP_DOOR_ROWS(GP_DOOR_NAME_ROW)
#undef GP_DOOR_NAME_ROW
};
_Static_assert(GP_DOORS - 1 <= GP_WIRE_DOORS, "wire.h");

void gp_door_own(enum gp_door door, uint8_t owner)
{
    __atomic_store_n(&x_owners[door], owner, __ATOMIC_RELAXED);
}

enum gp_door gp_door_of(uint8_t owner)
{
    for (unsigned door = GP_DOOR_NVTX + 1; owner && door < GP_DOORS; door++)
        if (__atomic_load_n(&x_owners[door], __ATOMIC_RELAXED) == owner)
            return (enum gp_door)door;
    return GP_DOOR_NVTX;
}

void gp_feed_door_say(enum gp_door door, enum gp_wire_door_state state, const char *text)
{
    __atomic_store_n(&states[door].x_text, text, __ATOMIC_RELAXED);
    __atomic_store_n(&states[door].x_state, state, __ATOMIC_RELEASE); /* [door.R] x_text; pairs with [door.A] */
}

static int64_t word(const int64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static void door_rows(struct gp_wire_doors *out, unsigned door, uint32_t number)
{
    for (unsigned i = 0; i < GP_WIRE_GPUS && out->row_count < GP_WIRE_DOOR_ROWS; i++) {
        const struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[i], __ATOMIC_ACQUIRE);
        const struct gp_framework *heaps = account ? &account->heaps[door] : NULL;
        if (!heaps || (!__atomic_load_n(&heaps->x_events, __ATOMIC_RELAXED) && !word(&heaps->x_segments)))
            continue;
        out->rows[out->row_count++] = (struct gp_wire_door_row){
            .door = number,
            .device = (int32_t)i,
            .pieces = word(&heaps->x_blocks),
            .pools = word(&heaps->x_segments),
            .allocated_bytes = word(&heaps->x_allocated_bytes),
            .reserved_bytes = word(&heaps->x_segment_bytes),
            .events = __atomic_load_n(&heaps->x_events, __ATOMIC_RELAXED),
            .allocated_peak_bytes = -1,
            .reserved_peak_bytes = -1,
            .limit_bytes = -1,
        };
    }
}

/* ---- what libraries say themselves --------------------------------------------------------------------------------- */

static struct gp_door_numbers polled[GP_WIRE_GPUS]; /* of the one library that is asked; under gp_accounts.lock */
static struct gp_wire_polled most[GP_WIRE_GPUS];    /* the same, and it stays */
static void (*x_ask)(void);

static void door_most(struct gp_wire_polled *is, const struct gp_door_numbers *said)
{
    is->peak_bytes = gp_larger(is->peak_bytes, gp_larger(said->allocated_bytes, said->allocated_peak_bytes));
    is->pool_bytes = gp_larger(is->pool_bytes, gp_larger(said->reserved_bytes, said->reserved_peak_bytes));
    is->limit_bytes = gp_larger(is->limit_bytes, said->limit_bytes);
}

void gp_feed_door_polled(enum gp_door door, int device, const struct gp_door_numbers *numbers)
{
    gp_lock_take(&gp_accounts.lock);
    for (int i = 0; door == GP_DOOR_XLA && i < (int)GP_WIRE_GPUS; i++) {
        if (i != device && (device != GP_DEVICE_UNKNOWN || numbers))
            continue;
        polled[i] = numbers ? *numbers : (struct gp_door_numbers){.time_ns = 0};
        door_most(&most[i], &polled[i]);
    }
    gp_lock_give(&gp_accounts.lock);
}

struct gp_wire_polled gp_door_polled(unsigned device)
{
    return device < GP_WIRE_GPUS ? most[device] : (struct gp_wire_polled){0};
}

void gp_feed_door_ask(void (*ask)(void))
{
    __atomic_store_n(&x_ask, ask, __ATOMIC_RELEASE); /* [ask.R] what it needs; pairs with [ask.A] */
}

bool gp_feed_poll_doors(bool now)
{
    void (*ask)(void) = __atomic_load_n(&x_ask, __ATOMIC_ACQUIRE); /* [ask.A] pairs with [ask.R] */
    if (ask && now)
        ask();
    return ask;
}

static void door_polled_rows(struct gp_wire_doors *out, uint32_t number)
{
    gp_lock_take(&gp_accounts.lock);
    for (unsigned i = 0; i < GP_WIRE_GPUS && out->row_count < GP_WIRE_DOOR_ROWS; i++)
        if (polled[i].time_ns)
            out->rows[out->row_count++] = (struct gp_wire_door_row){
                .door = number,
                .device = (int32_t)i,
                .pieces = -1,
                .pools = -1,
                .allocated_bytes = polled[i].allocated_bytes,
                .reserved_bytes = polled[i].reserved_bytes,
                .allocated_peak_bytes = polled[i].allocated_peak_bytes,
                .reserved_peak_bytes = polled[i].reserved_peak_bytes,
                .limit_bytes = polled[i].limit_bytes,
                .time_ns = polled[i].time_ns,
            };
    gp_lock_give(&gp_accounts.lock);
}

void gp_tap_doors(struct gp_wire_doors *out)
{
    out->door_count = out->row_count = 0;
    for (unsigned door = GP_DOOR_NVTX + 1; door < GP_DOORS; door++) {
        uint32_t state = __atomic_load_n(&states[door].x_state, __ATOMIC_ACQUIRE); /* [door.A] pairs with [door.R] */
        const char *text = __atomic_load_n(&states[door].x_text, __ATOMIC_RELAXED);
        if (state == GP_WIRE_DOOR_NONE)
            continue;
        struct gp_wire_door *is = &out->doors[out->door_count];
        *is = (struct gp_wire_door){.state = state};
        strncpy(is->name, names[door], sizeof(is->name) - 1);
        strncpy(is->text, text ? text : "", sizeof(is->text) - 1);
        if (state == GP_WIRE_DOOR_POLLED)
            door_polled_rows(out, out->door_count++);
        else
            door_rows(out, door, out->door_count++);
    }
}
