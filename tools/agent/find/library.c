/* SPDX-License-Identifier: MIT
 *
 * library.c: see library.h. It has three tables of fixed or bounded size, whatever tenants do: armed
 * files, files seen before (so that each is examined once), and processes that map an armed file,
 * with a pidfd each.
 */
#include <agent/find/library.h>
#include <agent/kernel/bpf.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <base/text.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/maps.h>
#include <poll.h>
#include <read/common/agentlog.h>
#include <read/common/foreign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEEN_SETS   256u /* x SEEN_WAYS files; a machine has one or two per container, plus hostile ones */
#define SEEN_WAYS   4u
#define HEADS       4096u /* of chains of processes */
#define TURN_DEATHS 256   /* ended processes per turn */

/* New files that are examined, per file system: a container that creates thousands delays only its
 * own. An examination takes about 50 us, so 64 file systems at their limit cost 2 % of a CPU. */
#define EXAMINE_BURST   32u
#define EXAMINE_PER_S   4u
#define EXAMINE_BUCKETS 256u
#define EXAMINE_ROOM    (EXAMINE_BURST * 1000000000ull / EXAMINE_PER_S)

struct armed {
    int link; /* -1: the row is free */
    int file; /* of a kept file, for reading, to compare others with it; else -1 */
    bool is_kept, is_unwatched, is_memory;
    uint32_t generation, mappers;
    uint64_t device, inode, size;
    struct gp_library_id id;
    struct gp_bpf_probe probe;
    char base[64]; /* last part of its name, unchanged */
    char name[160];
};

struct seen {
    uint64_t device, inode, size, changed_ns;
    uint32_t generation; /* of the row `armed`; if there was no room, `room` at that time */
    int16_t armed;       /* -1: refused, for `error` */
    int16_t error;       /* 0: the entry is free */
};

struct mapper {
    pid_t pid; /* 0: the entry is free */
    int pidfd;
    uint32_t armed, sweep;
    int32_t next; /* in its chain or in the free list */
};

struct bucket {
    uint64_t full_ns; /* the time at which it is full again */
};

struct gp_libraries {
    struct gp_bpf *bpf;
    int epoll;
    unsigned top;  /* rows from `top` on were never used */
    uint32_t room; /* counts disarmed files: a file refused for lack of room may be offered again */
    struct armed armed[GP_LIBRARY_ARMED];
    struct seen seen[SEEN_SETS][SEEN_WAYS];
    uint8_t oldest[SEEN_SETS]; /* the way that is replaced next */
    struct mapper *mappers;
    uint32_t mapper_room, mapper_count, sweep;
    int32_t mapper_free, heads[HEADS];
    struct bucket examinations[EXAMINE_BUCKETS], postponed_lines;
    struct gp_hourly armed_lines, disarmed_lines, refused_lines; /* apart: refusals must not hide the others */
    uint64_t refused, postponed;
    bool blocked;
    bool is_short_logged;
};

/* ---- messages -------------------------------------------------------------------------------------------------- */

static bool bucket_take(struct bucket *bucket, uint64_t cost_ns, uint64_t room_ns)
{
    uint64_t now = gp_clock_ns(), from = bucket->full_ns > now ? bucket->full_ns : now;
    if (from + cost_ns > now + room_ns)
        return false;
    bucket->full_ns = from + cost_ns;
    return true;
}

static int explain(char *why, size_t why_bytes, int error, const char *format, ...) GP_PRINTF(4, 5);
static int explain(char *why, size_t why_bytes, int error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, why_bytes, format, list);
    va_end(list);
    return error;
}

/* One line an hour for each text; with --verbose all of them. `text` has no number of a process, so that
 * the same library of other programs is the same text. */
