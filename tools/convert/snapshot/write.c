/* SPDX-License-Identifier: MIT
 *
 * write.c: writes the parts of a snapshot (internal.h) as PyTorch's tools read them.  The sums of a
 * dictionary follow the list that they sum, so no value is needed before it is known.
 */
#include <convert/snapshot/internal.h>
#include <convert/snapshot/snapshot.h>
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

/* ---- the writer -------------------------------------------------------------------------------------------------- */

/* Limit of the names and frames that are written once; further ones are written each time. */
#define GP_SNAP_MEMOS (1u << 22)

struct gp_snap_memo {
    struct gp_keys texts;
    uint32_t *memos; /* by a text's number */
    uint32_t room;
};

static const char *const key_words[GP_WORDS] = {
    [GP_WORD_SEGMENTS] = "segments",
    [GP_WORD_DEVICE_TRACES] = "device_traces",
    [GP_WORD_ALLOCATOR_SETTINGS] = "allocator_settings",
    [GP_WORD_EXTERNAL_ANNOTATIONS] = "external_annotations",
    [GP_WORD_DEVICE] = "device",
    [GP_WORD_ADDRESS] = "address",
    [GP_WORD_TOTAL_SIZE] = "total_size",
    [GP_WORD_ALLOCATED_SIZE] = "allocated_size",
    [GP_WORD_ACTIVE_SIZE] = "active_size",
    [GP_WORD_REQUESTED_SIZE] = "requested_size",
    [GP_WORD_STREAM] = "stream",
    [GP_WORD_SEGMENT_TYPE] = "segment_type",
    [GP_WORD_SEGMENT_POOL_ID] = "segment_pool_id",
    [GP_WORD_IS_EXPANDABLE] = "is_expandable",
    [GP_WORD_FRAMES] = "frames",
    [GP_WORD_BLOCKS] = "blocks",
    [GP_WORD_SIZE] = "size",
    [GP_WORD_STATE] = "state",
    [GP_WORD_LARGE] = "large",
    [GP_WORD_SMALL] = "small",
    [GP_WORD_ACTIVE_ALLOCATED] = "active_allocated",
    [GP_WORD_ACTIVE_PENDING_FREE] = "active_pending_free",
    [GP_WORD_INACTIVE] = "inactive",
    [GP_WORD_ACTION] = "action",
    [GP_WORD_ADDR] = "addr",
    [GP_WORD_DEVICE_FREE] = "device_free",
    [GP_WORD_TIME_US] = "time_us",
    [GP_WORD_ALLOC] = "alloc",
    [GP_WORD_FREE_REQUESTED] = "free_requested",
    [GP_WORD_FREE_COMPLETED] = "free_completed",
    [GP_WORD_SEGMENT_ALLOC] = "segment_alloc",
    [GP_WORD_SEGMENT_FREE] = "segment_free",
    [GP_WORD_SEGMENT_MAP] = "segment_map",
    [GP_WORD_SEGMENT_UNMAP] = "segment_unmap",
    [GP_WORD_OOM] = "oom",
    [GP_WORD_NAME] = "name",
    [GP_WORD_FILENAME] = "filename",
    [GP_WORD_LINE] = "line",
    [GP_WORD_STAGE] = "stage",
    [GP_WORD_START] = "START",
    [GP_WORD_END] = "END",
    [GP_WORD_GRANTED] = "gpuprof_bytes",
    [GP_WORD_HOST_SEGMENTS] = "host_segments",
    [GP_WORD_HOST_TRACES] = "host_traces",
};

void gp_snap_word(struct gp_snap *snap, enum gp_word word)
{
    if (snap->words[word]) {
        gp_snapshot_pickled_again(&snap->out, snap->words[word] - 1);
        return;
    }
    gp_snapshot_pickled_text(&snap->out, key_words[word]);
    snap->words[word] = gp_snapshot_pickled_remember(&snap->out) + 1;
}

