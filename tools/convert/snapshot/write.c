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

/* A word that was not written before, or is none of the first 256 values. */
static uint8_t *word_rare(struct gp_snap *snap, uint8_t *at, enum gp_word word)
{
    uint32_t memo;
    if (snap->words[word])
        return gp_pickled_again(at, snap->words[word] - 1);
    at = gp_pickled_remember(&snap->out, gp_snapshot_pickled_text(&snap->out, at, key_words[word]), &memo);
    snap->words[word] = memo + 1;
    return at;
}

static inline uint8_t *snap_word(struct gp_snap *snap, uint8_t *at, enum gp_word word)
{
    uint32_t memo = snap->words[word] - 1;
    if (__builtin_expect(memo > UINT8_MAX, 0))
        return word_rare(snap, at, word);
    return gp_pickled_again(at, memo);
}

uint8_t *gp_snap_word(struct gp_snap *snap, uint8_t *at, enum gp_word word)
{
    return snap_word(snap, at, word);
}

static inline uint8_t *snap_number(struct gp_snap *snap, uint8_t *at, enum gp_word key, uint64_t value)
{
    return gp_pickled_int(snap_word(snap, at, key), (int64_t)value);
}

static inline uint8_t *snap_is(struct gp_snap *snap, uint8_t *at, enum gp_word key, enum gp_word value)
{
    return snap_word(snap, snap_word(snap, at, key), value);
}

/* ---- what was written before ------------------------------------------------------------------------------------- */

/* Writes a reference if the text was written before, else returns NULL. */
static uint8_t *memo_again(struct gp_snap *snap, uint8_t *at, const char *text)
{
    uint32_t number;
    if (!gp_hash_keys_find(&snap->memo->texts, text, strlen(text), &number))
        return NULL;
    return gp_pickled_again(at, snap->memo->memos[number]);
}

/* Remembers the value just written for this text.  Without memory the text is written again next
 * time. */
static uint8_t *memo_keep(struct gp_snap *snap, uint8_t *at, const char *text)
{
    struct gp_snap_memo *memo = snap->memo;
    uint32_t number, count = memo->texts.map.count;
    bool is_new;
    if (count == memo->room) {
        uint32_t room = memo->room ? 2 * memo->room : 1024;
        uint32_t *memos = room <= GP_SNAP_MEMOS ? realloc(memo->memos, room * sizeof(memos[0])) : NULL;
        if (!memos)
            return at;
        memo->memos = memos;
        memo->room = room;
    }
    if (gp_hash_keys_number(&memo->texts, text, strlen(text), &number, &is_new) == 0 && is_new)
        at = gp_pickled_remember(&snap->out, at, &memo->memos[number]);
    return at;
}

