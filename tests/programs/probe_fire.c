/* SPDX-License-Identifier: MIT
 *
 * probe_fire.c: fires gpuprof:batch by commands on stdin, and answers each with a line.  It
 * declares the layout of a batch itself, so it does not share a mistake in the product's header.
 *
 *      m DEVICE UUID ALLOCATED HIGH RESERVED HIGH CALLS TOTAL [ASLEEP HIGH]    a batch of one row (UUID: one byte,
 *                           0 unknown)
 *      e EVENTS TIMES       batches with only events          o          the last batch once more
 *      g SEQS               skips sequence numbers           l LOST     sets `lost`
 *      h HOW                one bad batch (see hostile)      r TIMES    two threads fire at once
 *      f TIMES              children that fire one batch of 1 MiB and end
 *      z TIMES ROWS DEVICE  children that fire one batch of so many rows of that device and sleep until we end
 *      s                    answers with the semaphore       x          executes itself again
 *      c TIMES              moves as fast as it can and ends at 5 MiB, never above 1000 MiB
 *      u UID                becomes another user
 *      t                    the main thread leaves, another one stays
 *      p                    answers with the pid          w          takes 256 MiB of memory
 *      k                    forks and ends; the child continues to answer
 */
#define _SDT_HAS_SEMAPHORES 1
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sdt.h>
#include <sys/wait.h>
#include <unistd.h>

__extension__ unsigned short gpuprof_batch_semaphore __attribute__((unused, section(".probes"), visibility("hidden")));

struct row {
    uint8_t uuid[16];
    int32_t device;
    uint32_t flags;
    int64_t total, allocated, reserved, allocated_high, reserved_high, calls, frees, failures, asleep, asleep_high;
};
struct batch {
    uint64_t magic;
    uint32_t abi, bytes;
    uint8_t session[16];
    uint64_t seq, time_ns, lost;
    uint16_t rows, events;
    uint32_t flags;
    struct row row[8];
    uint8_t event[256][64];
};

static struct batch batch = {.magic = 0x4842505047u, .abi = 2};

__attribute__((noinline)) static void fire(const struct batch *from, uint64_t bytes)
{
    DTRACE_PROBE2(gpuprof, batch, from, bytes);
}

static void send_batch(void)
{
    batch.seq++;
    batch.bytes = 896 + 64u * batch.events;
    fire(&batch, batch.bytes);
}

static void row_set(struct row *row, const long long *v)
{
    memset(row, 0, sizeof *row);
    row->device = (int32_t)v[0];
    memset(row->uuid, (int)v[1], 16);
    row->allocated = v[2], row->allocated_high = v[3], row->reserved = v[4], row->reserved_high = v[5];
    row->calls = row->frees = row->failures = v[6];
    row->total = v[7];
    row->asleep = v[8], row->asleep_high = v[9];
}

static void hostile(int how)
{
    struct batch *bad = malloc(sizeof *bad);
    *bad = batch;
    bad->seq = ++batch.seq, bad->bytes = 896, bad->rows = 1, bad->events = 0;
    uint64_t bytes = 896;
    const void *at = bad;
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    switch (how) {
    case 0:
        at = NULL;
        break;
    case 1:
        at = (void *)0xffff888000000000ull;
        break; /* kernel memory */
    case 2:
        bad->magic++;
        break;
    case 3:
        bad->abi = 1; /* rows without asleep */
        break;
    case 4:
        bytes = 64;
        break;
    case 5:
        bad->rows = 9;
        break;
    case 6:
        bad->events = 257;
        break;
    case 7:
        bad->bytes = bytes = 1u << 30;
        break;
    case 8:
        bad->seq = 0;
        break;
    case 9:
        bad->row[0].device = 64;
        break;
    case 10:
        bad->row[0].device = -1;
        break;
    case 11: /* the header is readable, the rows are not */
        munmap(page + 4096, 4096);
        memcpy(page + 4096 - 64, bad, 64);
        at = page + 4096 - 64;
        break;
    }
    fire(at, bytes);
    munmap(page, 4096);
    free(bad);
}