static void snap_number(struct gp_snap *snap, enum gp_word key, uint64_t value)
{
    gp_snap_word(snap, key);
    gp_snapshot_pickled_int(&snap->out, (int64_t)value);
}

static void snap_is(struct gp_snap *snap, enum gp_word key, enum gp_word value)
{
    gp_snap_word(snap, key);
    gp_snap_word(snap, value);
}

/* ---- what was written before ------------------------------------------------------------------------------------- */

/* True: it was written before, and a reference was written now. */
static bool memo_again(struct gp_snap *snap, const char *text)
{
    uint32_t number;
    if (!gp_hash_keys_find(&snap->memo->texts, text, strlen(text), &number))
        return false;
    gp_snapshot_pickled_again(&snap->out, snap->memo->memos[number]);
    return true;
}

/* Remembers the value just written for this text.  Without memory the text is written again next
 * time. */
static void memo_keep(struct gp_snap *snap, const char *text)
{
    struct gp_snap_memo *memo = snap->memo;
    uint32_t number, count = memo->texts.map.count;
    bool is_new;
    if (count == memo->room) {
        uint32_t room = memo->room ? 2 * memo->room : 1024;
        uint32_t *memos = room <= GP_SNAP_MEMOS ? realloc(memo->memos, room * sizeof(memos[0])) : NULL;
        if (!memos)
            return;
        memo->memos = memos;
        memo->room = room;
    }
    if (gp_hash_keys_number(&memo->texts, text, strlen(text), &number, &is_new) == 0 && is_new)
        memo->memos[number] = gp_snapshot_pickled_remember(&snap->out);
}

