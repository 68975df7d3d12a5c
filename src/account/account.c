/* SPDX-License-Identifier: MIT
 *
 * account.c: the accounts of the devices, the frames of calls under way, and the start of the
 * module.
 */
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/start.h"
#include "account/feed/want.h"
#include "account/frame.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/kept.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/thread.h"
#include "stack/stack.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <string.h>

struct gp_accounts gp_accounts = {.lock = GP_LOCK_INIT(GP_RANK_ACCOUNT)};

/* ---- devices -------------------------------------------------------------------------------------------------- */

static struct gp_account *account_new(void)
{
    struct gp_account *account = gp_kept_map(sizeof(*account), 0);
    if (!account)
        return NULL;
    if (gp_counter_new(&account->counter, GP_GAUGES, GP_SHARDS) != 0) {
        gp_kept_unmap(account, sizeof(*account));
        return NULL;
    }
    gp_gauge_linear_pairs(account->counter);
    account->total_bytes = -1;
    account->x_split_limit = -1;
    account->x_flags = GP_DEVICE_PRESENT;
    return account;
}

/* Starts the watches that are under way (scopes, and the batches' watch) on a new account. A
 * watch that ends at the same time looks for the account before it is started here, so this
 * function checks again after each start. The loads pair with the read-modify-writes of tap.c. */
static void account_watch(struct gp_account *account)
{
    uint32_t scopes = __atomic_load_n(&gp_accounts.x_scopes, __ATOMIC_ACQUIRE);
    for (unsigned slot = 0; slot < GP_WATCHES_MAX; slot++) {
        if (!(scopes & (1u << slot)))
            continue;
        gp_counter_watch_begin(account->counter, slot);
        if (!(__atomic_load_n(&gp_accounts.x_scopes, __ATOMIC_SEQ_CST) & (1u << slot)))
            gp_counter_watch_end(account->counter, slot, NULL);
    }
}

static GP_COLD struct gp_account *account_create(int device)
{
    struct gp_account *fresh = account_new(), *found = NULL;
    if (!fresh)
        return NULL;
    /* [account.R] release: the account's contents; pairs with [account.A]. */
    if (__atomic_compare_exchange_n(&gp_accounts.x_devices[device], &found, fresh, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        account_watch(fresh);
        gp_feed_poll_want(GP_POLL_DEVICES);
        return fresh;
    }
    gp_counter_free(fresh->counter);
    gp_kept_unmap(fresh, sizeof(*fresh));
    return found;
}

struct gp_account *gp_account_of(int device)
{
    if (GP_UNLIKELY(device < 0 || device >= (int)GP_WIRE_DEVICES)) {
        gp_feed_lost(GP_LOST_DEVICE);
        return NULL;
    }
    /* [account.A] acquire: pairs with [account.R]. */
    struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[device], __ATOMIC_ACQUIRE);
    if (GP_UNLIKELY(!account)) {
        account = account_create(device);
        if (!account)
            gp_feed_lost(GP_LOST_DEVICE);
    }
    return account;
}

uint64_t gp_feed_devices(void)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
        if (__atomic_load_n(&gp_accounts.x_devices[i], __ATOMIC_ACQUIRE))
            bits |= 1ull << i;
    return bits;
}

/* The owner of the kind's pairs; the first one that takes such memory. Threads that come while another sets the pairs move
 * the same gauges without them. */