static void library_log(struct gp_hourly *hourly, enum gp_agentlog_level level, const char *before, const char *name,
                        pid_t pid, const char *after)
{
    char text[512], since[96] = "", of[32] = "";
    uint64_t more = 0, others = 0;
    snprintf(text, sizeof(text), "%s%s", name, after);
    if (!gp_library_hourly_take(hourly, text, gp_clock_ns(), &more, &others))
        level = GP_AGENTLOG_DEBUG;
    else if (more)
        snprintf(since, sizeof(since), " (and %llu times more since the last such line)", (unsigned long long)more);
    if (pid)
        snprintf(of, sizeof(of), " (process %d)", (int)pid);
    gp_agent_log(level, "%s%s%s%s%s", before, name, of, after, since);
    if (others)
        gp_agent_log(level, "suppressed %llu further messages about files like this (rate limit)",
                     (unsigned long long)others);
}

static bool is_final(int error);

/* The shim, a stand-in, or programs of that name: nothing that could be armed is left out. */
static bool has_no_probe(int error)
{
    return error == -ENOENT || error == -ENOEXEC;
}

static void refusal_log(struct gp_libraries *l, const struct gp_library_offer *offer, int error, const char *why)
{
    char name[160], what[400];
    gp_text_clean(name, sizeof(name), offer->name, strlen(offer->name));
    if (has_no_probe(error)) {
        gp_agent_log(GP_AGENTLOG_DEBUG, "%s (process %d): %s", name, (int)offer->pid, why);
        return;
    }
    snprintf(what, sizeof(what), " is not armed: %s%s", why,
             is_final(error) ? ". Programs that load it are not counted here" : "");
    library_log(&l->refused_lines, GP_AGENTLOG_WARNING, "", name, offer->pid, what);
}

static void postponed_log(struct gp_libraries *l, const struct gp_library_offer *offer)
{
    char name[160];
    l->postponed++;
    if (!bucket_take(&l->postponed_lines, 60000000000ull, 60000000000ull))
        return;
    gp_text_clean(name, sizeof(name), offer->name, strlen(offer->name));
    gp_agent_log(GP_AGENTLOG_NOTICE,
                 "%s (process %d): too many new files on its file system at once, so they are examined later", name,
                 (int)offer->pid);
}

/* ---- open, close ----------------------------------------------------------------------------------------------- */

int gp_libraries_open(struct gp_libraries **out, struct gp_bpf *bpf)
{
    struct gp_libraries *l = calloc(1, sizeof(*l));
    *out = NULL;
    if (!l)
        return -ENOMEM;
    l->bpf = bpf;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0) {
        int error = -errno;
        free(l);
        return error;
    }
    for (unsigned i = 0; i < GP_LIBRARY_ARMED; i++)
        l->armed[i].link = l->armed[i].file = -1;
    for (unsigned i = 0; i < HEADS; i++)
        l->heads[i] = -1;
    l->mapper_free = -1;
    *out = l;
    return 0;
}

void gp_libraries_close(struct gp_libraries *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < GP_LIBRARY_ARMED; i++) {
        if (l->armed[i].link >= 0)
            close(l->armed[i].link);
        if (l->armed[i].file >= 0)
            close(l->armed[i].file);
    }
    for (uint32_t i = 0; i < l->mapper_room; i++)
        if (l->mappers[i].pid)
            close(l->mappers[i].pidfd);
    close(l->epoll);
    free(l->mappers);
    free(l);
}

/* ---- processes that map a file --------------------------------------------------------------------------------- */

static int32_t *head_of(struct gp_libraries *l, pid_t pid)
{
    return &l->heads[(uint32_t)pid % HEADS];
}

static int32_t mapper_find(struct gp_libraries *l, pid_t pid, uint32_t armed)
{
    int32_t i = *head_of(l, pid);
    while (i >= 0 && (l->mappers[i].pid != pid || l->mappers[i].armed != armed))
        i = l->mappers[i].next;
    return i;
}

