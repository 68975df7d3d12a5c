/* SPDX-License-Identifier: MIT
 *
 * ringread.c: reads another process's event ring.  Must never use a word before it is copied and checked, and must
 * never wait for the writer.  Picture and argument: docs/ring.md.
 *
 * A chunk is copied in three steps: look at `state`; copy written_before and the events that are new; look at `state`
 * again.  If both looks show one turn, then the words in between belong to that turn: events below the first look's
 * count were committed before it and stay until the turn changes.  Partners in src/ds/ring.c: [ring.A1] first look
 * pairs with [ring.R1] the commit [ring.A2] the copy, then [ring.A3] the second look     pairs with [ring.R2] event
 * words and [ring.R3] the swap Between two preads the order is the kernel's: it takes and drops a reference on the
 * page, which orders on every machine that it runs on.
 */
#include "collect/ringread.h"
#include "base/compiler.h"
#include "collect/text.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An attempt takes about a microsecond and fails only if the circle came round to this chunk meanwhile, so a second one
 * is rare and a fifth means a ring that is much too small for its writers. */
#define GP_RINGREAD_TRIES 4

struct gp_ringread_chunk { /* what this reader knows of a chunk */
    uint64_t turn;
    uint64_t total; /* events of this chunk that are accounted for: earlier turns and `count` of this one */
    uint32_t count;
    bool known; /* looked at before */
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
    struct gp_wire_event *events; /* `given` handed out by the last poll, then `held` */
    size_t given, held, room;
    int fd;
    uint64_t fd_offset;
    struct gp_wire_chunk copied;
    struct gp_ringread_chunk chunks[];
};

static int gp_ringread_pread(void *arg, void *into, size_t bytes, uint64_t offset)
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

/* The state word, checked.  1: it makes no sense. */
static int gp_ringread_look(struct gp_ringread *reader, uint32_t index, struct gp_ringread_look *look)
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

/* Can `look` follow what is known?  Turns rise, counts within a turn rise. */
static bool gp_ringread_follows(const struct gp_ringread_chunk *known, const struct gp_ringread_look *look)
{
    if (!known->known)
        return true;
    return look->turn > known->turn || (look->turn == known->turn && look->count >= known->count);
}

/* Can `before` be the events of this chunk's earlier turns?  This also bounds every sum here far below 2^64. */
static bool gp_ringread_plausible(const struct gp_ringread *reader, const struct gp_ringread_chunk *known,
                                  uint64_t turn, uint64_t before)
{
    uint64_t earlier_turns = turn ? (turn - 1) / reader->chunk_count : 0;
    return before <= earlier_turns * GP_RING_EVENTS && (!known->known || before >= known->total);
}

static bool gp_ringread_check(struct gp_wire_event *event, uint64_t seq)
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
    event->pad_ = 0;
    return true;
}

static int gp_ringread_reserve(struct gp_ringread *reader, size_t more)
{
    size_t need = reader->given + reader->held + more;
    if (need <= reader->room)
        return 0;
    size_t room = reader->room ? reader->room * 2 : 4 * GP_RING_EVENTS;
    while (room < need)
        room *= 2;
    struct gp_wire_event *events = realloc(reader->events, room * sizeof *events);
    if (!events)
        return -ENOMEM;
    reader->events = events;
    reader->room = room;
    return 0;
}

static void gp_ringread_damage(struct gp_ringread *reader, struct gp_ringread_chunk *known)
{
    known->damaged = true;
    reader->stats.damaged_chunks++;
}

/* Books a settled copy of [from, look->count) of one turn; written_before counts where the turn is new to this reader.
 */
static void gp_ringread_accept(struct gp_ringread *reader, struct gp_ringread_chunk *known,
                               const struct gp_ringread_look *look, uint32_t from)
{
    if (!known->known || look->turn != known->turn) {
        uint64_t before = look->turn ? reader->copied.written_before : 0;
        if (!gp_ringread_plausible(reader, known, look->turn, before)) {
            gp_ringread_damage(reader, known);
            return;
        }
        if (known->known)
            reader->stats.overwritten += before - known->total;
        else
            reader->stats.before += before;
        known->total = before;
    }
    bool skip = !known->known && reader->start == GP_RINGREAD_NOW;
    for (uint32_t i = from; i < look->count; i++) {
        struct gp_wire_event *event = &reader->copied.events[i];
        if (skip)
            reader->stats.before++;
        else if (gp_ringread_check(event, (look->turn - 1) * GP_RING_EVENTS + i))
            reader->events[reader->given + reader->held++] = *event;
        else
            reader->stats.damaged++;
    }
    known->total += look->count - from;
    known->turn = look->turn;
    known->count = look->count;
    known->known = true;
}

