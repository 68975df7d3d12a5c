/* SPDX-License-Identifier: MIT
 *
 * session.c: one memfd per process.  It ends with the process, however that ends, and is in no file
 * system.  It is sealed against shrinking, so a reader never gets SIGBUS, and against growing and
 * further seals, so its size is fixed.
 */
#include "session/session.h"
#include "base/clock.h"
#include "base/sandbox.h"
#include "session/extents.h"
#include "session/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* 2 MiB of events, 32 256 of them: a reader that polls ten times per second keeps up with 320 000
 * events per second, and an untouched ring costs nothing.  With the rest the session stays under 3
 * MiB. */
#define GP_SESSION_CHUNKS 512u
/* For the recorder 32 MiB, half a million events: a quarter of a second at two million per second,
 * enough for a writer that is preempted for a moment. */
#define GP_SESSION_CHUNKS_WIDE 8192u

#define GP_PAGE 4096u

static uint64_t page_up(uint64_t bytes)
{
    return (bytes + GP_PAGE - 1) / GP_PAGE * GP_PAGE;
}

static struct gp_wire_header session_layout(const struct gp_session_size *size)
{
    struct gp_wire_header header = {
        .magic = GP_WIRE_MAGIC,
        .abi = GP_WIRE_ABI,
        .header_bytes = sizeof(header),
        .device_bytes = sizeof(struct gp_wire_device),
        .device_count = GP_WIRE_DEVICES,
        .scope_bytes = sizeof(struct gp_wire_scope),
        .scope_count = GP_WIRE_SCOPES,
        .failure_bytes = sizeof(struct gp_wire_failure),
        .failure_count = GP_WIRE_FAILURES,
        .oom_bytes = sizeof(struct gp_wire_oom),
        .oom_framework_bytes = sizeof(struct gp_wire_oom_framework),
        .owners_bytes = sizeof(struct gp_wire_owners),
        .cupti_bytes = sizeof(struct gp_wire_cupti),
        .before_bytes = sizeof(struct gp_wire_before),
        .blocks_bytes = sizeof(struct gp_wire_blocks),
        .doors_bytes = sizeof(struct gp_wire_doors),
        .mailbox_bytes = sizeof(struct gp_wire_mailbox),
        .slot_count = GP_WIRE_SLOTS,
        .chunk_bytes = sizeof(struct gp_wire_chunk),
        .chunk_count = size->wide ? GP_SESSION_CHUNKS_WIDE : GP_SESSION_CHUNKS,
    };
    header.devices_offset = GP_PAGE;
    header.scopes_offset = page_up(header.devices_offset + (uint64_t)header.device_bytes * header.device_count);
    header.failures_offset = header.scopes_offset + (uint64_t)header.scope_bytes * header.scope_count;
    header.oom_offset = header.failures_offset + (uint64_t)header.failure_bytes * header.failure_count;
    header.oom_framework_offset = header.oom_offset + header.oom_bytes;
    header.owners_offset = header.oom_framework_offset + header.oom_framework_bytes;
    header.cupti_offset = header.owners_offset + header.owners_bytes;
    header.before_offset = header.cupti_offset + header.cupti_bytes;
    header.blocks_offset = header.before_offset + header.before_bytes;
    header.doors_offset = header.blocks_offset + header.blocks_bytes;
    header.mailbox_offset = page_up(header.doors_offset + header.doors_bytes);
    header.ring_offset = page_up(header.mailbox_offset + header.mailbox_bytes);
    header.total_bytes = header.ring_offset + (uint64_t)header.chunk_bytes * header.chunk_count;
    return header;
}

/* Above the program's file size limit ftruncate would not only fail: this thread would get SIGXFSZ,
 * which kills the program. */