static int mappers_grow(struct gp_libraries *l)
{
    uint32_t room = l->mapper_room ? 2 * l->mapper_room : 64;
    if (room > GP_MAPS_PROCESSES)
        return -ENOSPC;
    struct mapper *more = realloc(l->mappers, room * sizeof(*more));
    if (!more)
        return -ENOMEM;
    for (uint32_t i = l->mapper_room; i < room; i++)
        more[i] = (struct mapper){.next = i + 1 < room ? (int32_t)i + 1 : -1};
    l->mapper_free = (int32_t)l->mapper_room;
    l->mappers = more;
    l->mapper_room = room;
    return 0;
}

/* from: the chain's head, or the `next` that points to the entry. */
static void mapper_drop(struct gp_libraries *l, int32_t *from)
{
    int32_t i = *from;
    struct mapper *mapper = &l->mappers[i];
    *from = mapper->next;
    close(mapper->pidfd); /* also removes it from the epoll: there is no other copy of the descriptor */
    l->armed[mapper->armed].mappers--;
    *mapper = (struct mapper){.next = l->mapper_free};
    l->mapper_free = i;
    l->mapper_count--;
}

static bool has_ended(int pidfd)
{
    struct pollfd exited = {.fd = pidfd, .events = POLLIN};
    return poll(&exited, 1, 0) > 0;
}

static int mapper_add(struct gp_libraries *l, uint32_t armed, const struct gp_library_offer *offer)
{
    int error = l->mapper_free < 0 ? mappers_grow(l) : 0;
    if (error)
        return error;
    int pidfd = (int)syscall(SYS_pidfd_open, offer->pid, 0);
    if (pidfd < 0)
        return -errno;
    /* The process is alive after the pidfd was opened, so the number meant this process all the
     * time. */
    struct stat about;
    int32_t i = l->mapper_free;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    error = fstatat(offer->proc, "stat", &about, 0)             ? -ESRCH
            : epoll_ctl(l->epoll, EPOLL_CTL_ADD, pidfd, &event) ? -errno
                                                                : 0;
    if (error) {
        close(pidfd);
        return error;
    }
    int32_t *head = head_of(l, offer->pid);
    l->mapper_free = l->mappers[i].next;
    l->mappers[i] =
        (struct mapper){.pid = offer->pid, .pidfd = pidfd, .armed = armed, .sweep = l->sweep, .next = *head};
    *head = i;
    l->armed[armed].mappers++;
    l->mapper_count++;
    return 0;
}

static void libraries_process_ended(struct gp_libraries *libraries, pid_t pid);

/* Tracks a mapper. A file with a mapper that cannot be tracked stays armed until a sweep finds no
 * such mapper. */
static int mapper_watch(struct gp_libraries *l, uint32_t armed, const struct gp_library_offer *offer)
{
    if (l->armed[armed].is_kept)
        return 0;
    int32_t known = mapper_find(l, offer->pid, armed);
    if (known >= 0 && has_ended(l->mappers[known].pidfd)) {
        libraries_process_ended(l, offer->pid); /* the pid is another process's by now */
        known = -1;
    }
    if (known >= 0) {
        l->mappers[known].sweep = l->sweep;
        return 0;
    }
    int error = mapper_add(l, armed, offer);
    if (!error || error == -ESRCH)
        return error;
    l->armed[armed].is_unwatched = true;
    if (!l->is_short_logged)
        gp_agent_log(GP_AGENTLOG_WARNING, "cannot track process %d: %s; its files stay armed until a sweep of /proc",
                     (int)offer->pid, strerror(-error));
    l->is_short_logged = true;
    return 0;
}

/* Call it when a process that mapped files has ended. Files with no known mapper are idle. A forked
 * child may still map them, so the caller sweeps (gp_discover_sweep offers mapped files again) and
 * then disarms the files still idle. */
static void libraries_process_ended(struct gp_libraries *l, pid_t pid)
{
    int32_t *at = head_of(l, pid);
    while (*at >= 0)
        if (l->mappers[*at].pid == pid)
            mapper_drop(l, at);
        else
            at = &l->mappers[*at].next;
}

