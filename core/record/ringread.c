/* SPDX-License-Identifier: MIT
 *
 * ringread.c: reads an event ring. It uses no word before it is copied and checked, and never waits
 * for the writer. docs/understand/ring.md has a picture and the argument.
 *
 * A chunk is copied in three steps: load `state`; copy written_before and the new events; load
 * `state` again. If both loads show the same turn, the words in between belong to that turn: events
 * below the first load's count were committed before it and stay until the turn changes. Partners in
 * core/base/ring.c:
 *
 *      [ring.A1] the first load                  pairs with [ring.R1] the commit
 *      [ring.A2] the copy, [ring.A3] the second  pairs with [ring.R2] event words and [ring.R3] the swap
 *      [ring.H] every load after the horizon     pairs with [ring.F] the last commit of a chunk
 *
 * Between two preads the kernel provides the order: it takes and drops a reference on the page,
 * which is a barrier on every machine that it supports.
 */
#include "record/ringread.h"
#include "base/text.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An attempt takes about a microsecond and fails only if the writers wrapped around to this chunk
 * meanwhile. A second failure is rare, and a fifth means a ring much too small for its writers. */
#define GP_RINGREAD_TRIES 4
/* When only counts are read, an attempt is much shorter, and no later poll can make up for it. */
#define GP_RINGREAD_TRIES_LATE 64

/* The deadline is checked once per this many chunks, which take some 50 us. */
#define GP_RINGREAD_ASK 64u

/* Every chunk of a ring up to this size is visited. In a larger one (a recorder's), only chunks
 * that can have changed are: those that are not full, and those from the frontier on, up to a run
 * of GP_RINGREAD_GAP unused chunks. A thread that was stopped while it took a chunk leaves a gap of
 * one chunk, which the next poll sees. */
#define GP_RINGREAD_WHOLE      512u
#define GP_RINGREAD_GAP        64u
#define GP_RINGREAD_GAP_AT_END 1024u /* in the last poll */

struct gp_ringread_chunk { /* the reader's state of one chunk */
    uint64_t turn;
    uint64_t total; /* events of this chunk counted so far: earlier turns and `count` of this one */
    uint32_t count;
    bool known; /* visited before */
    bool damaged;
};

struct gp_ringread_look {
    uint64_t turn;
    uint32_t count;
};

struct gp_ringread {
    gp_ringread_fn copy;
    void *arg;
    uint32_t chunk_count;
    enum gp_ringread_start start;
    struct gp_ringread_stats stats;
    struct gp_wire_event *events; /* the `given` events of the last poll, then `held` ones */
    struct gp_order_key *keys;    /* two per event of `room`, behind the events */
    size_t given, held, room;
    uint64_t newest; /* highest turn seen */
    uint64_t now;    /* GP_RINGREAD_NOW: the highest turn when the reader was created */
    bool (*late)(void *arg);
    void *late_arg;
    bool is_late;
    bool is_begun; /* set after the first scan: a chunk first seen later is new as a whole */
    bool is_polled;
    size_t bytes; /* of this struct */
    int fd;
    uint64_t fd_offset;
    struct gp_wire_chunk copied;
    struct gp_ringread_chunk chunks[];
};