static bool session_allowed(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

static int session_file(uint64_t bytes)
{
    int fd = session_allowed(bytes) ? gp_session_memfd(GP_WIRE_SESSION_NAME) : -EFBIG;
    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

/* Creates the file and maps it.  The last `reserved` bytes cannot be accessed yet, so that even mlockall
 * gives them no memory.  The descriptor, or -errno. */
static int session_map(char **base, uint64_t bytes, uint64_t reserved)
{
    int fd = session_file(bytes);
    if (fd < 0)
        return fd;
    *base = mmap(NULL, bytes, reserved ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*base != MAP_FAILED && (!reserved || mprotect(*base, bytes - reserved, PROT_READ | PROT_WRITE) == 0))
        return fd;
    int error = errno;
    if (*base != MAP_FAILED)
        munmap(*base, bytes);
    close(fd);
    return -error;
}

void *gp_session_sites(struct gp_session *session)
{
    char *base = (char *)session->header;
    if (!session->sites)
        return NULL;
    /* From the base on: a page of the machine may be larger than ours, but the base is aligned. */
    uint64_t bytes = (uint64_t)((char *)session->sites - base) + session->sites_bytes;
    return mprotect(base, bytes, PROT_READ | PROT_WRITE) == 0 ? session->sites : NULL;
}

void gp_session_show_sites(struct gp_session *session)
{
    struct gp_wire_header *header = session->header;
    header->sites_bytes = session->sites_bytes;
    /* Release: the tables, which a viewer copies through the kernel, and their size. */
    __atomic_store_n(&header->sites_offset, (uint64_t)((char *)session->sites - (char *)header), __ATOMIC_RELEASE);
}

int gp_session_open(struct gp_session *session, const struct gp_session_size *size)
{
    struct gp_wire_header header = session_layout(size);
    struct stat status = {0};
    uint64_t rest = header.total_bytes, sites_bytes = page_up(size->sites_bytes);
    char *base;
    header.total_bytes += sites_bytes;
    int fd = session_map(&base, header.total_bytes, size->sites ? 0 : sites_bytes);
    if (fd < 0 && sites_bytes && !size->sites) { /* limits of memory or of file sizes */
        header.total_bytes = rest;
        sites_bytes = 0;
        fd = session_map(&base, rest, 0);
    }
    if (fd < 0)
        return fd;
    /* A child must not write the parent's numbers.  gp_thread_life_on() prevents it; this makes sure. */
    madvise(base, header.total_bytes, MADV_DONTFORK);
    fstat(fd, &status);
    if (getrandom(header.session_id, sizeof(header.session_id), GRND_NONBLOCK) < 0)
        memcpy(header.session_id, &status.st_ino,
               sizeof(status.st_ino)); /* early boot: unique on this machine at least */
    header.pid = (uint32_t)getpid();
    header.start_ns = gp_clock_ns();
    memcpy(header.allocator, "off", 4);
    *session = (struct gp_session){
        .header = (struct gp_wire_header *)base,
        .devices = (struct gp_wire_device *)(base + header.devices_offset),
        .scopes = (struct gp_wire_scope *)(base + header.scopes_offset),
        .failures = (struct gp_wire_failure *)(base + header.failures_offset),
        .oom = (struct gp_wire_oom *)(base + header.oom_offset),
        .oom_framework = (struct gp_wire_oom_framework *)(base + header.oom_framework_offset),
        .owners = (struct gp_wire_owners *)(base + header.owners_offset),
        .cupti = (struct gp_wire_cupti *)(base + header.cupti_offset),
        .before = (struct gp_wire_before *)(base + header.before_offset),
        .blocks = (struct gp_wire_blocks *)(base + header.blocks_offset),
        .doors = (struct gp_wire_doors *)(base + header.doors_offset),
        .mailbox = (struct gp_wire_mailbox *)(base + header.mailbox_offset),
        .chunks = (struct gp_wire_chunk *)(base + header.ring_offset),
        .chunk_count = header.chunk_count,
        .sites = sites_bytes ? base + rest : NULL,
        .sites_bytes = sites_bytes,
        .bytes = header.total_bytes,
        .fd = fd,
        .inode = (uint64_t)status.st_ino,
        .device = (uint64_t)status.st_dev,
    };
    /* Set now: a viewer that comes before the drain thread runs waits for it instead of giving up. */
    session->mailbox->drain_tid = header.pid;
    /* The magic last: a reader that finds it finds complete contents. */
    memcpy((char *)session->header + sizeof(header.magic), (char *)&header + sizeof(header.magic),
           sizeof(header) - sizeof(header.magic));
    __atomic_store_n(&session->header->magic, header.magic, __ATOMIC_RELEASE);
    gp_sandbox_start();
    return 0;
}

void gp_session_mute(struct gp_session *session)
{
    __atomic_store_n(&session->mailbox->drain_tid, 0, __ATOMIC_RELEASE);
}

bool gp_session_owns(const struct gp_session *session)
{
    struct stat status;
    return session->header && fstat(session->fd, &status) == 0 && (uint64_t)status.st_ino == session->inode &&
           (uint64_t)status.st_dev == session->device;
}

void gp_session_drop(struct gp_session *session)
{
    if (gp_session_owns(session))
        close(session->fd);
    session->fd = -1;
    gp_sandbox_stop();
}

void gp_session_forget(struct gp_session *session)
{
    gp_extents_forget();
    if (gp_session_owns(session))
        close(session->fd);
    gp_sandbox_stop();
}