int gp_libraries_fd(const struct gp_libraries *l)
{
    return l->epoll;
}

void gp_libraries_turn(struct gp_libraries *l)
{
    struct epoll_event events[TURN_DEATHS];
    int count = epoll_wait(l->epoll, events, TURN_DEATHS, 0);
    for (int i = 0; i < count; i++) {
        /* An earlier event of this turn may have removed all entries of its process. */
        const struct mapper *mapper = &l->mappers[events[i].data.u32];
        if (mapper->pid && has_ended(mapper->pidfd))
            libraries_process_ended(l, mapper->pid);
    }
}

/* ---- files that were seen -------------------------------------------------------------------------------------- */

static unsigned seen_set(const struct gp_candidate *file)
{
    uint64_t mixed = (file->inode ^ file->device << 20) * 0x9e3779b97f4a7c15ull;
    return (unsigned)(mixed >> 32) % SEEN_SETS;
}

static bool seen_holds(const struct gp_libraries *l, const struct seen *seen)
{
    if (seen->armed >= 0)
        return l->armed[seen->armed].generation == seen->generation;
    return seen->error != -ENOSPC || seen->generation == l->room;
}

static const struct seen *seen_find(const struct gp_libraries *l, const struct gp_candidate *file)
{
    const struct seen *set = l->seen[seen_set(file)];
    for (unsigned i = 0; i < SEEN_WAYS; i++)
        if (set[i].error && set[i].inode == file->inode && set[i].device == file->device && set[i].size == file->size &&
            set[i].changed_ns == file->changed_ns && seen_holds(l, &set[i]))
            return &set[i];
    return NULL;
}

/* armed >= 0: the file is this row; else it was refused for `error`. */
static void seen_add(struct gp_libraries *l, const struct gp_candidate *file, int armed, int error)
{
    unsigned set = seen_set(file);
    l->seen[set][l->oldest[set]++ % SEEN_WAYS] = (struct seen){
        .device = file->device,
        .inode = file->inode,
        .size = file->size,
        .changed_ns = file->changed_ns,
        .generation = armed < 0 ? l->room : l->armed[armed].generation,
        .armed = (int16_t)armed,
        .error = (int16_t)(armed < 0 ? error : 1),
    };
}

/* ---- arming ---------------------------------------------------------------------------------------------------- */

static bool id_is(const struct gp_library_id *a, const struct gp_library_id *b)
{
    return a->bytes == b->bytes && !memcmp(a->id, b->id, a->bytes);
}

/* The row of this file under any name, or -1. A memory file has one number: all are on one file
 * system, and its link keeps the file. Any other may have several, as in an overlay. There a breakpoint
 * shows that the inode is armed, and only a row with the same contents can be its own. (A breakpoint of
 * another tracer in an equal copy would be taken for ours.) */
static int library_armed_same(const struct gp_libraries *l, int fd, const struct gp_candidate *file,
                              const struct gp_library_id *id, const struct gp_bpf_probe *probe)
{
    int found = -1;
    for (unsigned i = 0; found < 0 && i < l->top; i++) {
        const struct armed *row = &l->armed[i];
        if (row->link >= 0 && row->is_memory == file->is_memory && row->size == file->size && id_is(&row->id, id) &&
            row->probe.offset == probe->offset && row->probe.semaphore_offset == probe->semaphore_offset &&
            row->probe.cookie == probe->cookie && (!file->is_memory || row->inode == file->inode))
            found = (int)i;
    }
    return found >= 0 && (file->is_memory || gp_candidate_is_armed(fd, probe->offset) == 1) ? found : -1;
}

