/* SPDX-License-Identifier: MIT
 *
 * live.c: the bytes of a site now, and its bytes at the device's last peak.
 *
 * Copying the bytes of every site at each new peak would be too slow. Instead a new peak increments
 * peak_seq, and a site copies its own bytes before they change for the first time after that. So at
 * every instant between two calls
 *
 *      bytes of the site at the last peak = site.peak_seq == device.peak_seq ? site.at_peak_bytes : site.live_bytes
 *      sum of these over the device's summed sites = device.peak_bytes
 *      sum of live_bytes over the device's summed sites = device.live_bytes <= device.peak_bytes
 *
 * holds exactly, because all of these words change under one lock per device, held for some ten
 * nanoseconds. Allocations that n threads have in flight at the peak may or may not be counted yet,
 * at most one block per thread; nothing else is uncertain.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "stack/internal.h"

/* A reset walks the device's sites and lets other threads in after this many rows. */
#define RESET_ROWS 256u

struct gate {
    uint32_t x_held;
} GP_ALIGNED_LINE;

static struct gp_wire_sites *head;
static struct gp_wire_site *rows;
static uint32_t row_limit;
static struct gate gates[GP_WIRE_DEVICES];

void gp_live_start(struct gp_wire_sites *sites, struct gp_wire_site *memory, uint32_t limit)
{
    head = sites;
    rows = memory;
    /* [limit.R] release: both; pairs with [limit.A]. */
    __atomic_store_n(&row_limit, limit, __ATOMIC_RELEASE);
}

static void gate_take(struct gate *gate)
{
    /* [gate.A] acquire pairs with [gate.R]. */
    for (unsigned round = 0;
         __atomic_load_n(&gate->x_held, __ATOMIC_RELAXED) || __atomic_exchange_n(&gate->x_held, 1, __ATOMIC_ACQUIRE);
         round++)
        gp_pause(round);
    GP_TESTPOINT("live.held");
}

static void gate_give(struct gate *gate)
{
    GP_TESTPOINT("live.done");
    /* [gate.R] release pairs with [gate.A]. */
    __atomic_store_n(&gate->x_held, 0, __ATOMIC_RELEASE);
}

