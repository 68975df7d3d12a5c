/* SPDX-License-Identifier: MIT
 * oomreport.c: the out-of-memory report of a process, as text and as JSON; see write.h.  The text
 * is that of session/oom/oom.h, so the commands and the log of the process show the same. */
#include <show/text/stats.h>
#include <show/text/write.h>

#include <oom/oom.h>

static void oom_facts_of(struct gp_oom_facts *facts, const struct gp_process *process,
                         const char *where[GP_OOM_HOLDERS])
{
    for (unsigned i = 0; i < GP_OOM_HOLDERS; i++)
        where[i] = process->oom_where[i];
    *facts = (struct gp_oom_facts){
        .oom = &process->oom,
        .framework = &process->oom_framework,
        .pid = (uint32_t)process->pid,
        .comm = process->comm,
        .start_ns = process->session_ns,
        .total_bytes = -1,
        .untracked_bytes = -1,
        .place = process->oom_place,
        .where = where,
    };
    for (int i = 0; i < process->device_count; i++) {
        const struct gp_device_view *device = &process->devices[i];
        if (device->index != process->oom.device)
            continue;
        facts->device_name = device->name;
        facts->total_bytes = device->total_bytes;
        facts->untracked_bytes = device->untracked_bytes; /* of now; contexts and code change little */
    }
}

void gp_oom_print(FILE *out, const struct gp_process *process)
{
    struct gp_oom_facts facts;
    const char *where[GP_OOM_HOLDERS];
    char page[GP_OOM_PAGE_BYTES];
    if (!process->oom.count)
        return;
    oom_facts_of(&facts, process, where);
    gp_oom_page(page, sizeof(page), &facts);
    size_t title = strcspn(page, "\n");
    fprintf(out, "%s%.*s%s%s", gp_tone(out, GP_RED), (int)title, page, gp_tone(out, GP_OFF), page + title);
}

/* ---- JSON ----------------------------------------------------------------------------------------------------- */

static json_t *oom_count_json(uint64_t count)
{
    return json_integer((json_int_t)(count > INT64_MAX ? INT64_MAX : count));
}

static json_t *holders_json(const struct gp_process *process)
{
    const struct gp_wire_oom *oom = &process->oom;
    json_t *array = json_array();
    for (uint32_t i = 0; i < oom->holder_count; i++) {
        const struct gp_wire_oom_holder *holder = &oom->holders[i];
        json_array_append_new(array,
                              json_pack("{s:s,s:o,s:o,s:o,s:o}", "kind", gp_kind_name(holder->kind), "block_bytes",
                                        oom_count_json(holder->block_bytes), "blocks", oom_count_json(holder->count),
                                        "site", holder->site ? json_integer(holder->site) : json_null(), "where",
                                        gp_json_text(process->oom_where[i])));
    }
    return array;
}

static json_t *oom_kinds_json(const struct gp_wire_oom *oom)
{
    json_t *object = json_object();
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++)
        json_object_set_new(object, gp_kind_name(kind), gp_json_known(oom->kinds[kind]));
    return object;
}

static json_t *oom_cache_json(const struct gp_wire_oom *oom)
{
    if (!(oom->flags & GP_OOM_CACHE))
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "policy", oom->policy, "conf", gp_json_text(oom->conf),
                     "limit_bytes", oom->limit_bytes > 0 ? json_integer(oom->limit_bytes) : json_null(), "idle_bytes",
                     gp_json_known(oom->idle_bytes), "idle_pieces", gp_json_known(oom->idle_pieces),
                     "largest_idle_bytes", gp_json_known(oom->largest_idle_bytes), "releasable_bytes",
                     gp_json_known(oom->releasable_bytes), "waiting_bytes", gp_json_known(oom->waiting_bytes),
                     "pinning_blocks", gp_json_known(oom->pinning_blocks));
}