static int library_armed_room(const struct gp_libraries *l, const struct gp_candidate *file, char *why,
                              size_t why_bytes)
{
    int room = -1;
    unsigned of_one = 0;
    for (unsigned i = 0; i < GP_LIBRARY_ARMED; i++) {
        if (l->armed[i].link < 0)
            room = room < 0 ? (int)i : room;
        else
            of_one += !l->armed[i].is_kept && l->armed[i].device == file->device;
    }
    if (room < 0)
        return explain(why, why_bytes, -ENOSPC, "%u files are armed already", GP_LIBRARY_ARMED);
    if (of_one >= (file->is_memory ? GP_LIBRARY_OF_USER : GP_LIBRARY_OF_ONE))
        return explain(why, why_bytes, -ENOSPC, "%u files %s are armed already", of_one,
                       file->is_memory ? "of attached programs of its user" : "on its file system");
    return room;
}

static void library_armed_name(struct armed *row, const char *name)
{
    const char *base = strrchr(name, '/');
    snprintf(row->base, sizeof(row->base), "%s", base ? base + 1 : name);
    gp_text_clean(row->name, sizeof(row->name), name, strlen(name));
}

static void disarm(struct gp_libraries *l, uint32_t i)
{
    struct armed *row = &l->armed[i];
    library_log(&l->disarmed_lines, GP_AGENTLOG_INFO, "disarmed ", row->name, 0, ": no process maps it any more");
    close(row->link);
    l->room++;
    *row = (struct armed){.link = -1, .file = -1, .generation = row->generation + 1};
}

/* What `gpuprof attach` loads is a copy in memory, which belongs to the user of the program.  Only
 * copies of kept files are armed, so that a user gets no probe into a file of their own making. */
static int memory_check(const struct gp_libraries *l, int fd, const struct gp_candidate *file, char *why,
                        size_t why_bytes)
{
    int is_copy = 0;
    for (unsigned i = 0; is_copy == 0 && i < l->top; i++) {
        const struct armed *row = &l->armed[i];
        if (row->is_kept && row->file >= 0 && row->size == file->size)
            is_copy = gp_candidate_is_copy(fd, file->size, row->file);
    }
    if (is_copy < 0)
        return explain(why, why_bytes, is_copy,
                       is_copy == -EPERM ? "a memory file that is not sealed" : "cannot be read");
    return is_copy
               ? 0
               : explain(why, why_bytes, -EPERM,
                         "a memory file that is no copy of an armed library (attached by another version of gpuprof?)");
}

struct request {
    const struct gp_candidate *file;
    const char *name;
    const struct gp_library_id *id; /* the id that it must have; NULL: any */
};

/* fd is open for reading. Returns the row or -errno; *is_new is set if it was armed now. */
static int file_arm(struct gp_libraries *l, int fd, const struct request *request, bool *is_new, char *why,
                    size_t why_bytes)
{
    struct gp_library_id id;
    struct gp_bpf_probe probe;
    int error = gp_candidate_id_read(fd, &id);
    if (error && error != -ENOENT)
        return explain(why, why_bytes, error, "not an ELF file of this machine");
    if (request->id && request->id->bytes && !id_is(request->id, &id))
        return explain(why, why_bytes, -ESTALE, "its path is another file by now");
    error = gp_bpf_probe_find(fd, &probe);
    if (error)
        return explain(why, why_bytes, error, "it has no probe gpuprof:batch");
    int same = library_armed_same(l, fd, request->file, &id, &probe);
    if (same >= 0)
        return same;
    int row = library_armed_room(l, request->file, why, why_bytes);
    if (row < 0)
        return row;
    int link = gp_bpf_attach(l->bpf, fd, &probe, why, why_bytes);
    if (link < 0)
        return link;
    l->armed[row] = (struct armed){.link = link,
                                   .file = -1,
                                   .is_memory = request->file->is_memory,
                                   .generation = l->armed[row].generation,
                                   .device = request->file->device,
                                   .inode = request->file->inode,
                                   .size = request->file->size,
                                   .id = id,
                                   .probe = probe};
    library_armed_name(&l->armed[row], request->name);
    if ((unsigned)row >= l->top)
        l->top = (unsigned)row + 1;
    *is_new = true;
    return row;
}

