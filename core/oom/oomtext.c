/* SPDX-License-Identifier: MIT
 *
 * oomtext.c: the page of the out-of-memory report (oom.h). The advice on it is in
 * oomadvice.c.
 */
#include "base/numbers.h"
#include "oom/oom.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- parts ---------------------------------------------------------------------------------------------------- */

static void page_title(struct gp_oom_page *page, const struct gp_oom_facts *facts)
{
    const struct gp_wire_oom *oom = facts->oom;
    char where[96] = "an unknown device", asked[GP_OOM_SIZE], line[320];
    if (oom->device == (int)GP_WIRE_HOST)
        snprintf(where, sizeof(where), "the host");
    else if (oom->device >= 0)
        snprintf(where, sizeof(where), "device %d%s%s%s", oom->device,
                 facts->device_name && *facts->device_name ? " (" : "", facts->device_name ? facts->device_name : "",
                 facts->device_name && *facts->device_name ? ")" : "");
    if (oom->asked_bytes)
        snprintf(line, sizeof(line), "Out of memory on %s: %s asked for %s", where, oom->api,
                 gp_oom_size(asked, oom->asked_bytes > INT64_MAX ? INT64_MAX : (int64_t)oom->asked_bytes));
    else
        snprintf(line, sizeof(line), "Out of memory on %s: %s failed", where, oom->api);
    gp_oom_title(page, line);
}

static void page_who(struct gp_oom_page *page, const struct gp_oom_facts *facts)
{
    const struct gp_wire_oom *oom = facts->oom;
    char line[256];
    int used = 0;
    if (facts->place && *facts->place)
        gp_oom_say(page, "asked by", "%s", facts->place);
    if (facts->pid)
        used += snprintf(line + used, sizeof(line) - (size_t)used, "PID %" PRIu32 " %.64s, ", facts->pid,
                         facts->comm ? facts->comm : "");
    used += snprintf(line + used, sizeof(line) - (size_t)used, "thread %" PRIu32, oom->tid);
    if (oom->stream)
        used += snprintf(line + used, sizeof(line) - (size_t)used, ", stream 0x%" PRIx64, oom->stream);
    if (facts->start_ns && oom->time_ns > facts->start_ns)
        used += snprintf(line + used, sizeof(line) - (size_t)used, ", %.3f s after the start",
                         (double)(oom->time_ns - facts->start_ns) / 1e9);
    gp_oom_say(page, "who", "%s", line);
    if (oom->count > 1)
        gp_oom_say(page, "", "the last of %" PRIu64 " such failures", oom->count);
}

static void page_device(struct gp_oom_page *page, const struct gp_oom_facts *facts, const struct gp_oom_sums *sums)
{
    const struct gp_wire_oom *oom = facts->oom;
    char cap[GP_OOM_SIZE], total[GP_OOM_SIZE], number[GP_OOM_SIZE];
    if (oom->device < 0 || oom->device == (int)GP_WIRE_HOST)
        return;
    if (sums->capped_bytes > 0)
        gp_oom_say(page, "limit", "%s of the device's %s, set for this process's cgroup or by MPS; %s of it free then",
                   gp_oom_size(cap, sums->capped_bytes), gp_oom_size(total, sums->total_bytes),
                   gp_oom_size(number, oom->free_bytes));
    else if (oom->flags & GP_OOM_DRIVER)
        gp_oom_say(page, "device", "%s in total, %s free then", gp_oom_size(total, sums->total_bytes),
                   gp_oom_size(number, oom->free_bytes));
    else
        gp_oom_say(page, "device", "%s in total; what was free is not known: %s", gp_oom_size(total, sums->total_bytes),
                   oom->flags & GP_OOM_PENDING ? "the program ended before the driver could be asked"
                                               : "the driver was not asked or did not say");
    if (sums->other_bytes >= 0)
        gp_oom_say(page, "others", "%s held by other processes%s%s", gp_oom_size(number, sums->other_bytes),
                   sums->capped_bytes > 0 ? " under this limit" : "",
                   sums->others_are_sure ? "" : ", this one's context and code, and the driver's rounding");
}

