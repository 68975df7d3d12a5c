/* SPDX-License-Identifier: MIT
 *
 * finish.c: establishes what recording.h promises and single blocks cannot provide: order, indexes
 * in range, one array of strings, and numbers of sites if the writer did not get to write them. See
 * reading.h.
 */
#include <read/recording/reading.h>

#include <base/text.h>
#include <errno.h>
#include <stdlib.h>

/* ---- order of events --------------------------------------------------------------------------------------------- */

/* Stable: equal times keep the order of the file. */
static int finish_sort(struct gp_rec_event *events, size_t count)
{
    struct gp_rec_event *other = malloc(count * sizeof(*other)), *from = events, *to = other;
    if (!other)
        return -ENOMEM;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t middle = at + width < count ? at + width : count;
            size_t end = at + 2 * width < count ? at + 2 * width : count;
            for (size_t left = at, right = middle, put = at; put < end; put++) {
                bool second = right < end && (left == middle || from[right].time_ns < from[left].time_ns);
                to[put] = from[second ? right++ : left++];
            }
        }
        struct gp_rec_event *swap = from;
        from = to;
        to = swap;
    }
    if (from != events)
        memcpy(events, from, count * sizeof(*events));
    free(other);
    return 0;
}

/* Takes out the few late events (their thread was stopped between its time stamp and the ring),
 * sorts them, and merges them in from the end: no second array of all events is needed. */
static int finish_order(struct gp_rec_event *events, size_t count)
{
    size_t late = 0, kept = 0;
    uint64_t newest = 0;
    for (size_t i = 0; i < count; i++) {
        late += events[i].time_ns < newest;
        newest = events[i].time_ns > newest ? events[i].time_ns : newest;
    }
    if (!late)
        return 0;
    struct gp_rec_event *out = malloc(late * sizeof(*out));
    if (!out)
        return -ENOMEM;
    newest = late = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].time_ns < newest) {
            out[late++] = events[i];
        } else {
            newest = events[i].time_ns;
            events[kept++] = events[i];
        }
    }
    int error = finish_sort(out, late);
    for (size_t to = count; late && !error; to--) {
        bool from_kept = kept && events[kept - 1].time_ns > out[late - 1].time_ns;
        events[to - 1] = from_kept ? events[--kept] : out[--late];
    }
    free(out);
    return error;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* Replaces every unprintable byte by '?', in place, so that offsets stay valid. */
static void finish_clean(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code = 0;
        size_t length = text[at] ? gp_utf8_decode((const unsigned char *)text + at, bytes - at, &code) : 1;
        if (text[at] && (!length || !gp_utf8_printable(code)))
            memset(text + at, '?', length ? length : 1);
        at += length ? length : 1;
    }
}

static uint32_t finish_offset(const struct gp_read *read, uint32_t offset, uint32_t base)
{
    bool inside = offset && offset < read->site_string_bytes;
    /* The offset must not point into the middle of a character. */
    return inside && ((unsigned char)read->site_strings[offset] & 0xc0) != 0x80 ? base + offset : 0;
}