/* Reopens the file and arms it. Returns the row or -errno. */
static int file_reopen_arm(struct gp_libraries *l, int fd, const struct request *request, bool *is_new, char *why,
                           size_t why_bytes)
{
    int file = gp_foreign_reopen(fd);
    if (file < 0)
        return explain(why, why_bytes, file, "cannot be opened: %s", strerror(-file));
    int row = request->file->is_memory ? memory_check(l, file, request->file, why, why_bytes) : 0;
    if (!row)
        row = file_arm(l, file, request, is_new, why, why_bytes);
    close(file);
    return row;
}

/* ---- named and offered files ----------------------------------------------------------------------------------- */

static int keep(struct gp_libraries *l, int fd, const char *path, char *why, size_t why_bytes)
{
    struct gp_candidate file;
    int error = gp_candidate_stat(fd, &file);
    if (error)
        return explain(why, why_bytes, error, "%s: %s", path, strerror(-error));
    const char *refusal = gp_candidate_refusal(&file);
    if (refusal)
        return explain(why, why_bytes, -EPERM, "%s: %s: chown root FILE; chmod go-w FILE", path, refusal);
    bool is_new = false;
    char sentence[200];
    int row =
        file_reopen_arm(l, fd, &(struct request){.file = &file, .name = path}, &is_new, sentence, sizeof(sentence));
    if (row < 0)
        return explain(why, why_bytes, row, "%s: %s", path, sentence);
    l->armed[row].is_kept = true;
    if (l->armed[row].file < 0)
        l->armed[row].file = gp_foreign_reopen(fd);
    seen_add(l, &file, row, 0);
    return 0;
}

int gp_libraries_keep(struct gp_libraries *l, const char *path, char *why, size_t why_bytes)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return explain(why, why_bytes, -errno, "%s: %s", path, strerror(errno));
    int error = keep(l, fd, path, why, why_bytes);
    close(fd);
    return error;
}

/* Returns the row or -errno. The error is remembered unless the file may be offered again: -EBUSY,
 * -ESRCH, -EAGAIN (a lease) and -ESTALE. */
static int offer_examine(struct gp_libraries *l, const struct gp_library_offer *offer, const struct gp_candidate *file,
                         bool *is_new, char *why, size_t why_bytes)
{
    const char *refusal = gp_candidate_refusal(file);
    if (refusal)
        return explain(why, why_bytes, -EPERM, "%s", refusal);
    struct bucket *examinations = &l->examinations[(file->device * 0x9e3779b97f4a7c15ull >> 32) % EXAMINE_BUCKETS];
    if (!bucket_take(examinations, 1000000000ull / EXAMINE_PER_S, EXAMINE_ROOM))
        return -EBUSY;
    int served = gp_candidate_is_served(file, offer->proc);
    if (served == -ESRCH)
        return served;
    if (served)
        return explain(why, why_bytes, -EPERM,
                       served > 0 ? "a process serves its file system (FUSE) and could block the agent"
                                  : "its file system is not among the mounts of the process");
    return file_reopen_arm(l, offer->fd, &(struct request){.file = file, .name = offer->name, .id = offer->id}, is_new,
                           why, why_bytes);
}

static bool is_final(int error)
{
    return error != -EBUSY && error != -ESRCH && error != -EAGAIN && error != -ESTALE && error != -ENOMEM &&
           error != -EUSERS && error != -EMFILE && error != -ENFILE && error != -EINTR;
}