static int ringread_pread(void *arg, void *into, size_t bytes, uint64_t offset)
{
    const struct gp_ringread *reader = arg;
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(reader->fd, (char *)into + done, bytes - done, (off_t)(reader->fd_offset + offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -EPROTO;
        done += (size_t)got;
    }
    return 0;
}

/* Loads and checks the state word. 0; 1: it is malformed; -errno. */
static int ringread_look(struct gp_ringread *reader, uint32_t index, struct gp_ringread_look *look)
{
    uint64_t state;
    int rc = reader->copy(reader->arg, &state, sizeof state, (uint64_t)index * sizeof(struct gp_wire_chunk));
    if (rc < 0)
        return rc;
    look->turn = GP_CHUNK_TURN(state);
    look->count = GP_CHUNK_COUNT(state);
    if (look->turn == 0)
        return state != 0;
    return look->count > GP_RING_EVENTS || ((look->turn - 1) & (reader->chunk_count - 1)) != index;
}

/* Whether `look` can follow the known state: turns rise, and counts within a turn rise. */
static bool ringread_follows(const struct gp_ringread_chunk *known, const struct gp_ringread_look *look)
{
    if (!known->known)
        return true;
    return look->turn > known->turn || (look->turn == known->turn && look->count >= known->count);
}

/* Whether `before` can be the number of events of this chunk's earlier turns. This also keeps every
 * sum here far below 2^64. */
static bool ringread_plausible(const struct gp_ringread *reader, const struct gp_ringread_chunk *known, uint64_t turn,
                               uint64_t before)
{
    uint64_t earlier_turns = turn ? (turn - 1) / reader->chunk_count : 0;
    return before <= earlier_turns * GP_RING_EVENTS && (!known->known || before >= known->total);
}

static bool ringread_check(struct gp_wire_event *event, uint64_t seq)
{
    if (event->seq != seq || event->type == GP_EVENT_NONE || event->type >= GP_EVENT_TYPES || event->kind >= GP_KINDS)
        return false;
    if (event->device >= GP_WIRE_DEVICES && event->device != UINT8_MAX)
        return false;
    if (event->type == GP_EVENT_MARK) {
        char name[sizeof event->name] = "";
        gp_text_clean(name, sizeof name, event->name, sizeof event->name);
        memcpy(event->name, name, sizeof name);
    }
    return true;
}

/* mmap, because the recorder runs in profiled processes, where malloc must not be called. Pages
 * take memory only when they are used. */
static void *ringread_map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

#define GP_RINGREAD_ROW (sizeof(struct gp_wire_event) + 2 * sizeof(struct gp_order_key))

static int ringread_reserve(struct gp_ringread *reader, size_t more)
{
    size_t need = reader->given + reader->held + more;
    if (need <= reader->room)
        return 0;
    /* Twice the room is enough: what is added at a time is a chunk's events. */
    size_t room = reader->room ? reader->room * 2 : 16 * GP_RING_EVENTS;
    struct gp_wire_event *events = ringread_map(room * GP_RINGREAD_ROW);
    if (!events)
        return -ENOMEM;
    if (reader->room) {
        memcpy(events, reader->events, (reader->given + reader->held) * sizeof *events);
        munmap(reader->events, reader->room * GP_RINGREAD_ROW);
    }
    reader->events = events;
    reader->keys = (struct gp_order_key *)(void *)(events + room);
    reader->room = room;
    return 0;
}

static void ringread_damage(struct gp_ringread *reader, struct gp_ringread_chunk *known)
{
    known->damaged = true;
    reader->stats.damaged_chunks++;
}

/* Whether the chunk's events so far are skipped, because the reader starts now. Chunks of later turns
 * are read as a whole, so that what is read of each thread has no gap: while the chunks are visited,
 * a thread goes from one to the next. */
static bool ringread_skips(const struct gp_ringread *reader, const struct gp_ringread_chunk *known, uint64_t turn)
{
    return !known->known && reader->start == GP_RINGREAD_NOW && !reader->is_begun && turn <= reader->now;
}

/* Takes a consistent copy of the events [from, look->count) of one turn, or with count_only just
 * counts them. written_before counts if the turn is new to this reader. */
static void ringread_accept(struct gp_ringread *reader, struct gp_ringread_chunk *known,
                            const struct gp_ringread_look *look, uint32_t from, bool count_only)
{
    if (!known->known || look->turn != known->turn) {
        uint64_t before = look->turn ? reader->copied.written_before : 0;
        if (!ringread_plausible(reader, known, look->turn, before)) {
            ringread_damage(reader, known);
            return;
        }
        if (known->known)
            reader->stats.overwritten += before - known->total;
        else
            reader->stats.before += before;
        known->total = before;
    }
    bool skip = ringread_skips(reader, known, look->turn);
    for (uint32_t i = from; i < look->count; i++) {
        struct gp_wire_event *event = &reader->copied.events[i];
        if (skip)
            reader->stats.before++;
        else if (count_only)
            reader->stats.left++;
        else if (ringread_check(event, (look->turn - 1) * GP_RING_EVENTS + i))
            reader->events[reader->given + reader->held++] = *event;
        else
            reader->stats.damaged++;
    }
    known->total += look->count - from;
    known->turn = look->turn;
    known->count = look->count;
    known->known = true;
}

/* One attempt. 0: done; 1: the chunk changed meanwhile; -errno. */
static int ringread_try(struct gp_ringread *reader, uint32_t index, bool count_only)
{
    struct gp_ringread_chunk *known = &reader->chunks[index];
    struct gp_ringread_look first, second;
    int rc = ringread_look(reader, index, &first);
    if (rc < 0)
        return rc;
    if (rc > 0 || !ringread_follows(known, &first)) {
        ringread_damage(reader, known);
        return 0;
    }
    bool same = known->known && first.turn == known->turn;
    uint32_t from = same ? known->count : 0;
    if (same && first.count == from)
        return 0;
    /* A new turn needs written_before too; it lies in front of the events, and one copy is cheaper
     * than two. */
    bool header = count_only || ringread_skips(reader, known, first.turn);
    size_t start = same ? offsetof(struct gp_wire_chunk, events[from]) : offsetof(struct gp_wire_chunk, written_before);
    size_t end = offsetof(struct gp_wire_chunk, events[first.count]);
    if (header)
        end = same ? start : offsetof(struct gp_wire_chunk, tid);
    rc = ringread_reserve(reader, header ? 0 : first.count);
    if (rc == 0 && end > start)
        rc = reader->copy(reader->arg, (char *)&reader->copied + start, end - start,
                          (uint64_t)index * sizeof(struct gp_wire_chunk) + start);
    if (rc == 0)
        rc = ringread_look(reader, index, &second);
    if (rc < 0)
        return rc;
    if (rc > 0) {
        ringread_damage(reader, known);
        return 0;
    }
    if (second.turn != first.turn)
        return 1;
    ringread_accept(reader, known, &first, from, count_only);
    return 0;
}

static int ringread_visit(struct gp_ringread *reader, uint32_t index)
{
    struct gp_ringread_chunk *known = &reader->chunks[index];
    int rc = 1, most = reader->is_late ? GP_RINGREAD_TRIES_LATE : GP_RINGREAD_TRIES;
    if (!reader->is_late && reader->late && index % GP_RINGREAD_ASK == 0)
        reader->is_late = reader->late(reader->late_arg);
    for (int attempt = 0; rc == 1 && attempt < most && !known->damaged; attempt++)
        rc = ringread_try(reader, index, reader->is_late);
    if (rc < 0)
        return rc;
    if (rc == 1 && !known->damaged)
        reader->stats.unsettled++;
    if (known->turn > reader->newest)
        reader->newest = known->turn;
    return 0;
}

/* Visits the frontier: the chunks from the newest turn on. */
static int ringread_ahead(struct gp_ringread *reader, uint32_t gap_limit)
{
    uint32_t gap = 0;
    for (uint32_t i = 0; i < reader->chunk_count && gap < gap_limit; i++) {
        uint32_t index = (uint32_t)(reader->newest + gap) & (reader->chunk_count - 1);
        uint64_t before = reader->newest;
        int rc = ringread_visit(reader, index);
        if (rc < 0)
            return rc;
        gap = reader->newest > before ? 0 : gap + 1;
    }
    return 0;
}

/* Whether a chunk needs no visit: a full chunk keeps its turn until the frontier wraps around to
 * it. */
static bool ringread_closed(const struct gp_ringread *reader, uint32_t index)
{
    const struct gp_ringread_chunk *known = &reader->chunks[index];
    uint64_t behind = (reader->newest - 1 - index) & (reader->chunk_count - 1);
    uint64_t expected = reader->newest > behind ? reader->newest - behind : 0; /* the newest turn that it can have */
    return expected == 0 || (known->known && known->count == GP_RING_EVENTS && known->turn >= expected);
}

static int ringread_scan(struct gp_ringread *reader, bool last)
{
    bool whole = reader->chunk_count <= GP_RINGREAD_WHOLE;
    int rc = 0;
    reader->stats.unsettled = 0;
    if (!whole)
        rc = ringread_ahead(reader, last ? GP_RINGREAD_GAP_AT_END : GP_RINGREAD_GAP);
    for (uint32_t i = 0; rc == 0 && i < reader->chunk_count; i++)
        if (whole || !ringread_closed(reader, i))
            rc = ringread_visit(reader, i);
    return rc;
}

/* While the first poll visits the chunks, writers can overtake it: the turns before theirs are gone,
 * and turns older than those were read. The events of a thread would then have a gap, so the reader
 * starts behind the last turn that can be gone. */
static void ringread_start_behind(struct gp_ringread *reader)
{
    uint64_t gone = reader->newest > reader->chunk_count ? reader->newest - reader->chunk_count : 0;
    size_t kept = 0;
    for (size_t i = 0; i < reader->held; i++)
        if (reader->events[i].seq >= gone * GP_RING_EVENTS)
            reader->events[kept++] = reader->events[i];
    reader->stats.before += reader->held - kept;
    reader->held = kept;
}

static int ringread_make(struct gp_ringread **out, gp_ringread_fn copy, uint32_t chunk_count,
                         enum gp_ringread_start start)
{
    if (!out || !copy || chunk_count == 0 || (chunk_count & (chunk_count - 1)) || chunk_count > GP_RINGREAD_CHUNKS)
        return -EINVAL;
    size_t size = sizeof **out + (size_t)chunk_count * sizeof(*out)->chunks[0];
    *out = ringread_map(size);
    if (!*out)
        return -ENOMEM;
    (*out)->bytes = size;
    (*out)->copy = copy;
    (*out)->chunk_count = chunk_count;
    (*out)->start = start;
    return 0;
}

static int ringread_now(struct gp_ringread *reader)
{
    int rc = 0;
    for (uint32_t i = 0; rc >= 0 && i < reader->chunk_count; i++) {
        struct gp_ringread_look look;
        rc = ringread_look(reader, i, &look);
        if (rc == 0 && look.turn > reader->now)
            reader->now = look.turn;
    }
    return rc < 0 ? rc : ringread_scan(reader, false);
}

/* "Now" is the time when the reader is created, not the time of its first poll. */
static int ringread_begin(struct gp_ringread **out)
{
    int rc = (*out)->start == GP_RINGREAD_NOW ? ringread_now(*out) : 0;
    if (rc < 0) {
        gp_ringread_free(*out);
        *out = NULL;
    } else {
        (*out)->is_begun = true;
    }
    return rc;
}

int gp_ringread_new(struct gp_ringread **out, gp_ringread_fn copy, void *arg, uint32_t chunk_count,
                    enum gp_ringread_start start)
{
    int rc = ringread_make(out, copy, chunk_count, start);
    if (rc < 0)
        return rc;
    (*out)->arg = arg;
    return ringread_begin(out);
}

int gp_ringread_new_fd(struct gp_ringread **out, int fd, uint64_t ring_offset, uint32_t chunk_count,
                       enum gp_ringread_start start)
{
    int rc = ringread_make(out, ringread_pread, chunk_count, start);
    if (rc < 0)
        return rc;
    (*out)->arg = *out;
    (*out)->fd = fd;
    (*out)->fd_offset = ring_offset;
    return ringread_begin(out);
}

void gp_ringread_free(struct gp_ringread *reader)
{
    if (!reader)
        return;
    if (reader->room)
        munmap(reader->events, reader->room * GP_RINGREAD_ROW);
    munmap(reader, reader->bytes);
}

ssize_t gp_ringread_poll(struct gp_ringread *reader, uint64_t horizon_ns, const struct gp_wire_event **events)
{
    if (reader->held)
        memmove(reader->events, reader->events + reader->given, reader->held * sizeof *reader->events);
    reader->given = 0;
    int rc = ringread_scan(reader, horizon_ns == UINT64_MAX);
    if (rc < 0)
        return rc;
    if (reader->start == GP_RINGREAD_OLDEST && !reader->is_polled)
        ringread_start_behind(reader);
    reader->is_polled = true;
    if (reader->is_late) { /* these would not be written in time either */
        reader->stats.left += reader->held;
        reader->held = 0;
    }
    if (reader->held > 1)
        gp_ring_order_events(reader->events, reader->held, reader->keys);
    size_t give = reader->held;
    while (give > 0 && reader->events[give - 1].time_ns > horizon_ns)
        give--;
    /* Events later than the horizon were written during this poll, which visits every chunk once.
     * More of them than a ring holds means a wrong horizon (false times, another clock): return all
     * events, or memory would grow without bound. */
    if (reader->held - give > (size_t)reader->chunk_count * GP_RING_EVENTS)
        give = reader->held;
    reader->given = give;
    reader->held -= give;
    reader->stats.delivered += give;
    *events = reader->events;
    return (ssize_t)give;
}

void gp_ringread_stats(const struct gp_ringread *reader, struct gp_ringread_stats *out)
{
    *out = reader->stats;
    out->held = reader->held;
}

void gp_ringread_leave(struct gp_ringread *reader)
{
    reader->is_late = true;
}

void gp_ringread_hurry(struct gp_ringread *reader, bool (*late)(void *arg), void *arg)
{
    reader->late = late;
    reader->late_arg = arg;
}