/* One attempt: 0 settled, 1 the chunk moved meanwhile, -errno. */
static int gp_ringread_try(struct gp_ringread *reader, uint32_t index)
{
    struct gp_ringread_chunk *known = &reader->chunks[index];
    struct gp_ringread_look first, second;
    int rc = gp_ringread_look(reader, index, &first);
    if (rc < 0)
        return rc;
    if (rc > 0 || !gp_ringread_follows(known, &first)) {
        gp_ringread_damage(reader, known);
        return 0;
    }
    bool same = known->known && first.turn == known->turn;
    uint32_t from = same ? known->count : 0;
    if (same && first.count == from)
        return 0;
    /* A turn that is new to us needs written_before too; it lies in front of the events, and one copy is cheaper than
     * two. */
    size_t start = same ? offsetof(struct gp_wire_chunk, events[from]) : offsetof(struct gp_wire_chunk, written_before);
    size_t end = offsetof(struct gp_wire_chunk, events[first.count]);
    rc = gp_ringread_reserve(reader, first.count);
    if (rc == 0)
        rc = reader->copy(reader->arg, (char *)&reader->copied + start, end - start,
                          (uint64_t)index * sizeof(struct gp_wire_chunk) + start);
    if (rc == 0)
        rc = gp_ringread_look(reader, index, &second);
    if (rc < 0)
        return rc;
    if (rc > 0) {
        gp_ringread_damage(reader, known);
        return 0;
    }
    if (second.turn != first.turn)
        return 1;
    gp_ringread_accept(reader, known, &first, from);
    return 0;
}

static int gp_ringread_scan(struct gp_ringread *reader)
{
    reader->stats.unsettled = 0;
    for (uint32_t i = 0; i < reader->chunk_count; i++) {
        int rc = 1;
        for (int attempt = 0; rc == 1 && attempt < GP_RINGREAD_TRIES && !reader->chunks[i].damaged; attempt++)
            rc = gp_ringread_try(reader, i);
        if (rc < 0)
            return rc;
        if (rc == 1 && !reader->chunks[i].damaged)
            reader->stats.unsettled++;
    }
    return 0;
}

static int gp_ringread_make(struct gp_ringread **out, gp_ringread_fn copy, uint32_t chunk_count,
                            enum gp_ringread_start start)
{
    if (!out || !copy || chunk_count == 0 || (chunk_count & (chunk_count - 1)) || chunk_count > GP_RINGREAD_CHUNKS)
        return -EINVAL;
    *out = calloc(1, sizeof **out + (size_t)chunk_count * sizeof(*out)->chunks[0]);
    if (!*out)
        return -ENOMEM;
    (*out)->copy = copy;
    (*out)->chunk_count = chunk_count;
    (*out)->start = start;
    return 0;
}

/* "Now" is when the reader is made, not when it polls first. */
static int gp_ringread_begin(struct gp_ringread **out)
{
    int rc = (*out)->start == GP_RINGREAD_NOW ? gp_ringread_scan(*out) : 0;
    if (rc < 0) {
        gp_ringread_free(*out);
        *out = NULL;
    }
    return rc;
}

int gp_ringread_new(struct gp_ringread **out, gp_ringread_fn copy, void *arg, uint32_t chunk_count,
                    enum gp_ringread_start start)
{
    int rc = gp_ringread_make(out, copy, chunk_count, start);
    if (rc < 0)
        return rc;
    (*out)->arg = arg;
    return gp_ringread_begin(out);
}

int gp_ringread_new_fd(struct gp_ringread **out, int fd, uint64_t ring_offset, uint32_t chunk_count,
                       enum gp_ringread_start start)
{
    int rc = gp_ringread_make(out, gp_ringread_pread, chunk_count, start);
    if (rc < 0)
        return rc;
    (*out)->arg = *out;
    (*out)->fd = fd;
    (*out)->fd_offset = ring_offset;
    return gp_ringread_begin(out);
}

void gp_ringread_free(struct gp_ringread *reader)
{
    if (!reader)
        return;
    free(reader->events);
    free(reader);
}

static int gp_ringread_order(const void *left, const void *right)
{
    const struct gp_wire_event *a = left, *b = right;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

ssize_t gp_ringread_poll(struct gp_ringread *reader, uint64_t horizon_ns, const struct gp_wire_event **events)
{
    if (reader->held)
        memmove(reader->events, reader->events + reader->given, reader->held * sizeof *reader->events);
    reader->given = 0;
    int rc = gp_ringread_scan(reader);
    if (rc < 0)
        return rc;
    if (reader->held > 1)
        qsort(reader->events, reader->held, sizeof *reader->events, gp_ringread_order);
    size_t give = reader->held;
    while (give > 0 && reader->events[give - 1].time_ns > horizon_ns)
        give--;
    /* What is later than the horizon was written during this poll, which sees every chunk once.  More than a ring of it
     * means a horizon that is none (times that lie, another clock): give everything, or memory would grow without end.
     */
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