static void page_held(struct gp_oom_page *page, const struct gp_wire_oom *oom)
{
    char reserved[GP_OOM_SIZE], allocated[GP_OOM_SIZE], line[480];
    int used;
    if (oom->reserved_bytes < 0)
        return;
    used = snprintf(line, sizeof(line), "%s reserved from the driver, %s allocated",
                    gp_oom_size(reserved, oom->reserved_bytes), gp_oom_size(allocated, oom->allocated_bytes));
    const char *before = ": ";
    for (unsigned kind = 1; kind < GP_KINDS; kind++) {
        char bytes[GP_OOM_SIZE];
        /* The memory of other processes, addresses, and what is not measured are not in the sum before. */
        if (oom->kinds[kind] <= 0 || kind == GP_KIND_IMPORTED || kind == GP_KIND_VIRTUAL || kind == GP_KIND_CONTEXT)
            continue;
        used += snprintf(line + used, sizeof(line) - (size_t)used, "%s%s %s", before, gp_kind_name(kind),
                         gp_oom_size(bytes, oom->kinds[kind]));
        before = ", ";
    }
    gp_oom_say(page, "process", "%s", line);
}

/* Why idle memory could not serve the request. */
static void page_idle(struct gp_oom_page *page, const struct gp_wire_oom *oom)
{
    char idle[GP_OOM_SIZE], largest[GP_OOM_SIZE], waiting[GP_OOM_SIZE];
    if (oom->idle_bytes == 0) {
        gp_oom_say(page, "cached", "nothing: no idle memory was left to give");
    } else {
        const char *why = (uint64_t)oom->largest_idle_bytes < oom->asked_bytes
                              ? "no piece is large enough, and memory that shares a segment with a live block cannot "
                                "go back to the driver"
                              : "the largest would do, but it belongs to another stream or pool";
        gp_oom_say(page, "cached", "%s cached in %" PRId64 " pieces, largest %s, pinned by %" PRId64 " live blocks: %s",
                   gp_oom_size(idle, oom->idle_bytes), oom->idle_pieces, gp_oom_size(largest, oom->largest_idle_bytes),
                   oom->pinning_blocks, why);
    }
    if (oom->waiting_bytes > 0)
        gp_oom_say(page, "", "%s more is freed, but work that uses it is still under way",
                   gp_oom_size(waiting, oom->waiting_bytes));
}

static void page_allocator(struct gp_oom_page *page, const struct gp_wire_oom *oom, const struct gp_oom_sums *sums)
{
    char number[GP_OOM_SIZE];
    if (oom->flags & GP_OOM_CACHE) {
        gp_oom_say(page, "allocator", "%s%s%s%s, %s%s", oom->policy, oom->conf[0] ? " (" : "", oom->conf,
                   oom->conf[0] ? ")" : "", oom->limit_bytes > 0 ? "limit " : "no limit",
                   oom->limit_bytes > 0 ? gp_oom_size(number, oom->limit_bytes) : "");
        page_idle(page, oom);
    }
    if (sums->pool_idle_bytes > 0)
        gp_oom_say(page, "pools", "%s reserved by memory pools and not handed out",
                   gp_oom_size(number, sums->pool_idle_bytes));
    if (sums->graph_idle_bytes > 0)
        gp_oom_say(page, "graphs", "%s reserved for graphs and not in use",
                   gp_oom_size(number, sums->graph_idle_bytes));
}

struct oom_row { /* of the holders: the blocks of one kind from one place */
    const struct gp_wire_oom_holder *holder;
    const char *where; /* "": not known */
    uint64_t count, bytes;
    bool sizes; /* of more than one */
};