static void *racer(void *arg)
{
    struct batch *mine = malloc(sizeof *mine);
    *mine = batch;
    for (long i = *(long *)arg; i > 0; i--) {
        mine->seq = __atomic_add_fetch(&batch.seq, 1, __ATOMIC_RELAXED);
        mine->row[0].allocated = mine->row[0].reserved = (i * 7919 % 1000) << 10;
        mine->row[0].allocated_high = mine->row[0].reserved_high = mine->row[0].allocated;
        mine->rows = 1, mine->events = 0, mine->bytes = 896;
        fire(mine, 896);
    }
    free(mine);
    return NULL;
}

static void children(long times)
{
    const long long small[10] = {0, 1, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1, 1ll << 30};
    for (long i = 0; i < times; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            row_set(&batch.row[0], small);
            batch.rows = 1, batch.events = 0;
            batch.session[8] = 1;
            send_batch();
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

static long sleepers(long times, uint16_t rows, int device)
{
    const long long small[10] = {device, 1, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1, 1ll << 30};
    int ends[2];
    char byte;
    long begun = 0;
    if (pipe(ends))
        return -1;
    for (long i = 0; i < times; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            row_set(&batch.row[0], small);
            batch.rows = rows, batch.events = 0;
            batch.session[8] = 1;
            send_batch();
            _exit(write(ends[1], "r", 1) != 1 || pause());
        }
        begun += pid > 0 && read(ends[0], &byte, 1) == 1;
    }
    close(ends[0]), close(ends[1]);
    return begun;
}

static int serve(void);

static void *stay(void *unused)
{
    (void)unused;
    exit(serve());
}

static int serve(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        long long v[10] = {0};
        sscanf(line + 1, "%lld %lld %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
               &v[6], &v[7], &v[8], &v[9]);
        long long answer = 0;
        pthread_t thread[2];
        long times = v[0];
        switch (line[0]) {
        case 'm':
            row_set(&batch.row[0], v);
            batch.rows = 1, batch.events = 0;
            send_batch();
            break;
        case 'e':
            for (batch.rows = 0, batch.events = (uint16_t)v[0]; v[1] > 0; v[1]--)
                send_batch();
            break;
        case 'o':
            fire(&batch, batch.bytes);
            break;
        case 'g':
            batch.seq += (uint64_t)v[0];
            break;
        case 'l':
            batch.lost = (uint64_t)v[0];
            break;
        case 'h':
            hostile((int)v[0]);
            break;
        case 'r':
            for (int i = 0; i < 2; i++)
                pthread_create(&thread[i], NULL, racer, &times);
            for (int i = 0; i < 2; i++)
                pthread_join(thread[i], NULL);
            break;
        case 'f':
            children(times);
            break;
        case 'z':
            answer = sleepers(times, (uint16_t)v[1], (int)v[2]);
            break;
        case 's':
            answer = gpuprof_batch_semaphore;
            break;
        case 'p':
            answer = getpid();
            break;
        case 'x':
            execl("/proc/self/exe", "probe_fire", (char *)NULL);
            return 1;
        case 'k':
            if (fork())
                _exit(0);
            break;
        case 'c':
            for (long i = times; i >= 0; i--) {
                long long to = i ? (i * 7919 + getpid()) % 1000 * 1048576 : 5 << 20, high = i ? 1000 << 20 : to;
                row_set(&batch.row[0], (long long[10]){0, 1, to, high, to, high, times - i, 1ll << 31});
                batch.rows = 1, batch.events = 0;
                send_batch();
            }
            break;
        case 'u':
            answer = setuid((uid_t)v[0]);
            break;
        case 'w':
            for (int i = 0; i < 256; i++) /* eight times the limit: an end without one */
                memset(malloc(1 << 20), 1, 1 << 20);
            break;
        case 't':
            pthread_create(&thread[0], NULL, stay, NULL);
            printf("0\n");
            fflush(stdout);
            pthread_exit(NULL);
        default:
            return 0;
        }
        printf("%lld\n", answer);
        fflush(stdout);
    }
    return 0;
}

int main(void)
{
    pid_t pid = getpid();
    memcpy(batch.session, &pid, sizeof pid);
    setvbuf(stdin, NULL, _IONBF, 0); /* unread input survives an exec */
    printf("0\n");
    fflush(stdout);
    return serve();
}