static GP_COLD unsigned account_pair_claim(struct gp_account *account, struct gp_pair_owner *pairs, unsigned owner)
{
    uint32_t none = 0;
    if (!__atomic_compare_exchange_n(&pairs->x_claimed, &none, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return GP_WIRE_OWNERS;
    if (pairs == &account->pairs[GP_PAIR_OWNED_SMALL / 2])
        gp_gauge_owned_pairs(account->counter, owner);
    else
        gp_gauge_pool_pairs(account->counter, owner);
    /* [pairs.R] release: the gauges of the pairs; pairs with [pairs.A]. */
    __atomic_store_n(&pairs->x_owner, (uint8_t)(owner + 1), __ATOMIC_RELEASE);
    return owner;
}

static unsigned account_pair_owner(struct gp_account *account, const struct gp_move *move)
{
    struct gp_pair_owner *pairs =
        &account->pairs[(move->kind == GP_KIND_POOL ? GP_PAIR_POOL_SMALL : GP_PAIR_OWNED_SMALL) / 2];
    unsigned owner = __atomic_load_n(&pairs->x_owner, __ATOMIC_ACQUIRE); /* [pairs.A] acquire: pairs with [pairs.R] */
    if (GP_LIKELY(owner))
        return owner - 1;
    bool is_theirs = move->kind == GP_KIND_LINEAR || move->kind == GP_KIND_POOL;
    return is_theirs && move->parts & GP_PART_ALLOCATED ? account_pair_claim(account, pairs, move->owner)
                                                        : GP_WIRE_OWNERS;
}

uint64_t gp_account_move(int device, enum gp_counter_op op, const struct gp_move *move)
{
    struct gp_delta deltas[GP_DELTAS];
    struct gp_counter_event event;
    struct gp_account *account = gp_account_of(device);
    uint64_t time_ns = 0;
    if (!account)
        return 0;
    gp_gauge_event(move, account_pair_owner(account, move), &event, deltas);
    if (event.n || event.pair < GP_PAIRS)
        gp_counter_move(account->counter, gp_thread.number, op, &event, &time_ns);
    return time_ns;
}

void gp_account_putback(int device, uint64_t since_ns, const struct gp_move *move)
{
    struct gp_delta deltas[GP_DELTAS];
    struct gp_account *account = gp_account_of(device);
    unsigned count = gp_gauge_deltas(move, deltas);
    if (account && count)
        gp_counter_putback(account->counter, gp_thread.number, since_ns, deltas, count);
}

uint64_t gp_account_raises(int device)
{
    struct gp_account *account = gp_account_of(device);
    return account ? gp_counter_raises(account->counter) : 0;
}

bool gp_account_retract(int device, uint64_t raises, const struct gp_move *move)
{
    struct gp_delta deltas[GP_DELTAS];
    struct gp_account *account = gp_account_of(device);
    unsigned count = gp_gauge_deltas(move, deltas);
    return account && count && gp_counter_retract(account->counter, gp_thread.number, (uint32_t)raises, deltas, count);
}

bool gp_account_is_divisible(enum gp_wire_kind kind)
{
    return kind == GP_KIND_LINEAR || kind == GP_KIND_VMM;
}

/* ---- private pools ---------------------------------------------------------------------------------------------- */

/* The pools in use. More at one time are not known. */
static struct {
    uint32_t x_thread; /* the number of the thread that uses it; 0: free */
    uint64_t x_pool;
} x_used[32];
static uint32_t x_pools_told;

void gp_feed_framework_tells_pools(bool tells)
{
    for (unsigned i = 0; i < GP_COUNT(x_used); i++) {
        __atomic_store_n(&x_used[i].x_pool, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&x_used[i].x_thread, 0, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&x_pools_told, tells, __ATOMIC_RELAXED);
}

void gp_feed_framework_pool(int device, uint64_t first, uint64_t second, enum gp_pool_use use)
{
    const uint64_t pool = (first << 24 ^ second) << 8 | (uint8_t)device; /* either number is 0, and the other is not */
    for (unsigned i = 0; i < GP_COUNT(x_used); i++) {
        uint32_t none = 0;
        if (use) {
            uint32_t thread = use == GP_POOL_OF_THREAD ? gp_thread.number : UINT32_MAX;
            if (!__atomic_compare_exchange_n(&x_used[i].x_thread, &none, thread, false, __ATOMIC_RELAXED,
                                             __ATOMIC_RELAXED))
                continue;
            __atomic_store_n(&x_used[i].x_pool, pool, __ATOMIC_RELAXED);
            return;
        }
        if (__atomic_load_n(&x_used[i].x_pool, __ATOMIC_RELAXED) == pool) {
            __atomic_store_n(&x_used[i].x_pool, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&x_used[i].x_thread, 0, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* Whether what this thread asks for now is known to be for a private pool (frameworkoom.c). All threads work for a graph
 * during its capture, such as those of a backward pass. */
static bool account_in_pool(int device)
{
    bool any = !__atomic_load_n(&x_pools_told, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < GP_COUNT(x_used); i++) {
        uint64_t pool = __atomic_load_n(&x_used[i].x_pool, __ATOMIC_RELAXED);
        if (!pool || (uint8_t)pool != (uint8_t)device)
            continue;
        any = true;
        if (__atomic_load_n(&x_used[i].x_thread, __ATOMIC_RELAXED) == gp_thread.number)
            return true;
    }
    return any && __atomic_load_n(&gp_accounts.x_captures, __ATOMIC_RELAXED);
}

/* ---- moves of a record --------------------------------------------------------------------------------------------- */

void gp_account_own(struct gp_record *record)
{
    struct gp_owner owner = gp_owner_here();
    record->owner = owner.row;
    /* Memory that a framework can divide into blocks. */
    if (owner.segment && gp_account_is_divisible(record->kind)) {
        record->segment = GP_SEGMENT_FRAMEWORK;
        record->owner = owner.framework;
        record->flags = account_in_pool(record->device) ? GP_FLAG_PRIVATE : 0;
    }
}

static unsigned account_parts(const struct gp_record *record)
{
    unsigned parts = gp_gauge_parts(record->kind);
    if (record->space == GP_SPACE_BLOCK)
        return GP_PART_ALLOCATED;
    return record->segment ? parts & ~GP_PART_ALLOCATED : parts;
}

/* PyTorch's small pool has segments of 2 MiB (kSmallBuffer); those of the large one start at 10 MiB. */
static int64_t account_class(const struct gp_record *record)
{
    const uint64_t small_segment = 2u << 20;
    return record->segment == GP_SEGMENT_FRAMEWORK && record->bytes <= small_segment ? 1 : (int64_t)record->bytes;
}

struct gp_move gp_account_block_move(const struct gp_record *record)
{
    return (struct gp_move){
        .kind = record->kind,
        .parts = account_parts(record),
        .bytes = (int64_t)record->bytes,
        .requested_bytes = (int64_t)record->requested_bytes,
        .class_bytes = account_class(record),
        .count = 1,
        .owner = record->owner,
    };
}

/* ---- frames --------------------------------------------------------------------------------------------------- */

struct gp_frame gp_frames[GP_FRAMES];

uint32_t gp_account_frame_search(struct gp_frame **out)
{
    const uint32_t own = gp_thread.number - 1, others = GP_FRAMES - GP_FRAMES_OWN;
    for (uint32_t i = 0; i < others; i++) { /* each thread starts its search at another frame */
        uint32_t slot = GP_FRAMES_OWN + (own * 7u + i) % others, idle = 0;
        struct gp_frame *frame = &gp_frames[slot];
        /* [frame.A] acquire: the last owner has finished with it; pairs with [frame.R]. */
        if (__atomic_load_n(&frame->x_busy, __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&frame->x_busy, &idle, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            *out = frame;
            return slot + 1;
        }
    }
    gp_feed_lost(GP_LOST_FRAMES);
    return 0;
}

uint32_t gp_account_frame_own(enum gp_space *what)
{
    const uint32_t own = gp_thread.number - 1;
    if (own >= GP_FRAMES_OWN || __atomic_load_n(&gp_frames[own].x_busy, __ATOMIC_RELAXED) == 0)
        return 0;
    *what = gp_frames[own].what;
    return own + 1;
}

/* ---- small change --------------------------------------------------------------------------------------------- */

void gp_feed_lost(enum gp_wire_lost cause)
{
    __atomic_fetch_add(&gp_accounts.setup.lost[cause], 1, __ATOMIC_RELAXED); /* a count */
}

static uint32_t x_wanted;
static uint32_t x_ever; /* everything that was ever requested */

void gp_feed_poll_want(unsigned bits)
{
    if (GP_UNLIKELY(bits & ~__atomic_load_n(&x_ever, __ATOMIC_RELAXED))) /* read first: pools ask at every call */
        __atomic_fetch_or(&x_ever, bits, __ATOMIC_RELAXED);              /* flags; they publish nothing */
    /* Pools and graphs ask at every call, so the flags are read first here too. If the poller takes them at this moment, its
     * poll comes after that, and it polls some times more (GP_POLL_TRAIL). */
    const unsigned often = GP_POLL_POOLS | GP_POLL_GRAPHS;
    if (!(bits & ~often) && !(bits & ~__atomic_load_n(&x_wanted, __ATOMIC_RELAXED)))
        return;
    /* One system call per change from idle to busy, none while the poller has not yet read the
     * flags. */
    if (__atomic_fetch_or(&x_wanted, bits, __ATOMIC_ACQ_REL) == 0 && gp_accounts.setup.wake_poller)
        gp_accounts.setup.wake_poller();
}

unsigned gp_feed_poll_wanted(void)
{
    return __atomic_exchange_n(&x_wanted, 0, __ATOMIC_ACQ_REL);
}

bool gp_tap_polled(void)
{
    return __atomic_load_n(&x_ever, __ATOMIC_RELAXED) & (GP_POLL_POOLS | GP_POLL_GRAPHS);
}

int gp_feed_start(const struct gp_feed_setup *setup)
{
    /* Objects are handles, pools and streams: a program with a million of them has a leak. */
    const uint64_t object_limit = 1u << 20;
    static const uint16_t unarmed;
    static const uint32_t always = 1;
    gp_accounts.setup = *setup;
    if (!setup->armed)
        gp_accounts.setup.armed = &unarmed;
    if (!setup->listened)
        gp_accounts.setup.listened = &always;
    int error = gp_map_new(&gp_accounts.blocks, setup->map_limit);
    if (error)
        return error;
    error = gp_map_new(&gp_accounts.objects, object_limit);
    if (error) {
        gp_map_free(gp_accounts.blocks);
        gp_accounts.blocks = NULL;
    }
    return error;
}

bool gp_feed_followed(void)
{
    return __atomic_load_n(gp_accounts.setup.listened, __ATOMIC_RELAXED) != 0;
}

void gp_feed_end(void)
{
    if (gp_accounts.blocks)
        gp_map_free(gp_accounts.blocks);
    if (gp_accounts.objects)
        gp_map_free(gp_accounts.objects);
    gp_accounts.blocks = gp_accounts.objects = NULL;
}