/* The numbers of a framework's own allocator. */
static json_t *oom_framework_json(const struct gp_wire_oom *oom, const struct gp_wire_oom_framework *of)
{
    if (!(of->flags & GP_OOM_FRAMEWORK))
        return json_null();
    return json_pack("{s:s,s:o,s:b,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", oom->policy, "conf",
                     gp_json_text(oom->conf), "asked", !(of->flags & GP_OOM_BESIDE), "own_limit",
                     of->flags & GP_OOM_REFUSED ? 1 : 0, "replayed", of->flags & GP_OOM_REPLAYED ? 1 : 0,
                     "reserved_bytes", gp_json_known(of->segment_bytes), "blocks", gp_json_known(of->blocks),
                     "idle_bytes", gp_json_known(oom->idle_bytes), "idle_pieces", gp_json_known(oom->idle_pieces),
                     "largest_idle_bytes", gp_json_known(oom->largest_idle_bytes), "empty_segments_bytes",
                     gp_json_known(oom->releasable_bytes), "private_segments_bytes",
                     of->flags & GP_OOM_NO_POOLS ? json_integer(0) : gp_json_known(of->private_bytes),
                     "max_split_size_bytes", gp_json_known(of->helps >> GP_OOM_TRY_SPLIT & 1 ? of->split_bytes : -1));
}

static json_t *oom_advice_json(unsigned bits)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < GP_ADVICES; i++)
        if (bits >> i & 1)
            json_array_append_new(array, json_string(gp_oom_advice_name(i)));
    return array;
}

static json_t *oom_device_json(int32_t device)
{
    if (device < 0)
        return json_null();
    return device == (int32_t)GP_WIRE_HOST ? json_string("host") : json_integer(device);
}

json_t *gp_oom_json(const struct gp_process *process)
{
    const struct gp_wire_oom *oom = &process->oom;
    struct gp_oom_facts facts;
    struct gp_oom_sums sums;
    const char *where[GP_OOM_HOLDERS];
    char page[GP_OOM_PAGE_BYTES];
    if (!oom->count)
        return json_null();
    oom_facts_of(&facts, process, where);
    gp_oom_sum(&sums, &facts);
    gp_oom_page(page, sizeof(page), &facts);
    struct gp_oom_advised advised = gp_oom_advise(&facts);
    uint64_t after_ns = oom->time_ns > process->session_ns ? oom->time_ns - process->session_ns : 0;
    json_t *object =
        json_pack("{s:o,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:I,s:o}", "count", oom_count_json(oom->count), "api", oom->api,
                  "error", (json_int_t)oom->error, "device", oom_device_json(oom->device), "requested_bytes",
                  oom_count_json(oom->asked_bytes), "site", oom->site ? json_integer(oom->site) : json_null(), "where",
                  gp_json_text(process->oom_place), "stream", oom->stream ? gp_json_address(oom->stream) : json_null(),
                  "tid", (json_int_t)oom->tid, "after_start_ns", oom_count_json(after_ns));
    json_t *more = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s}", "free_bytes",
        gp_json_known(oom->free_bytes), "total_bytes", gp_json_known(sums.total_bytes), "driver_limit_bytes",
        gp_json_known(sums.capped_bytes > 0 ? sums.capped_bytes : -1), "reserved_bytes",
        gp_json_known(oom->reserved_bytes), "allocated_bytes", gp_json_known(oom->allocated_bytes), "other_bytes",
        gp_json_known(sums.other_bytes), "missing_bytes", gp_json_known(sums.missing_bytes), "pool_idle_bytes",
        gp_json_known(sums.pool_idle_bytes), "graph_idle_bytes", gp_json_known(sums.graph_idle_bytes), "kinds",
        oom_kinds_json(oom), "cache", oom_cache_json(oom), "holders", holders_json(process), "rest",
        json_pack("{s:o,s:o}", "bytes", gp_json_known(oom->rest_bytes), "blocks", gp_json_known(oom->rest_count)),
        "framework", oom_framework_json(oom, &process->oom_framework), "advice", oom_advice_json(advised.helps),
        "advice_unknown", oom_advice_json(advised.unknown), "advice_denied", oom_advice_json(advised.fails), "page",
        page);
    if (!object || !more || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}