/* Holders that are one row where their place is known; the largest row first. */
static uint32_t oom_rows(struct oom_row rows[GP_OOM_HOLDERS], const struct gp_oom_facts *facts)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < facts->oom->holder_count && i < GP_OOM_HOLDERS; i++) {
        const struct gp_wire_oom_holder *holder = &facts->oom->holders[i];
        struct oom_row row = {holder, facts->where ? facts->where[i] : "", holder->count, 0, false};
        if (__builtin_mul_overflow(holder->block_bytes, holder->count, &row.bytes) || row.bytes > INT64_MAX)
            row.bytes = INT64_MAX;
        uint32_t same = 0;
        while (same < count &&
               !(row.where[0] && rows[same].holder->kind == holder->kind && strcmp(rows[same].where, row.where) == 0))
            same++;
        if (same < count) {
            row.holder = rows[same].holder;
            row.sizes = true;
            row.count = rows[same].count > UINT64_MAX - row.count ? UINT64_MAX : rows[same].count + row.count;
            row.bytes = rows[same].bytes > INT64_MAX - row.bytes ? INT64_MAX : rows[same].bytes + row.bytes;
        } else {
            count++;
        }
        for (; same > 0 && rows[same - 1].bytes < row.bytes; same--)
            rows[same] = rows[same - 1];
        rows[same] = row;
    }
    return count;
}

static void page_holders(struct gp_oom_page *page, const struct gp_oom_facts *facts)
{
    const struct gp_wire_oom *oom = facts->oom;
    struct oom_row rows[GP_OOM_HOLDERS];
    bool where = false;
    char each[GP_OOM_SIZE], all[GP_OOM_SIZE], age[64] = "";
    if (oom->holder_count == 0)
        return;
    if (oom->holders_ns && oom->time_ns > oom->holders_ns && oom->time_ns - oom->holders_ns > 1000000)
        snprintf(age, sizeof(age), "   (as of %.3f s before)", (double)(oom->time_ns - oom->holders_ns) / 1e9);
    uint32_t count = oom_rows(rows, facts);
    for (uint32_t i = 0; i < count; i++)
        where |= rows[i].where[0] != '\0';
    gp_oom_say(page, "holders", "%-10s %10s  %-12s %12s%s%s", "KIND", "BLOCKS", "OF", "TOGETHER",
               where ? "  WHERE" : "", age);
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_wire_oom_holder *holder = rows[i].holder;
        const char *kind = holder->kind ? gp_kind_name(holder->kind) : NULL;
        gp_oom_say(page, "", "%-10s %10" PRIu64 "  %-12s %12s%s%.*s", kind ? kind : "other", rows[i].count,
                   rows[i].sizes ? "many sizes" : gp_oom_size(each, (int64_t)holder->block_bytes),
                   gp_oom_size(all, (int64_t)rows[i].bytes), where ? "  " : "", GP_OOM_WHERE, rows[i].where);
    }
    if (oom->rest_count > 0)
        gp_oom_say(page, "", "%-10s %10" PRId64 "  %-12s %12s", "the rest", oom->rest_count,
                   oom->flags & GP_OOM_PARTIAL ? "many sizes" : "", gp_oom_size(all, oom->rest_bytes));
}

size_t gp_oom_page(char *out, size_t out_bytes, const struct gp_oom_facts *facts)
{
    struct gp_oom_page page = {.out = out, .bytes = out_bytes};
    struct gp_oom_sums sums;
    if (out_bytes < 128) { /* no room for the title */
        if (out_bytes)
            *out = '\0';
        return 0;
    }
    gp_oom_sum(&sums, facts);
    page_title(&page, facts);
    page_who(&page, facts);
    page_device(&page, facts, &sums);
    gp_oom_framework_limit(&page, facts->oom, gp_oom_framework_of(facts));
    page_held(&page, facts->oom);
    gp_oom_framework_idle(&page, facts->oom, gp_oom_framework_of(facts));
    page_allocator(&page, facts->oom, &sums);
    page_holders(&page, facts);
    gp_oom_advice_say(&page, facts, &sums);
    return page.used;
}
