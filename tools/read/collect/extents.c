/* SPDX-License-Identifier: MIT
 * extents.c: see collect.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_GET_SEALS */
#endif
#include <read/collect/collect.h>

#include <base/clock.h>
#include <base/compiler.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <linux/magic.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define GP_EXTENTS_NS 5000000000ull
/* Wait while another viewer's extents are out: it copies them in milliseconds. */
#define GP_EXTENTS_RETRY_NS 5000000
/* A megabyte at a time: a hostile file costs only the memory that it really contains. */
#define GP_EXTENTS_CHUNK 16384u
#define GP_EXTENTS_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct gp_extents_check {
    uint64_t end_ns;
    uint64_t at, end; /* of the segment whose blocks follow; equal: none */
    uint32_t device;
    uint8_t kind;
    char *why;
    size_t why_bytes;
};

static GP_PRINTF(3, 4) int extents_problem(char *why, size_t why_bytes, const char *form, ...)
{
    va_list arguments;
    va_start(arguments, form);
    if (why)
        vsnprintf(why, why_bytes, form, arguments);
    va_end(arguments);
    return -EPROTO;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static const char *extent_range(const struct gp_extents_check *check, const struct gp_wire_extent *extent)
{
    if (extent->what > GP_EXTENT_WHOLE || extent->state > GPUPROF_UNMAPPED || extent->kind == GP_KIND_NONE ||
        extent->kind >= GP_KINDS || extent->device >= GP_WIRE_DEVICES)
        return "a number is out of range";
    if (extent->bytes == 0 || extent->bytes > INT64_MAX || extent->address > INT64_MAX - extent->bytes)
        return "an address is out of range";
    if (extent->requested_bytes > extent->bytes)
        return "more bytes requested than allocated";
    if (extent->time_ns > check->end_ns)
        return "allocated in the future";
    return NULL;
}

static const char *extent_place(struct gp_extents_check *check, const struct gp_wire_extent *extent)
{
    if (extent->what != GP_EXTENT_BLOCK) {
        if (check->at != check->end)
            return "the segment before it is not filled by its blocks";
        if (extent->what == GP_EXTENT_WHOLE && extent->state != GPUPROF_LIVE)
            return "memory without a segment that is not live";
        if (extent->what == GP_EXTENT_SEGMENT && (extent->requested_bytes || extent->state))
            return "a segment with fields of a block";
        check->at = extent->address;
        check->end = extent->what == GP_EXTENT_WHOLE ? check->at : extent->address + extent->bytes;
        check->device = extent->device;
        check->kind = extent->kind;
        return NULL;
    }
    if (check->at == check->end)
        return "a block outside a segment";
    if (extent->device != check->device || extent->kind != check->kind)
        return "a block whose kind or device is not its segment's";
    if (extent->address != check->at || extent->bytes > check->end - check->at)
        return "a block that does not follow the one before it";
    if (extent->state != GPUPROF_LIVE && extent->requested_bytes)
        return "requested bytes in a block that is not live";
    check->at += extent->bytes;
    return NULL;
}

static int extents_check(struct gp_extents_check *check, const struct gp_wire_extent *extents, uint64_t count,
                         uint64_t first)
{
    for (uint64_t i = 0; i < count; i++) {
        const char *wrong = extent_range(check, &extents[i]);
        if (!wrong)
            wrong = extent_place(check, &extents[i]);
        if (wrong)
            return extents_problem(check->why, check->why_bytes, "extent %llu: %s", (unsigned long long)(first + i),
                                   wrong);
    }
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int extents_fetch(int fd, void *to, size_t bytes, uint64_t offset)
{
    const struct gp_peer file = {.fd = fd};
    return gp_peer_fetch(&file, to, bytes, offset);
}

static int extents_head(struct gp_wire_extents *head, int fd, char *why, size_t why_bytes)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size < (off_t)sizeof(*head))
        return extents_problem(why, why_bytes, "shorter than its header");
    int rc = extents_fetch(fd, head, sizeof(*head), 0);
    if (rc)
        return rc;
    if (head->magic != GP_WIRE_MAGIC || head->piece_bytes != sizeof(struct gp_wire_extent))
        return extents_problem(why, why_bytes, "not of this version");
    if (head->count > GP_WIRE_EXTENTS_MOST ||
        (uint64_t)status.st_size != sizeof(*head) + head->count * sizeof(struct gp_wire_extent))
        return extents_problem(why, why_bytes, "its size does not match its number of extents");
    if (head->begin_ns > head->end_ns)
        return extents_problem(why, why_bytes, "its end time is before its start time");
    return 0;
}