static void memo_free(struct gp_snap_memo *memo)
{
    gp_hash_keys_free(&memo->texts);
    free(memo->memos);
    free(memo);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static uint8_t *snap_text(struct gp_snap *snap, uint8_t *at, const char *text)
{
    uint8_t *again = memo_again(snap, at, text);
    return again ? again : memo_keep(snap, gp_snapshot_pickled_text(&snap->out, at, text), text);
}

static uint8_t *snap_frame(struct gp_snap *snap, uint8_t *at, const struct gp_frame_text *frame)
{
    char key[512];
    const char *file = frame->file[0] ? frame->file : frame->module;
    /* The unit separator occurs in no typed name.  A frame whose key does not fit is written each
     * time. */
    int length = snprintf(key, sizeof(key), "\x1f%u\x1f%s\x1f%s", frame->line, frame->function, file);
    bool fits = length > 0 && (size_t)length < sizeof(key);
    uint8_t *again = fits ? memo_again(snap, at, key) : NULL;
    if (again)
        return again;
    at = snap_word(snap, gp_pickled_dict(at), GP_WORD_NAME);
    at = snap_text(snap, at, frame->function);
    at = snap_word(snap, at, GP_WORD_FILENAME);
    at = snap_text(snap, at, file);
    at = gp_pickled_dict_end(snap_number(snap, at, GP_WORD_LINE, frame->line));
    return fits ? memo_keep(snap, at, key) : at;
}

/* Ends the part, and begins another. */
static uint8_t *frames_first(struct gp_snap *snap, uint8_t *at, uint32_t site)
{
    const struct gp_frame_text *frames = NULL;
    struct gp_snapshot_pickled_list list;
    uint32_t memo, count = snap->names->frames(snap->names->symbols, site, &frames);
    at = gp_pickled_list(at, &list);
    for (uint32_t i = 0; i < count; i++) {
        at = snap_frame(snap, gp_pickled_item(at, &list), &frames[i]);
        gp_pickled_part_end(&snap->out, at);
        at = gp_pickled_part(&snap->out);
    }
    at = gp_pickled_remember(&snap->out, gp_pickled_list_end(at, &list), &memo);
    snap->sites[site] = memo + 1;
    return at;
}

static inline uint8_t *snap_frames(struct gp_snap *snap, uint8_t *at, uint32_t site)
{
    at = snap_word(snap, at, GP_WORD_FRAMES);
    if (site == 0 || !snap->sites || site >= snap->names->count)
        return gp_pickled_op(at, ']');
    return snap->sites[site] ? gp_pickled_again(at, snap->sites[site] - 1) : frames_first(snap, at, site);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* The pair that PyTorch shows: pools of its graphs carry both halves in one number
 * (allocator/torch.c), others have one half. */
#define GP_SNAP_TORCH_POOL (1ull << 63)

static uint8_t *snap_pool(struct gp_snap *snap, uint8_t *at, uint64_t pool)
{
    bool torch = pool & GP_SNAP_TORCH_POOL;
    at = snap_word(snap, at, GP_WORD_SEGMENT_POOL_ID);
    at = gp_pickled_int(at, torch ? (int64_t)(pool >> 32 & 0x7fffffff) : 0);
    at = gp_pickled_int(at, torch ? (int64_t)(pool & 0xffffffff) : (int64_t)pool);
    return gp_pickled_op(at, '\x86');
}

/* The keys of a segment before its address, and between that and its blocks. */
static uint8_t *segment_begin(struct gp_snap *snap, uint8_t *at, const struct gp_snap_segment *segment)
{
    int64_t device = segment->device == GP_WIRE_HOST ? -1 : (int64_t)segment->device; /* -1: as PyTorch's */
    at = snap_number(snap, gp_pickled_dict(at), GP_WORD_DEVICE, (uint64_t)device);
    return snap_word(snap, at, GP_WORD_ADDRESS);
}

static uint8_t *segment_rest(struct gp_snap *snap, uint8_t *at, const struct gp_snap_segment *segment)
{
    at = snap_number(snap, at, GP_WORD_STREAM, segment->stream);
    at = snap_is(snap, at, GP_WORD_SEGMENT_TYPE, segment->small ? GP_WORD_SMALL : GP_WORD_LARGE);
    at = snap_pool(snap, at, segment->pool);
    at = gp_pickled_bool(snap_word(snap, at, GP_WORD_IS_EXPANDABLE), segment->expandable);
    at = snap_frames(snap, at, segment->site);
    return gp_pickled_list(snap_word(snap, at, GP_WORD_BLOCKS), &snap->blocks);
}

void gp_snap_segment(struct gp_snap *snap, const struct gp_snap_segment *segment)
{
    uint8_t *at = gp_pickled_part(&snap->out);
    snap->counts.segments++;
    snap->total_bytes = snap->allocated_bytes = snap->active_bytes = snap->requested_bytes = 0;
    at = segment_begin(snap, gp_pickled_item(at, &snap->segments), segment);
    at = segment_rest(snap, gp_pickled_int(at, (int64_t)segment->address), segment);
    gp_pickled_part_end(&snap->out, at);
}

static inline uint64_t block_requested(const struct gp_snap_block *block)
{
    bool active = block->state != GPUPROF_IDLE;
    return active && block->requested_bytes <= block->bytes ? block->requested_bytes : 0;
}

static inline void block_sum(struct gp_snap *snap, const struct gp_snap_block *block)
{
    snap->counts.blocks++;
    snap->total_bytes += block->bytes;
    snap->allocated_bytes += block->state == GPUPROF_LIVE ? block->bytes : 0;
    snap->active_bytes += block->state != GPUPROF_IDLE ? block->bytes : 0;
    snap->requested_bytes += block_requested(block);
}

/* The key of its address, its sizes, and what follows them. */
static inline uint8_t *block_begin(struct gp_snap *snap, uint8_t *at)
{
    return snap_word(snap, gp_pickled_dict(gp_pickled_item(at, &snap->blocks)), GP_WORD_ADDRESS);
}

static inline uint8_t *block_sizes(struct gp_snap *snap, uint8_t *at, const struct gp_snap_block *block)
{
    at = gp_pickled_int(at, (int64_t)block->address);
    at = snap_number(snap, at, GP_WORD_SIZE, block->bytes);
    return snap_number(snap, at, GP_WORD_REQUESTED_SIZE, block_requested(block));
}

static inline uint8_t *block_rest(struct gp_snap *snap, uint8_t *at, const struct gp_snap_block *block)
{
    static const enum gp_word states[] = {
        [GPUPROF_LIVE] = GP_WORD_ACTIVE_ALLOCATED,
        [GPUPROF_WAITING] = GP_WORD_ACTIVE_PENDING_FREE,
        [GPUPROF_IDLE] = GP_WORD_INACTIVE,
    };
    at = snap_is(snap, at, GP_WORD_STATE, states[block->state]);
    return gp_pickled_dict_end(snap_frames(snap, at, block->site));
}

void gp_snap_block(struct gp_snap *snap, const struct gp_snap_block *block)
{
    uint8_t *at = block_begin(snap, gp_pickled_part(&snap->out));
    block_sum(snap, block);
    gp_pickled_part_end(&snap->out, block_rest(snap, block_sizes(snap, at, block), block));
}

/* The other sums of a segment, behind the total. */
static inline uint8_t *segment_sums(struct gp_snap *snap, uint8_t *at)
{
    at = snap_number(snap, at, GP_WORD_ALLOCATED_SIZE, snap->allocated_bytes);
    at = snap_number(snap, at, GP_WORD_ACTIVE_SIZE, snap->active_bytes);
    at = snap_number(snap, at, GP_WORD_REQUESTED_SIZE, snap->requested_bytes);
    return gp_pickled_dict_end(at);
}

void gp_snap_segment_end(struct gp_snap *snap)
{
    uint8_t *at = gp_pickled_list_end(gp_pickled_part(&snap->out), &snap->blocks);
    at = snap_number(snap, at, GP_WORD_TOTAL_SIZE, snap->total_bytes);
    gp_pickled_part_end(&snap->out, segment_sums(snap, at));
}

/* ---- segments of one block --------------------------------------------------------------------------------------- */

/* A program without a caching allocator has nothing else, 10^6 of them at times, and most differ from the one before in
 * addresses and sizes alone. */

static inline bool alike_is(const struct gp_snap_alike *alike, const struct gp_snap_segment *segment,
                            const struct gp_snap_block *block)
{
    return alike->bytes[0] && alike->segment.stream == segment->stream && alike->segment.pool == segment->pool &&
           alike->segment.device == segment->device && alike->segment.site == segment->site &&
           alike->segment.small == segment->small && alike->segment.expandable == segment->expandable &&
           alike->site == block->site && alike->state == block->state;
}

static bool alike_site(const struct gp_snap *snap, uint32_t site)
{
    return site == 0 || !snap->sites || site >= snap->names->count || snap->sites[site];
}

/* After one was written: all its words and frames can be named again, if there was memory to remember them. */
static void alike_make(struct gp_snap *snap, const struct gp_snap_segment *segment, const struct gp_snap_block *block)
{
    struct gp_snap_alike *alike = &snap->alike;
    struct gp_pickled *out = &snap->out;
    uint8_t *ends[3], *at = gp_pickled_part(out), *begin = at;
    memset(alike->bytes, 0, sizeof(alike->bytes));
    if (!alike_site(snap, segment->site) || !alike_site(snap, block->site))
        return;
    /* It is written behind the file's bytes, where the next part overwrites it. */
    ends[0] = segment_begin(snap, at, segment);
    ends[1] = block_begin(snap, segment_rest(snap, ends[0], segment));
    at = gp_pickled_list_end(block_rest(snap, ends[1], block), &snap->blocks);
    ends[2] = snap_word(snap, at, GP_WORD_TOTAL_SIZE);
    for (unsigned i = 0; i < 3; begin = ends[i++]) {
        if (ends[i] - begin > GP_SNAP_ALIKE) {
            memset(alike->bytes, 0, sizeof(alike->bytes));
            return;
        }
        memcpy(alike->parts[i], begin, GP_SNAP_ALIKE);
        alike->bytes[i] = (uint8_t)(ends[i] - begin);
    }
    alike->segment = *segment;
    alike->site = block->site;
    alike->state = block->state;
}

/* All bytes of a part are copied, since that takes fewer instructions; the next part overwrites those that do not count. */
static inline uint8_t *alike_put(const struct gp_snap_alike *alike, unsigned part, uint8_t *at)
{
    memcpy(at, alike->parts[part], GP_SNAP_ALIKE);
    return at + alike->bytes[part];
}

void gp_snap_whole(struct gp_snap *snap, const struct gp_snap_segment *segment, const struct gp_snap_block *block)
{
    const struct gp_snap_alike *alike = &snap->alike;
    if (!alike_is(alike, segment, block)) {
        gp_snap_segment(snap, segment);
        gp_snap_block(snap, block);
        gp_snap_segment_end(snap);
        alike_make(snap, segment, block);
        return;
    }
    uint8_t *at = gp_pickled_item(gp_pickled_part(&snap->out), &snap->segments);
    snap->counts.segments++;
    snap->total_bytes = snap->allocated_bytes = snap->active_bytes = snap->requested_bytes = 0;
    block_sum(snap, block);
    at = gp_pickled_int(alike_put(alike, 0, at), (int64_t)segment->address);
    at = block_sizes(snap, alike_put(alike, 1, at), block);
    at = gp_pickled_int(alike_put(alike, 2, at), (int64_t)snap->total_bytes);
    gp_pickled_part_end(&snap->out, segment_sums(snap, at));
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

void gp_snap_traces(struct gp_snap *snap)
{
    uint8_t *at = gp_pickled_list_end(gp_pickled_part(&snap->out), &snap->segments);
    at = gp_pickled_list(snap_word(snap, at, GP_WORD_DEVICE_TRACES), &snap->traces);
    gp_pickled_part_end(&snap->out, at);
}

void gp_snap_trace(struct gp_snap *snap)
{
    uint8_t *at = gp_pickled_item(gp_pickled_part(&snap->out), &snap->traces);
    gp_pickled_part_end(&snap->out, gp_pickled_list(at, &snap->entries));
}

static void snap_entry_put(struct gp_snap *snap, const struct gp_snap_entry *entry)
{
    uint8_t *at = gp_pickled_part(&snap->out);
    snap->counts.entries++;
    at = gp_pickled_dict(gp_pickled_item(at, &snap->entries));
    at = snap_is(snap, at, GP_WORD_ACTION, entry->action);
    if (entry->action == GP_WORD_OOM)
        at = snap_number(snap, at, GP_WORD_DEVICE_FREE, (uint64_t)entry->device_free);
    else
        at = snap_number(snap, at, GP_WORD_ADDR, entry->address);
    at = snap_number(snap, at, GP_WORD_SIZE, entry->bytes);
    at = snap_number(snap, at, GP_WORD_STREAM, entry->stream);
    at = snap_number(snap, at, GP_WORD_TIME_US, (uint64_t)entry->time_us);
    if (entry->granted)
        at = snap_number(snap, at, GP_WORD_GRANTED, entry->granted);
    at = snap_frames(snap, at, entry->site);
    gp_pickled_part_end(&snap->out, gp_pickled_dict_end(at));
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
    gp_pickled_part_end(&snap->out, gp_pickled_list_end(gp_pickled_part(&snap->out), &snap->entries));
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

void gp_snap_host(struct gp_snap *snap)
{
    uint8_t *at = snap_word(snap, gp_pickled_part(&snap->out), GP_WORD_HOST_SEGMENTS);
    gp_pickled_part_end(&snap->out, gp_pickled_list(at, &snap->segments));
}

void gp_snap_host_trace(struct gp_snap *snap)
{
    uint8_t *at = gp_pickled_list_end(gp_pickled_part(&snap->out), &snap->segments);
    at = gp_pickled_list(snap_word(snap, at, GP_WORD_HOST_TRACES), &snap->entries);
    gp_pickled_part_end(&snap->out, at);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* Each key is text, which begins a part. */
static uint8_t *snap_flag(struct gp_snap *snap, uint8_t *at, const char *key, bool value)
{
    return gp_pickled_bool(gp_snapshot_pickled_text(&snap->out, at, key), value);
}

static uint8_t *snap_setting(struct gp_snap *snap, uint8_t *at, const char *key, int64_t value)
{
    return gp_pickled_int(gp_snapshot_pickled_text(&snap->out, at, key), value);
}

/* PyTorch's sixteen powers of two; no division is configured for any of them. */
static uint8_t *snap_divisions(struct gp_snap *snap, uint8_t *at)
{
    at = gp_pickled_dict(gp_snapshot_pickled_text(&snap->out, at, "roundup_power2_divisions"));
    for (unsigned i = 0; i < 16; i++) {
        char key[8];
        snprintf(key, sizeof(key), "%u", 1u << i);
        at = snap_setting(snap, at, key, 0);
    }
    return gp_pickled_dict_end(at);
}

void gp_snap_settings(struct gp_snap *snap, const struct gp_snap_settings *settings)
{
    uint8_t *at = gp_pickled_list_end(gp_pickled_part(&snap->out), &snap->traces);
    at = gp_pickled_dict(snap_word(snap, at, GP_WORD_ALLOCATOR_SETTINGS));
    at = gp_snapshot_pickled_text(&snap->out, at, "PYTORCH_CUDA_ALLOC_CONF");
    at = gp_snapshot_pickled_text(&snap->out, at, "");
    at = snap_setting(snap, at, "max_split_size", settings->split_limit);
    at = snap_setting(snap, at, "max_cached_size", -1);
    at = snap_setting(snap, at, "max_round_threshold", -1);
    at = gp_snapshot_pickled_text(&snap->out, at, "garbage_collection_threshold");
    at = gp_pickled_number(at, 'G', 0, 8); /* 0.0 */
    at = snap_flag(snap, at, "expandable_segments", settings->expandable);
    at = snap_setting(snap, at, "pinned_num_register_threads", 1);
    at = snap_flag(snap, at, "release_lock_on_cudamalloc", false);
    at = snap_flag(snap, at, "pinned_use_cuda_host_register", false);
    at = snap_flag(snap, at, "graph_capture_record_stream_reuse", false);
    at = snap_divisions(snap, at);
    at = gp_snapshot_pickled_text(&snap->out, at, "gpuprof_allocator");
    at = gp_snapshot_pickled_text(&snap->out, at, settings->allocator);
    gp_pickled_part_end(&snap->out, gp_pickled_dict_end(at));
}

void gp_snap_note(struct gp_snap *snap, struct gp_snapshot_pickled_list *list, const char *name, bool ends,
                  uint32_t device, int64_t time_us)
{
    uint8_t *at = gp_pickled_part(&snap->out);
    snap->counts.annotations++;
    at = gp_pickled_dict(gp_pickled_item(at, list));
    at = snap_is(snap, at, GP_WORD_STAGE, ends ? GP_WORD_END : GP_WORD_START);
    at = snap_text(snap, snap_word(snap, at, GP_WORD_NAME), name);
    at = snap_number(snap, at, GP_WORD_DEVICE, device);
    at = snap_number(snap, at, GP_WORD_TIME_US, (uint64_t)time_us);
    gp_pickled_part_end(&snap->out, gp_pickled_dict_end(at));
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
    uint8_t *at = snap_word(snap, gp_pickled_dict(gp_pickled_part(&snap->out)), GP_WORD_SEGMENTS);
    gp_pickled_part_end(&snap->out, gp_pickled_list(at, &snap->segments));
    return snap;
}

int gp_snap_close(struct gp_snap *snap, struct gp_snapshot_counts *counts)
{
    gp_pickled_part_end(&snap->out, gp_pickled_dict_end(gp_pickled_part(&snap->out)));
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