/* Written by the thread that holds the gate; viewers may read at any time. */
static void show(int64_t *word, int64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static void show_seq(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Called before the site's bytes change. A viewer loads the device's peak_seq [live.A3], then the
 * site's live_bytes [live.A1], its peak_seq [live.A2] and its at_peak_bytes, then the device's
 * peak_seq again. If that did not change, the viewer has the site's bytes at that very peak,
 * because [live.R3], [live.R1] and [live.R2] release in this order. */
static void keep(struct gp_wire_site *site, const struct gp_wire_site_device *device)
{
    if (site->peak_seq == device->peak_seq)
        return;
    show(&site->at_peak_bytes, site->live_bytes);
    show_seq(&site->peak_seq, device->peak_seq); /* [live.R1] pairs with [live.A2] */
    GP_TESTPOINT("live.kept");
}

static void move(struct gp_wire_site *site, struct gp_wire_site_device *device, int64_t bytes, int64_t count)
{
    keep(site, device);
    /* [live.R2] pairs with [live.A1] */
    __atomic_store_n(&site->live_bytes, site->live_bytes + bytes, __ATOMIC_RELEASE);
    show(&site->live_count, site->live_count + count);
    if (site->live_bytes > site->peak_bytes)
        show(&site->peak_bytes, site->live_bytes);
    if (site->summed)
        show(&device->live_bytes, device->live_bytes + bytes);
}

/* The device is loaded once: viewers map the session too, and a faulty one may write there. While
 * sites are off every id is 0, and row_limit is 0. */
static struct gp_wire_site *site_of(uint32_t id, unsigned *device)
{
    /* [limit.A] acquire: the tables; pairs with [limit.R]. */
    if (id == 0 || id >= __atomic_load_n(&row_limit, __ATOMIC_ACQUIRE))
        return NULL;
    *device = __atomic_load_n(&rows[id].device, __ATOMIC_RELAXED);
    return *device < GP_WIRE_DEVICES ? &rows[id] : NULL;
}

static void peak_check(struct gp_wire_site_device *device, uint64_t now)
{
    if (device->live_bytes <= device->peak_bytes)
        return;
    show(&device->peak_bytes, device->live_bytes);
    show_seq(&device->peak_ns, now ? now : gp_clock_ns());
    show_seq(&device->peak_seq, device->peak_seq + 1); /* [live.R3] pairs with [live.A3] */
}

void gp_site_alloc(uint32_t id, uint64_t bytes)
{
    unsigned index;
    struct gp_wire_site *site = site_of(id, &index);
    if (!site)
        return;
    struct gp_wire_site_device *device = &head->devices[index];
    int64_t n = (int64_t)bytes;
    /* A new peak is likely: read the clock before taking the gate, where other threads would
     * wait. */
    bool high = site->summed && __atomic_load_n(&device->live_bytes, __ATOMIC_RELAXED) + n >
                                    __atomic_load_n(&device->peak_bytes, __ATOMIC_RELAXED);
    uint64_t now = high ? gp_clock_ns() : 0;
    gate_take(&gates[index]);
    move(site, device, n, 1);
#ifdef GP_SITE_MUTANT_GAP
    gate_give(&gates[index]);
    gate_take(&gates[index]);
#endif
    show(&site->allocated_bytes, site->allocated_bytes + n);
    show(&site->calls, site->calls + 1);
    peak_check(device, now);
    gate_give(&gates[index]);
}

void gp_site_free(uint32_t id, uint64_t bytes)
{
    unsigned index;
    struct gp_wire_site *site = site_of(id, &index);
    if (!site)
        return;
    gate_take(&gates[index]);
    move(site, &head->devices[index], -(int64_t)bytes, -1);
    gate_give(&gates[index]);
}

/* How many blocks the sites of a device hold. Other threads change it meanwhile. */
static int64_t count_blocks(unsigned index)
{
    int64_t blocks = 0;
    uint32_t count = __atomic_load_n(&head->rows, __ATOMIC_ACQUIRE); /* [site.A] acquire: the rows below count */
    for (uint32_t id = 1; id < count && id < row_limit; id++)
        if (rows[id].device == index && rows[id].summed)
            blocks += __atomic_load_n(&rows[id].live_count, __ATOMIC_RELAXED);
    return blocks;
}

void gp_live_settle(uint32_t id, int64_t bytes, int64_t count, bool counts)
{
    unsigned index;
    struct gp_wire_site *site = site_of(id, &index);
    if (!site)
        return;
    struct gp_wire_site_device *device = &head->devices[index];
    int64_t blocks = counts ? count - count_blocks(index) : 0;
    gate_take(&gates[index]);
    int64_t more = bytes - device->live_bytes;
    if (more || blocks) {
        move(site, device, more, blocks);
        peak_check(device, 0);
    }
    gate_give(&gates[index]);
}

static void reset_device(unsigned index, uint32_t count)
{
    struct gp_wire_site_device *device = &head->devices[index];
    uint64_t now = gp_clock_ns();
    gate_take(&gates[index]);
    show(&device->peak_bytes, device->live_bytes);
    show_seq(&device->peak_ns, now);
    show_seq(&device->peak_seq, device->peak_seq + 1);
    for (uint32_t id = 1; id < count; id++) {
        if (rows[id].device == index)
            show(&rows[id].peak_bytes, rows[id].live_bytes);
        if (id % RESET_ROWS == 0) {
            gate_give(&gates[index]);
            gate_take(&gates[index]);
        }
    }
    gate_give(&gates[index]);
}

void gp_site_reset(int device)
{
    uint32_t limit = __atomic_load_n(&row_limit, __ATOMIC_ACQUIRE); /* [limit.A] pairs with [limit.R] */
    if (limit == 0 || device < -1 || device >= (int)GP_WIRE_DEVICES)
        return;
    /* [site.A] acquire: the rows below count are complete. A site added later starts with fresh
     * peaks. */
    uint32_t count = __atomic_load_n(&head->rows, __ATOMIC_ACQUIRE);
    count = count < limit ? count : limit;
    for (unsigned index = 0; index < GP_WIRE_DEVICES; index++)
        if (device < 0 || device == (int)index)
            reset_device(index, count);
}