/* Appends the strings of the site tables to the others. Only frames refer to them. */
static bool finish_strings(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    uint32_t base = r->string_bytes;
    size_t more = read->site_string_bytes ? read->site_string_bytes + 1 : 0;
    if (!GP_READ_ROOM(read, r->strings, read->strings_room, base + more, 2 * (size_t)GP_READ_STRINGS))
        return false;
    if (more) {
        finish_clean(read->site_strings, read->site_string_bytes);
        memcpy(r->strings + base, read->site_strings, read->site_string_bytes);
        r->strings[base + read->site_string_bytes] = '\0';
        r->string_bytes += (uint32_t)more;
    }
    for (uint32_t i = 0; i < r->frame_count; i++) {
        r->frames[i].function = finish_offset(read, r->frames[i].function, base);
        r->frames[i].file = finish_offset(read, r->frames[i].file, base);
    }
    r->comm = r->strings + read->comm;
    r->command_line = r->strings + read->command_line;
    r->host = r->strings + read->host;
    r->allocator = read->allocator ? r->strings + read->allocator : "off";
    return true;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static void finish_sites(struct gp_recording *r)
{
    /* The site of memory without a stack: no numbers, but it may have a name ("before stacks"). */
    r->sites[0] =
        (struct gp_rec_site){.first_frame = r->sites[0].first_frame, .frame_count = r->sites[0].frame_count == 1};
    for (uint32_t i = 0; i < r->site_count; i++) {
        struct gp_rec_site *site = &r->sites[i];
        if (site->first_frame > r->frame_count || site->frame_count > r->frame_count - site->first_frame)
            site->first_frame = site->frame_count = 0;
    }
    for (size_t i = 0; i < r->event_count; i++)
        if (r->events[i].site >= r->site_count)
            r->events[i].site = 0;
    for (size_t i = 0; i < r->baseline_count; i++)
        if (r->baseline[i].site >= r->site_count)
            r->baseline[i].site = 0;
    for (size_t i = 0; i < r->sleep_count; i++)
        if (r->sleeps[i].site >= r->site_count)
            r->sleeps[i].site = 0;
    if (r->oom.site >= r->site_count)
        r->oom.site = 0;
    for (uint32_t i = 0; r->has_oom && i < r->oom.holder_count; i++)
        if (r->oom.holders[i].site >= r->site_count)
            r->oom.holders[i].site = 0;
}

/* A handle of cuMemCreate has a site, other segments have none. An event whose size would overflow a
 * sum is left out: only a hostile file has one. */
static void finish_site_move(struct gp_rec_site *site, const struct gp_rec_event *event)
{
    bool handle = event->kind == GP_KIND_VMM;
    if (event->type == GP_EVENT_ALLOC || (handle && event->type == GP_EVENT_SEGMENT_ALLOC)) {
        int64_t sum;
        if (__builtin_add_overflow(site->allocated_bytes, event->bytes, &sum))
            return;
        site->allocated_bytes = sum;
        site->live_bytes += (int64_t)event->bytes; /* never above the allocated bytes */
        site->live_count++;
        site->calls++;
        site->peak_bytes = site->live_bytes > site->peak_bytes ? site->live_bytes : site->peak_bytes;
    } else if (event->type == GP_EVENT_FREE || (handle && event->type == GP_EVENT_SEGMENT_FREE)) {
        int64_t rest;
        if (__builtin_sub_overflow(site->live_bytes, event->bytes, &rest))
            return;
        site->live_bytes = rest;
        site->live_count--;
    }
}

/* For a cut recording: computes the numbers of the sites from the events. The bytes at the device's
 * peak cannot be computed. */
static void finish_site_numbers(struct gp_recording *r)
{
    for (size_t i = 0; i < r->baseline_count; i++)
        finish_site_move(&r->sites[r->baseline[i].site], &r->baseline[i]);
    for (size_t i = 0; i < r->event_count; i++)
        finish_site_move(&r->sites[r->events[i].site], &r->events[i]);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void finish_counts(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    uint64_t last = r->event_count ? r->events[r->event_count - 1].time_ns : r->begin_ns;
    if (!r->complete && r->event_count > r->delivered) { /* a cut file with blocks after the last count */
        r->tried += r->event_count - r->delivered;
        r->delivered = r->event_count;
    }
    if (!read->has_process)
        r->begin_ns = r->event_count ? r->events[0].time_ns : 0;
    if (!read->has_counts || (!r->complete && last > r->end_ns))
        r->end_ns = last;
    r->stopped_ns = r->end_ns;
}

/* If no event was written after the first that could not be, the recorded time ends there: what the
 * program did later is unknown, and a sample from its end would be a false last value. */
static void finish_end(struct gp_recording *r)
{
    uint64_t last = r->event_count ? r->events[r->event_count - 1].time_ns : r->begin_ns;
    r->ended_early &= r->write_error_ns <= r->end_ns && r->delivered == r->event_count;
    if (!r->ended_early)
        return;
    r->end_ns = r->write_error_ns > last ? r->write_error_ns : last; /* threads' events mix at the seam */
    while (r->sample_count && r->samples[r->sample_count - 1].time_ns > r->end_ns)
        r->sample_count--;
}

static int finish_sleeps(const void *one, const void *other)
{
    const struct gp_rec_sleep *a = one, *b = other;
    return a->time_ns != b->time_ns ? (a->time_ns > b->time_ns ? 1 : -1) : (int)a->what - (int)b->what;
}

static int finish_samples(const void *one, const void *other)
{
    const struct gp_rec_sample *a = one, *b = other;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

static int finish_names(const void *one, const void *other)
{
    const struct gp_rec_name *a = one, *b = other;
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    if (a->pc != b->pc)
        return a->pc < b->pc ? -1 : 1;
    return a->depth < b->depth ? -1 : a->depth > b->depth;
}

int gp_read_finish(struct gp_read *read)
{
    struct gp_recording *r = read->recording;
    int error = finish_order(r->events, r->event_count);
    if (!error)
        error = finish_order(r->baseline, r->baseline_count);
    if (error)
        return error;
    if (!finish_strings(read) ||
        !GP_READ_ROOM(read, r->sites, read->sites_room, r->site_count ? r->site_count : 1, GP_READ_ROWS))
        return read->error;
    r->site_count += r->site_count == 0;
    finish_sites(r);
    if (!read->has_numbers)
        finish_site_numbers(r);
    finish_counts(read);
    if (r->sample_count)
        qsort(r->samples, r->sample_count, sizeof(*r->samples), finish_samples);
    if (r->sleep_count)
        qsort(r->sleeps, r->sleep_count, sizeof(*r->sleeps), finish_sleeps);
    if (r->name_count)
        qsort(r->names, r->name_count, sizeof(*r->names), finish_names);
    finish_end(r);
    error = gp_read_imports(r);
    if (error)
        return error;
    r->peer = malloc((r->event_count + 1) * sizeof(*r->peer));
    return r->peer ? gp_recording_match(r) : -ENOMEM;
}