static int offer_new(struct gp_libraries *l, const struct gp_library_offer *offer, const struct gp_candidate *file)
{
    char why[256] = "";
    bool is_new = false;
    int row = offer_examine(l, offer, file, &is_new, why, sizeof(why));
    if (row >= 0 || is_final(row))
        seen_add(l, file, row < 0 ? -1 : row, row < 0 ? row : 0);
    if (row == -EBUSY)
        postponed_log(l, offer);
    else if (row < 0 && row != -ESRCH) {
        l->refused += !has_no_probe(row) && row != -EUSERS;
        l->blocked |= row == -EUSERS;
        refusal_log(l, offer, row, why);
    }
    if (row < 0)
        return row;
    if (is_new)
        library_log(&l->armed_lines, GP_AGENTLOG_INFO, "armed ", l->armed[row].name, offer->pid, "");
    mapper_watch(l, (uint32_t)row, offer);
    return is_new;
}

int gp_libraries_offer(struct gp_libraries *l, const struct gp_library_offer *offer)
{
    struct gp_candidate file;
    int error = gp_candidate_stat(offer->fd, &file);
    if (error)
        return error;
    const struct seen *seen = seen_find(l, &file);
    if (!seen)
        return offer_new(l, offer, &file);
    if (seen->armed < 0)
        return seen->error;
    return mapper_watch(l, (uint32_t)seen->armed, offer);
}

bool gp_libraries_knows_id(const struct gp_libraries *l, const struct gp_library_id *id)
{
    bool is_known = false;
    for (unsigned i = 0; id->bytes && !is_known && i < l->top; i++)
        is_known = l->armed[i].link >= 0 && id_is(&l->armed[i].id, id);
    return is_known;
}

bool gp_libraries_knows_name(const struct gp_libraries *l, const char *base, size_t n)
{
    static const char ours[] = "libgpuprof";
    bool is_known = n >= sizeof(ours) - 1 && !memcmp(base, ours, sizeof(ours) - 1);
    for (unsigned i = 0; n && n < sizeof(l->armed[0].base) && !is_known && i < l->top; i++)
        is_known = l->armed[i].link >= 0 && !memcmp(l->armed[i].base, base, n) && !l->armed[i].base[n];
    return is_known;
}

/* ---- idle files ------------------------------------------------------------------------------------------------ */

static bool is_idle(const struct armed *row)
{
    return row->link >= 0 && !row->is_kept && !row->mappers;
}

unsigned gp_libraries_idle(const struct gp_libraries *l)
{
    unsigned idle = 0;
    for (unsigned i = 0; i < l->top; i++)
        idle += is_idle(&l->armed[i]);
    return idle;
}

void gp_libraries_disarm_idle(struct gp_libraries *l)
{
    for (unsigned i = 0; i < l->top; i++) {
        if (is_idle(&l->armed[i]) && !l->armed[i].is_unwatched)
            disarm(l, i);
        l->armed[i].is_unwatched = false; /* the next sweep sets it again */
    }
}

bool gp_libraries_blocked(const struct gp_libraries *l)
{
    return l->blocked;
}

void gp_libraries_sweep_begin(struct gp_libraries *l)
{
    l->blocked = false;
    l->sweep++;
}

void gp_libraries_sweep_keep(struct gp_libraries *l, pid_t pid)
{
    for (int32_t i = *head_of(l, pid); i >= 0; i = l->mappers[i].next)
        if (l->mappers[i].pid == pid)
            l->mappers[i].sweep = l->sweep;
}

void gp_libraries_sweep_end(struct gp_libraries *l)
{
    for (unsigned i = 0; i < HEADS; i++)
        for (int32_t *at = &l->heads[i]; *at >= 0;)
            if (l->mappers[*at].sweep != l->sweep)
                mapper_drop(l, at);
            else
                at = &l->mappers[*at].next;
}

struct gp_libraries_count gp_libraries_count(const struct gp_libraries *l)
{
    struct gp_libraries_count count = {.mappers = l->mapper_count, .refused = l->refused, .postponed = l->postponed};
    for (unsigned i = 0; i < l->top; i++)
        count.armed += l->armed[i].link >= 0;
    return count;
}