int gp_extents_read(struct gp_extents *out, int fd, char *why, size_t why_bytes)
{
    struct gp_wire_extents head;
    memset(out, 0, sizeof(*out));
    int rc = extents_head(&head, fd, why, why_bytes);
    if (rc)
        return rc;
    struct gp_extents_check check = {.end_ns = head.end_ns, .why = why, .why_bytes = why_bytes};
    /* Unused pages cost nothing: only extents that were read are written. */
    out->pieces = malloc(head.count ? head.count * sizeof(out->pieces[0]) : 1);
    if (!out->pieces)
        return -ENOMEM;
    for (uint64_t at = 0; at < head.count && !rc; at += GP_EXTENTS_CHUNK) {
        uint64_t count = head.count - at < GP_EXTENTS_CHUNK ? head.count - at : GP_EXTENTS_CHUNK;
        rc = extents_fetch(fd, out->pieces + at, count * sizeof(out->pieces[0]),
                           sizeof(head) + at * sizeof(out->pieces[0]));
        if (!rc)
            rc = extents_check(&check, out->pieces + at, count, at);
    }
    if (!rc && check.at != check.end)
        rc = extents_problem(why, why_bytes, "its last segment is not filled by its blocks");
    if (rc) {
        gp_extents_free(out);
        return rc;
    }
    out->begin_ns = head.begin_ns;
    out->end_ns = head.end_ns;
    out->missed = head.missed;
    out->count = head.count;
    return 0;
}

void gp_extents_free(struct gp_extents *extents)
{
    free(extents->pieces);
    memset(extents, 0, sizeof(*extents));
}

/* ---- the live process -------------------------------------------------------------------------------------------- */

/* The name alone proves nothing: the process may replace the file after readlinkat, and may serve a
 * file of that name itself. */
static int extents_open(const struct gp_proc *proc, int number, char *why, size_t why_bytes)
{
    static const char want[] = "/memfd:" GP_WIRE_EXTENTS_NAME " (deleted)";
    char name[32], link[sizeof(want) + 1];
    struct statfs fs;
    snprintf(name, sizeof(name), "fd/%d", number);
    ssize_t n = number < 0 ? -1 : readlinkat(proc->dir, name, link, sizeof(link));
    if (n != (ssize_t)sizeof(want) - 1 || memcmp(link, want, sizeof(want) - 1) != 0)
        return extents_problem(why, why_bytes, "descriptor %d is not a file of extents", number);
    snprintf(name, sizeof(name), "%d", number);
    int fd = gp_peer_memory(proc->dir, name);
    if (fd == -ENOENT)
        return extents_problem(why, why_bytes, "descriptor %d is not a memfd of the process's own", number);
    if (fd < 0)
        return fd;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & GP_EXTENTS_SEALS) == GP_EXTENTS_SEALS && fstatfs(fd, &fs) == 0 &&
        fs.f_type == TMPFS_MAGIC)
        return fd;
    close(fd);
    return extents_problem(why, why_bytes, "the file is not sealed");
}

/* Requests the extents and returns a new descriptor of their file, so the process may close its
 * own. */
static int extents_ask(const struct gp_proc *proc, const struct gp_peer *session, uint64_t deadline, char *why,
                       size_t why_bytes)
{
    struct gp_mailbox box;
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    int rc = slot ? gp_mailbox_open(&box, session) : -ENOMEM;
    if (rc) {
        free(slot);
        return rc;
    }
    box.keeps = true;
    *slot = (struct gp_wire_slot){.command = GP_COMMAND_EXTENTS, .device = -1};
    rc = gp_mailbox_post(&box, slot);
    if (!rc)
        rc = gp_mailbox_wait(&box, slot, deadline);
    if (!rc)
        rc = extents_open(proc, slot->fd, why, why_bytes);
    gp_mailbox_close(&box);
    free(slot);
    return rc;
}

static int extents_of(const struct gp_proc *proc, struct gp_extents *out, uint64_t deadline, char *why,
                      size_t why_bytes)
{
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    int rc = gp_peer_open(&session, proc, problem);
    if (rc == -EPROTO)
        return extents_problem(why, why_bytes, "%s", problem);
    if (rc)
        return rc == -ENOENT ? -ESRCH : rc == -EPERM ? -EACCES : rc;
    bool busy = false;
    while ((rc = extents_ask(proc, &session, deadline, why, why_bytes)) == -EAGAIN || rc == -EBUSY) {
        busy = true;
        if (gp_clock_ns() >= deadline)
            break;
        nanosleep(&(struct timespec){0, GP_EXTENTS_RETRY_NS}, NULL);
    }
    if (busy && (rc == -EAGAIN || rc == -ETIMEDOUT)) /* other viewers kept it busy */
        rc = -EBUSY;
    gp_peer_close(&session);
    if (rc < 0)
        return rc;
    int fd = rc;
    rc = gp_extents_read(out, fd, why, why_bytes);
    close(fd);
    return rc;
}

int gp_extents_take(pid_t pid, struct gp_extents *out, uint64_t deadline_ns, char *why, size_t why_bytes)
{
    struct gp_proc proc;
    memset(out, 0, sizeof(*out));
    if (why && why_bytes)
        why[0] = '\0';
    int rc = gp_proc_open(&proc, pid);
    if (rc)
        return rc;
    rc = extents_of(&proc, out, gp_clock_ns() + (deadline_ns ? deadline_ns : GP_EXTENTS_NS), why, why_bytes);
    gp_proc_close(&proc);
    return rc;
}
