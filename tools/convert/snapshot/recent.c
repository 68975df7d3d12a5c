/* SPDX-License-Identifier: MIT
 *
 * recent.c: collects the last events of a live process while its snapshot is being made; see
 * snapshot.h.
 */
#include <base/clock.h>
#include <convert/snapshot/snapshot.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <record/ringread.h>
#include <stdlib.h>
#include <string.h>

/* 4 GiB of events, far more than PyTorch's viewer can load. */
#define GP_RECENT_MOST (1u << 26)

int gp_snapshot_recent_open(struct gp_recent *recent, pid_t pid)
{
    struct gp_proc proc;
    struct gp_peer *session = &recent->session;
    char problem[GP_PROBLEM_BYTES];
    memset(recent, 0, sizeof(*recent));
    session->fd = -1;
    int rc = gp_proc_open(&proc, pid);
    if (rc)
        return rc;
    rc = gp_peer_open(session, &proc, problem);
    gp_proc_close(&proc);
    if (rc)
        return rc == -ENOENT ? -ESRCH : rc == -EPERM ? -EACCES : rc;
    rc = gp_ringread_new_fd(&recent->reader, session->fd, session->ring_offset, session->chunk_count,
                            GP_RINGREAD_OLDEST);
    if (rc)
        gp_snapshot_recent_close(recent);
    else
        gp_listen(&recent->listen, session);
    return rc;
}

static int recent_grow(struct gp_recent *recent, size_t more)
{
    size_t need = recent->count + more, room = recent->room ? recent->room : 65536;
    if (need > GP_RECENT_MOST)
        return -EFBIG;
    while (room < need)
        room *= 2;
    if (room == recent->room)
        return 0;
    struct gp_wire_event *events = realloc(recent->events, room * sizeof(*events));
    if (!events)
        return -ENOMEM;
    recent->events = events;
    recent->room = room;
    return 0;
}

int gp_snapshot_recent_poll(struct gp_recent *recent, int last)
{
    const struct gp_wire_event *events;
    struct gp_ringread_stats stats;
    gp_listen_again(&recent->listen);
    ssize_t count = gp_ringread_poll(recent->reader, last ? UINT64_MAX : gp_clock_ns(), &events);
    int rc = count < 0 ? (int)count : recent_grow(recent, (size_t)count);
    if (rc)
        return rc;
    if (count)
        memcpy(recent->events + recent->count, events, (size_t)count * sizeof(*events));
    recent->count += (size_t)count;
    gp_ringread_stats(recent->reader, &stats);
    recent->missed = stats.overwritten + stats.damaged;
    return 0;
}

void gp_snapshot_recent_close(struct gp_recent *recent)
{
    gp_ringread_free(recent->reader);
    gp_peer_close(&recent->session);
    free(recent->events);
    memset(recent, 0, sizeof(*recent));
    recent->session.fd = -1;
}