static void memo_free(struct gp_snap_memo *memo)
{
    gp_hash_keys_free(&memo->texts);
    free(memo->memos);
    free(memo);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void snap_text(struct gp_snap *snap, const char *text)
{
    if (memo_again(snap, text))
        return;
    gp_snapshot_pickled_text(&snap->out, text);
    memo_keep(snap, text);
}

static void snap_frame(struct gp_snap *snap, const struct gp_frame_text *frame)
{
    char key[512];
    const char *file = frame->file[0] ? frame->file : frame->module;
    /* The unit separator occurs in no typed name.  A frame whose key does not fit is written each
     * time. */
    int length = snprintf(key, sizeof(key), "\x1f%u\x1f%s\x1f%s", frame->line, frame->function, file);
    bool fits = length > 0 && (size_t)length < sizeof(key);
    if (fits && memo_again(snap, key))
        return;
    gp_snapshot_pickled_dict(&snap->out);
    gp_snap_word(snap, GP_WORD_NAME);
    snap_text(snap, frame->function);
    gp_snap_word(snap, GP_WORD_FILENAME);
    snap_text(snap, file);
    snap_number(snap, GP_WORD_LINE, frame->line);
    gp_snapshot_pickled_dict_end(&snap->out);
    if (fits)
        memo_keep(snap, key);
}

static void snap_frames(struct gp_snap *snap, uint32_t site)
{
    const struct gp_frame_text *frames = NULL;
    struct gp_snapshot_pickled_list list;
    gp_snap_word(snap, GP_WORD_FRAMES);
    bool known = site != 0 && snap->sites && site < snap->names->count;
    if (known && snap->sites[site]) {
        gp_snapshot_pickled_again(&snap->out, snap->sites[site] - 1);
        return;
    }
    uint32_t count = known ? snap->names->frames(snap->names->symbols, site, &frames) : 0;
    gp_snapshot_pickled_list(&snap->out, &list);
    for (uint32_t i = 0; i < count; i++) {
        gp_snapshot_pickled_item(&snap->out, &list);
        snap_frame(snap, &frames[i]);
    }
    gp_snapshot_pickled_list_end(&snap->out, &list);
    if (known)
        snap->sites[site] = gp_snapshot_pickled_remember(&snap->out) + 1;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* The pair that PyTorch shows: pools of its graphs carry both halves in one number
 * (allocator/torch.c), others have one half. */
#define GP_SNAP_TORCH_POOL (1ull << 63)

static void snap_pool(struct gp_snap *snap, uint64_t pool)
{
    if (pool & GP_SNAP_TORCH_POOL)
        gp_snapshot_pickled_pair(&snap->out, (int64_t)(pool >> 32 & 0x7fffffff), (int64_t)(pool & 0xffffffff));
    else
        gp_snapshot_pickled_pair(&snap->out, 0, (int64_t)pool);
}

void gp_snap_segment(struct gp_snap *snap, const struct gp_snap_segment *segment)
{
    snap->counts.segments++;
    snap->total_bytes = snap->allocated_bytes = snap->active_bytes = snap->requested_bytes = 0;
    gp_snapshot_pickled_item(&snap->out, &snap->segments);
    gp_snapshot_pickled_dict(&snap->out);
    gp_snap_word(snap, GP_WORD_DEVICE);
    gp_snapshot_pickled_int(&snap->out,
                            segment->device == GP_WIRE_HOST ? -1 : (int64_t)segment->device); /* -1: as PyTorch's */
    snap_number(snap, GP_WORD_ADDRESS, segment->address);
    snap_number(snap, GP_WORD_STREAM, segment->stream);
    snap_is(snap, GP_WORD_SEGMENT_TYPE, segment->small ? GP_WORD_SMALL : GP_WORD_LARGE);
    gp_snap_word(snap, GP_WORD_SEGMENT_POOL_ID);
    snap_pool(snap, segment->pool);
    gp_snap_word(snap, GP_WORD_IS_EXPANDABLE);
    gp_snapshot_pickled_bool(&snap->out, segment->expandable);
    snap_frames(snap, segment->site);
    gp_snap_word(snap, GP_WORD_BLOCKS);
    gp_snapshot_pickled_list(&snap->out, &snap->blocks);
}

void gp_snap_block(struct gp_snap *snap, const struct gp_snap_block *block)
{
    static const enum gp_word states[] = {
        [GPUPROF_LIVE] = GP_WORD_ACTIVE_ALLOCATED,
        [GPUPROF_WAITING] = GP_WORD_ACTIVE_PENDING_FREE,
        [GPUPROF_IDLE] = GP_WORD_INACTIVE,
    };
    bool active = block->state != GPUPROF_IDLE;
    uint64_t requested = active && block->requested_bytes <= block->bytes ? block->requested_bytes : 0;
    snap->counts.blocks++;
    snap->total_bytes += block->bytes;
    snap->allocated_bytes += block->state == GPUPROF_LIVE ? block->bytes : 0;
    snap->active_bytes += active ? block->bytes : 0;
    snap->requested_bytes += requested;
    gp_snapshot_pickled_item(&snap->out, &snap->blocks);
    gp_snapshot_pickled_dict(&snap->out);
    snap_number(snap, GP_WORD_ADDRESS, block->address);
    snap_number(snap, GP_WORD_SIZE, block->bytes);
    snap_number(snap, GP_WORD_REQUESTED_SIZE, requested);
    snap_is(snap, GP_WORD_STATE, states[block->state]);
    snap_frames(snap, block->site);
    gp_snapshot_pickled_dict_end(&snap->out);
}

void gp_snap_segment_end(struct gp_snap *snap)
{
    gp_snapshot_pickled_list_end(&snap->out, &snap->blocks);
    snap_number(snap, GP_WORD_TOTAL_SIZE, snap->total_bytes);
    snap_number(snap, GP_WORD_ALLOCATED_SIZE, snap->allocated_bytes);
    snap_number(snap, GP_WORD_ACTIVE_SIZE, snap->active_bytes);
    snap_number(snap, GP_WORD_REQUESTED_SIZE, snap->requested_bytes);
    gp_snapshot_pickled_dict_end(&snap->out);
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

void gp_snap_traces(struct gp_snap *snap)
{
    gp_snapshot_pickled_list_end(&snap->out, &snap->segments);
    gp_snap_word(snap, GP_WORD_DEVICE_TRACES);
    gp_snapshot_pickled_list(&snap->out, &snap->traces);
}

void gp_snap_trace(struct gp_snap *snap)
{
    gp_snapshot_pickled_item(&snap->out, &snap->traces);
    gp_snapshot_pickled_list(&snap->out, &snap->entries);
}

static void snap_entry_put(struct gp_snap *snap, const struct gp_snap_entry *entry)
{
    snap->counts.entries++;
    gp_snapshot_pickled_item(&snap->out, &snap->entries);
    gp_snapshot_pickled_dict(&snap->out);
    snap_is(snap, GP_WORD_ACTION, entry->action);
    if (entry->action == GP_WORD_OOM)
        snap_number(snap, GP_WORD_DEVICE_FREE, (uint64_t)entry->device_free);
    else
        snap_number(snap, GP_WORD_ADDR, entry->address);
    snap_number(snap, GP_WORD_SIZE, entry->bytes);
    snap_number(snap, GP_WORD_STREAM, entry->stream);
    snap_number(snap, GP_WORD_TIME_US, (uint64_t)entry->time_us);
    if (entry->granted)
        snap_number(snap, GP_WORD_GRANTED, entry->granted);
    snap_frames(snap, entry->site);
    gp_snapshot_pickled_dict_end(&snap->out);
}

/* The entries before the limit's are not known to be among the last ones until the trace ends. */
static void snap_entry_keep(struct gp_snap *snap, const struct gp_snap_entry *entry)
{
    uint64_t limit = snap->names->limit;
    if (snap->kept == snap->kept_room && snap->kept_room < limit) {
        uint64_t room = snap->kept_room ? 2 * snap->kept_room : 4096;
        room = room < limit ? room : limit;
        struct gp_snap_entry *more = realloc(snap->keep, room * sizeof(*more));
        snap->keep_broken |= !more;
        if (!more)
            return;
        snap->keep = more;
        snap->kept_room = room;
    }
    if (limit)
        snap->keep[snap->kept % limit] = *entry;
    snap->kept++;
}

void gp_snap_entry(struct gp_snap *snap, const struct gp_snap_entry *entry)
{
    if (snap->names && snap->names->has_limit)
        snap_entry_keep(snap, entry);
    else
        snap_entry_put(snap, entry);
}

void gp_snap_trace_end(struct gp_snap *snap)
{
    uint64_t limit = snap->names ? snap->names->limit : 0, first = snap->kept > limit ? snap->kept - limit : 0;
    /* A trace never begins in the middle of a free. */
    if (first && first < snap->kept && snap->keep[first % limit].action == GP_WORD_FREE_COMPLETED)
        first++;
    for (uint64_t i = first; i < snap->kept && !snap->keep_broken; i++)
        snap_entry_put(snap, &snap->keep[i % limit]);
    snap->counts.left_out += first;
    snap->kept = 0;
    gp_snapshot_pickled_list_end(&snap->out, &snap->entries);
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

void gp_snap_host(struct gp_snap *snap)
{
    gp_snap_word(snap, GP_WORD_HOST_SEGMENTS);
    gp_snapshot_pickled_list(&snap->out, &snap->segments);
}

void gp_snap_host_trace(struct gp_snap *snap)
{
    gp_snapshot_pickled_list_end(&snap->out, &snap->segments);
    gp_snap_word(snap, GP_WORD_HOST_TRACES);
    gp_snapshot_pickled_list(&snap->out, &snap->entries);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void snap_flag(struct gp_snap *snap, const char *key, bool value)
{
    gp_snapshot_pickled_text(&snap->out, key);
    gp_snapshot_pickled_bool(&snap->out, value);
}

static void snap_setting(struct gp_snap *snap, const char *key, int64_t value)
{
    gp_snapshot_pickled_text(&snap->out, key);
    gp_snapshot_pickled_int(&snap->out, value);
}

/* PyTorch's sixteen powers of two; no division is configured for any of them. */
static void snap_divisions(struct gp_snap *snap)
{
    gp_snapshot_pickled_text(&snap->out, "roundup_power2_divisions");
    gp_snapshot_pickled_dict(&snap->out);
    for (unsigned i = 0; i < 16; i++) {
        char key[8];
        snprintf(key, sizeof(key), "%u", 1u << i);
        snap_setting(snap, key, 0);
    }
    gp_snapshot_pickled_dict_end(&snap->out);
}

void gp_snap_settings(struct gp_snap *snap, const struct gp_snap_settings *settings)
{
    gp_snapshot_pickled_list_end(&snap->out, &snap->traces);
    gp_snap_word(snap, GP_WORD_ALLOCATOR_SETTINGS);
    gp_snapshot_pickled_dict(&snap->out);
    gp_snapshot_pickled_text(&snap->out, "PYTORCH_CUDA_ALLOC_CONF");
    gp_snapshot_pickled_text(&snap->out, "");
    snap_setting(snap, "max_split_size", settings->split_limit);
    snap_setting(snap, "max_cached_size", -1);
    snap_setting(snap, "max_round_threshold", -1);
    gp_snapshot_pickled_text(&snap->out, "garbage_collection_threshold");
    gp_snapshot_pickled_float(&snap->out, 0);
    snap_flag(snap, "expandable_segments", settings->expandable);
    snap_setting(snap, "pinned_num_register_threads", 1);
    snap_flag(snap, "release_lock_on_cudamalloc", false);
    snap_flag(snap, "pinned_use_cuda_host_register", false);
    snap_flag(snap, "graph_capture_record_stream_reuse", false);
    snap_divisions(snap);
    gp_snapshot_pickled_text(&snap->out, "gpuprof_allocator");
    gp_snapshot_pickled_text(&snap->out, settings->allocator);
    gp_snapshot_pickled_dict_end(&snap->out);
}

void gp_snap_note(struct gp_snap *snap, struct gp_snapshot_pickled_list *list, const char *name, bool ends,
                  uint32_t device, int64_t time_us)
{
    snap->counts.annotations++;
    gp_snapshot_pickled_item(&snap->out, list);
    gp_snapshot_pickled_dict(&snap->out);
    snap_is(snap, GP_WORD_STAGE, ends ? GP_WORD_END : GP_WORD_START);
    gp_snap_word(snap, GP_WORD_NAME);
    snap_text(snap, name);
    snap_number(snap, GP_WORD_DEVICE, device);
    snap_number(snap, GP_WORD_TIME_US, (uint64_t)time_us);
    gp_snapshot_pickled_dict_end(&snap->out);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

struct gp_snap *gp_snap_open(int fd, const struct gp_snapshot_names *names)
{
    struct gp_snap *snap = calloc(1, sizeof(*snap));
    if (!snap)
        return NULL;
    snap->names = names;
    snap->memo = calloc(1, sizeof(*snap->memo));
    if (names && names->count)
        snap->sites = calloc(names->count, sizeof(*snap->sites));
    if (!snap->memo || (names && names->count && !snap->sites)) {
        free(snap->memo);
        free(snap->sites);
        free(snap);
        return NULL;
    }
    gp_snapshot_pickled_begin(&snap->out, fd);
    gp_snapshot_pickled_dict(&snap->out);
    gp_snap_word(snap, GP_WORD_SEGMENTS);
    gp_snapshot_pickled_list(&snap->out, &snap->segments);
    return snap;
}

int gp_snap_close(struct gp_snap *snap, struct gp_snapshot_counts *counts)
{
    gp_snapshot_pickled_dict_end(&snap->out);
    int rc = gp_snapshot_pickled_end(&snap->out);
    snap->counts.bytes = snap->out.written;
    if (counts)
        *counts = snap->counts;
    rc = rc ? rc : snap->aliases.broken || snap->places_broken || snap->keep_broken ? -ENOMEM : 0;
    gp_snap_places_free(snap);
    gp_ranges_free(&snap->aliases);
    memo_free(snap->memo);
    free(snap->sites);
    free(snap->keep);
    free(snap);
    return rc;
}
