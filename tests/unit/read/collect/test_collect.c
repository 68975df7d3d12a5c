/* SPDX-License-Identifier: MIT
 *
 * test_collect.c: finding processes, sending requests to them, and explaining why a process cannot
 * be read.
 * Run: alone
 */
#include <base/clock.h>
#include <base/futex.h>
#include <base/text.h>
#include <gpuprof/wire.h>
#include <lib/random.h>
#include <lib/session.h>
#include <lib/spawn.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/collect/watch.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t start(struct gp_test_process_options options)
{
    pid_t pid = gp_test_process_start(&options);
    cr_assert_gt(pid, 0);
    return pid;
}

/* Returns the process `pid`, or NULL. The caller frees the system. */
static struct gp_process *collect(pid_t pid, bool exact, uint64_t deadline, struct gp_system **system)
{
    struct gp_collect_options options = {.pids = &pid, .pid_count = 1, .exact = exact, .deadline_ns = deadline};
    cr_assert_eq(gp_collect(&options, system), 0);
    cr_assert_leq((*system)->process_count, 1);
    return (*system)->process_count ? &(*system)->processes[0] : NULL;
}

static bool listed(pid_t pid)
{
    struct gp_collect_options options = {.exact = false};
    struct gp_system *system;
    bool found = false;
    cr_assert_eq(gp_collect(&options, &system), 0);
    for (int i = 0; i < system->process_count; i++)
        found |= system->processes[i].pid == pid;
    gp_system_free(system);
    return found;
}

Test(collect, live_process)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 2, .comm = "train er)"});
    struct gp_system *system;
    struct gp_process *p = collect(pid, true, 0, &system);
    cr_assert(p);
    cr_assert_eq(p->state, GP_PROCESS_LIVE, "%s", p->problem);
    cr_assert_eq(p->pid, pid);
    cr_assert_eq(p->ppid, getpid());
    cr_assert_eq(p->uid, getuid());
    cr_assert_str_eq(p->comm, "train er)");
    cr_assert_gt(p->start_time, 0);
    cr_assert_eq(p->device_count, 3);
    cr_assert_eq(p->lost[GP_LOST_RING], 5);
    cr_assert_lt(p->age_ns, 1000000000);
    cr_assert_eq(p->devices[0].untracked_bytes, -1, "unknown without NVML");
    cr_assert_geq(system->gpu_count, 2);
    cr_assert_eq(system->gpus[0].used_bytes, -1);
    gp_system_free(system);
    cr_assert(listed(pid));
    char why[200];
    cr_assert_eq(gp_collect_explain_pid(pid, why, sizeof(why)), GP_PID_OK);
    gp_test_process_stop(pid);
    cr_assert_not(listed(pid));
    cr_assert_eq(gp_collect_explain_pid(pid, why, sizeof(why)), GP_PID_DEAD);
    cr_assert_str_eq(why, "no such process");
}

Test(collect, stopped_process_is_stale)
{
    pid_t pid = start((struct gp_test_process_options){0});
    struct gp_system *system;
    cr_assert_eq(spawn_stop(pid), 0);
    uint64_t before = gp_clock_ns();
    struct gp_process *p = collect(pid, true, 100000000, &system);
    uint64_t took = gp_clock_ns() - before;
    cr_assert_eq(p->state, GP_PROCESS_STALE);
    cr_assert_eq(p->device_count, 2);
    cr_assert(took >= 100000000 && took < 600000000, "%llu", (unsigned long long)took);
    gp_system_free(system);
    kill(pid, SIGCONT);
    p = collect(pid, true, 0, &system);
    cr_assert_eq(p->state, GP_PROCESS_LIVE, "a withdrawn request must not block the next");
    gp_system_free(system);
    gp_test_process_stop(pid);
}

Test(collect, stopped_processes_cost_one_deadline)
{
    pid_t pids[5];
    for (int i = 0; i < 5; i++) {
        pids[i] = start((struct gp_test_process_options){0});
        cr_assert_eq(spawn_stop(pids[i]), 0);
    }
    struct gp_collect_options options = {.pids = pids, .pid_count = 5, .exact = true, .deadline_ns = 200000000};
    struct gp_system *system;
    uint64_t before = gp_clock_ns();
    cr_assert_eq(gp_collect(&options, &system), 0);
    cr_assert_lt(gp_clock_ns() - before, 800000000);
    cr_assert_eq(system->process_count, 5);
    gp_system_free(system);
    for (int i = 0; i < 5; i++)
        gp_test_process_stop(pids[i]);
}

Test(collect, unpublished_and_damaged)
{
    struct gp_system *system;
    pid_t silent = start((struct gp_test_process_options){.no_publish = true, .no_drain = true});
    struct gp_process *p = collect(silent, true, 50000000, &system);
    cr_assert_eq(p->state, GP_PROCESS_UNKNOWN);
    gp_system_free(system);
    gp_test_process_stop(silent);
    pid_t open = start((struct gp_test_process_options){.no_seal = true});
    p = collect(open, true, 0, &system);
    cr_assert_eq(p->state, GP_PROCESS_DAMAGED);
    cr_assert(strstr(p->problem, "sealed"), "%s", p->problem);
    gp_system_free(system);
    char why[200];
    cr_assert_eq(gp_collect_explain_pid(open, why, sizeof(why)), GP_PID_NOT_PROFILED);
    cr_assert(strstr(why, "damaged"));
    gp_test_process_stop(open);
}

/* Viewers hold the descriptors of others, and forked children inherit them. Neither is a profiled
 * process. */
Test(collect, holders_of_a_session_are_not_profiled)
{
    pid_t pid = start((struct gp_test_process_options){0});
    struct gp_watch watch = {0};
    cr_assert_eq(gp_watch_look(&watch, pid, false), 1);
    cr_assert_eq(gp_watch_look(&watch, pid, true), 0, "known already");
    cr_assert_not(listed(getpid()));
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    cr_assert_not(listed(child));
    gp_test_process_stop(child);
    gp_test_process_stop(pid);
    cr_assert_eq(gp_watch_read(watch.watched[0]), 0);
    cr_assert_eq(watch.watched[0]->process.device_count, 2, "the session outlives its process while it is held");
    gp_watch_free(&watch);
}

Test(collect, watch_sees_descendants_and_the_end)
{
    pid_t middle = fork();
    if (middle == 0) {
        struct gp_test_process_options options = {.close_soon = true};
        pid_t inner = gp_test_process_start(&options);
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    struct gp_watch watch = {0};
    for (int i = 0; i < 200 && watch.count == 0; i++) {
        gp_watch_look(&watch, middle, true);
        usleep(1000);
    }
    cr_assert_eq(watch.count, 1);
    waitpid(middle, NULL, 0);
    cr_assert_eq(gp_watch_read(watch.watched[0]), 0);
    cr_assert(watch.watched[0]->process.closed);
    cr_assert_eq(watch.watched[0]->process.state, GP_PROCESS_LIVE, "final numbers are exact");
    gp_watch_free(&watch);
}

Test(collect, other_users)
{
    if (geteuid() != 0)
        cr_skip("needs root to change the user");
    pid_t pid = start((struct gp_test_process_options){0});
    pid_t other = fork();
    if (other == 0) {
        char why[200];
        struct gp_collect_options options = {0};
        struct gp_system *system;
        struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        if (gp_collect_explain_pid(pid, why, sizeof(why)) != GP_PID_DENIED || !strstr(why, "another user"))
            _exit(2);
        if (gp_collect(&options, &system) != 0 || system->denied_count < 1)
            _exit(3);
        for (int i = 0; i < system->process_count; i++) {
            if (system->processes[i].pid == pid)
                _exit(4);
        }
        slot->command = GP_COMMAND_SNAPSHOT;
        _exit(gp_request(pid, slot, 0) == -EACCES ? 0 : 5);
    }
    int status;
    waitpid(other, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", WEXITSTATUS(status));
    gp_test_process_stop(pid);
}

/* A process in a container has another pid in its own namespace. */
Test(collect, other_pid_namespace)
{
    int original = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (original < 0 || unshare(CLONE_NEWPID) != 0)
        cr_skip("needs root to make a pid namespace");
    pid_t pid = start((struct gp_test_process_options){0}); /* pid 1 in there */
    cr_assert_eq(setns(original, CLONE_NEWPID), 0, "later children of this test are in the first namespace again");
    close(original);
    struct gp_system *system;
    struct gp_process *p = collect(pid, true, 0, &system);
    cr_assert(p, "found although its session says pid 1");
    cr_assert_eq(p->pid, pid);
    cr_assert_eq(p->state, GP_PROCESS_LIVE, "%s", p->problem);
    gp_system_free(system);
    gp_test_process_stop(pid);
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

Test(collect, requests)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 3});
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    slot->command = GP_COMMAND_RESET;
    slot->what = GP_RESET_ALLOCATED;
    slot->device = 1;
    cr_assert_eq(gp_request(pid, slot, 0), 0);
    cr_assert_eq(slot->reply_count, 1);
    cr_assert_eq(slot->reply[0].device, 1);
    cr_assert_eq(slot->reply[0].before[GP_STAT_ALLOCATED_BYTES].peak, 4 << 20);
    cr_assert_eq(slot->reply[0].after[GP_STAT_ALLOCATED_BYTES].peak, 2 << 20);
    cr_assert_eq(slot->reply[0].after[GP_STAT_RESERVED_BYTES].peak, 4 << 20);
    slot->device = 40;
    cr_assert_eq(gp_request(pid, slot, 0), -ENODEV, "the process's own error is returned");
    memset(slot, 0, sizeof(*slot));
    slot->command = GP_COMMAND_YIELD;
    cr_assert_eq(gp_request(pid, slot, 0), -EOPNOTSUPP);
    cr_assert_eq(gp_request(getpid(), slot, 0), -ESRCH, "not profiled");
    free(slot);
    gp_test_process_stop(pid);
}

static void *ask_often(void *argument)
{
    pid_t pid = *(pid_t *)argument;
    struct gp_wire_slot *slot = malloc(sizeof(*slot));
    intptr_t bad = 0;
    for (int i = 0; i < 200; i++) {
        memset(slot, 0, sizeof(*slot));
        slot->command = i % 2 ? GP_COMMAND_SNAPSHOT : GP_COMMAND_RESET;
        slot->what = GP_RESET_PEAKS;
        slot->device = -1;
        int rc = gp_request(pid, slot, 5000000000);
        bad += rc != 0 || (i % 2 == 0 && slot->reply_count != 2);
    }
    free(slot);
    return (void *)bad;
}

/* More viewers at once than slots. */
Test(collect, many_viewers)
{
    pid_t pid = start((struct gp_test_process_options){0});
    pthread_t threads[12];
    for (int i = 0; i < 12; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, ask_often, &pid), 0);
    for (int i = 0; i < 12; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        cr_assert_null(bad);
    }
    gp_test_process_stop(pid);
}

struct hostile {
    struct gp_test_session s;
    uint32_t running; /* atomic */
};

/* Answers with random states and replies. */
static void *hostile_answers(void *argument)
{
    struct hostile *h = argument;
    uint64_t x = RANDOM_SEED;
    while (__atomic_load_n(&h->running, __ATOMIC_ACQUIRE)) {
        random_next(&x);
        struct gp_wire_slot *slot = &h->s.mailbox->slots[x % GP_WIRE_SLOTS];
        size_t at = x / 8 % sizeof(*slot);
        __atomic_store_n((uint8_t *)slot + at, (uint8_t)(x >> 50), __ATOMIC_RELAXED);
        if (x >> 61 == 0)
            __atomic_store_n(&slot->state, (uint32_t)(x >> 20) % 5, __ATOMIC_RELEASE);
        if (x >> 61 == 1)
            slot->reply_count = (uint32_t)x;
    }
    return NULL;
}

Test(collect, hostile_peer_cannot_hang_or_crash_us, .timeout = 60)
{
    struct hostile h = {.running = 1};
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    pthread_t thread;
    int outcomes[3] = {0};
    cr_assert_eq(gp_test_session_make(&h.s, 8, true), 0);
    h.s.mailbox->drain_tid = 1;
    cr_assert_eq(gp_peer_adopt(&session, dup(h.s.fd), problem), 0);
    cr_assert_eq(pthread_create(&thread, NULL, hostile_answers, &h), 0);
    struct gp_wire_slot *slot = malloc(sizeof(*slot));
    uint64_t end = gp_clock_ns() + 3000000000ull;
    int calls = 0;
    for (; gp_clock_ns() < end; calls++) {
        memset(slot, 0, sizeof(*slot));
        slot->command = GP_COMMAND_RESET;
        uint64_t before = gp_clock_ns();
        int rc = gp_mailbox_call(&session, slot, before + 20000000);
        cr_assert_lt(gp_clock_ns() - before, 2000000000ull, "past its deadline");
        cr_assert(rc <= 0 && rc >= -4095);
        if (rc == 0) {
            cr_assert_leq(slot->reply_count, GP_WIRE_DEVICES);
            for (uint32_t i = 0; i < slot->reply_count; i++)
                cr_assert(slot->reply[i].device >= 0 && slot->reply[i].device < (int)GP_WIRE_DEVICES);
        }
        outcomes[rc == 0 ? 0 : rc == -EPROTO ? 1 : 2]++;
    }
    __atomic_store_n(&h.running, 0, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    fprintf(stderr, "hostile peer: %d calls: %d accepted, %d damaged, %d other errors\n", calls, outcomes[0],
            outcomes[1], outcomes[2]);
    cr_assert_gt(outcomes[1], 0);
    free(slot);
    gp_peer_close(&session);
    gp_test_session_free(&h.s);
}

struct forged {
    struct gp_test_session s;
    int field;
    uint32_t running; /* atomic */
};

static void forge(struct gp_wire_slot *slot, int field)
{
    slot->result = 0;
    slot->reply_count = 2;
    memset(slot->reply, 0, sizeof(slot->reply));
    memset(slot->scope, 0, sizeof(slot->scope));
    slot->reply[1].device = (int32_t)GP_WIRE_HOST;
    switch (field) {
    case 1:
        slot->result = 1;
        break;
    case 2:
        slot->result = -4096;
        break;
    case 3:
        slot->reply_count = GP_WIRE_DEVICES + 1;
        break;
    case 4:
        slot->reply[1].device = (int32_t)GP_WIRE_DEVICES;
        break;
    case 5:
        slot->reply[0].device = -1;
        break;
    case 6:
        slot->reply[1].before[GP_STATS - 1].freed = -1;
        break;
    case 7:
        slot->reply[0].after[0].current = INT64_MIN;
        break;
    case 8:
        slot->scope[GP_WIRE_HOST].reserved_peak_bytes = -1;
        break;
    case 9:
        slot->request_id++;
        break;
    case 10:
        slot->command = GP_COMMAND_MARK;
        break;
    default:
        break;
    }
}

static void *forge_often(void *argument)
{
    struct forged *forged = argument;
    while (__atomic_load_n(&forged->running, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
            struct gp_wire_slot *slot = &forged->s.mailbox->slots[i];
            if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != GP_SLOT_REQUESTED)
                continue;
            forge(slot, forged->field);
            __atomic_store_n(&slot->state, forged->field == 11 ? 77u : GP_SLOT_DONE, __ATOMIC_RELEASE);
            gp_futex_wake(&slot->state);
        }
        usleep(200);
    }
    return NULL;
}

Test(collect, every_forged_answer_is_detected)
{
    struct forged forged = {.field = 0};
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    cr_assert_eq(gp_test_session_make(&forged.s, 8, true), 0);
    forged.s.mailbox->drain_tid = 1;
    cr_assert_eq(gp_peer_adopt(&session, dup(forged.s.fd), problem), 0);
    for (; forged.field <= 11; forged.field++) {
        pthread_t thread;
        __atomic_store_n(&forged.running, 1, __ATOMIC_RELEASE);
        cr_assert_eq(pthread_create(&thread, NULL, forge_often, &forged), 0);
        memset(slot, 0, sizeof(*slot));
        slot->command = GP_COMMAND_RESET;
        int rc = gp_mailbox_call(&session, slot, gp_clock_ns() + 20000000000ull);
        __atomic_store_n(&forged.running, 0, __ATOMIC_RELEASE);
        pthread_join(thread, NULL);
        cr_assert_eq(rc, forged.field ? -EPROTO : 0, "field %d: %d", forged.field, rc);
    }
    free(slot);
    gp_peer_close(&session);
    gp_test_session_free(&forged.s);
}

Test(collect, silent_peer)
{
    struct gp_test_session s;
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    cr_assert_eq(gp_test_session_make(&s, 8, true), 0);
    cr_assert_eq(gp_peer_adopt(&session, dup(s.fd), problem), 0);
    cr_assert_eq(gp_mailbox_call(&session, slot, gp_clock_ns() + 50000000), -ETIMEDOUT, "drain_tid 0");
    s.mailbox->drain_tid = 1;
    cr_assert_eq(gp_mailbox_call(&session, slot, gp_clock_ns() + 50000000), -ETIMEDOUT);
    cr_assert_eq(s.mailbox->slots[0].state, GP_SLOT_FREE, "the slot is free again");
    for (unsigned i = 0; i < GP_WIRE_SLOTS; i++)
        s.mailbox->slots[i].state = GP_SLOT_CLAIMED;
    cr_assert_eq(gp_mailbox_call(&session, slot, gp_clock_ns() + 50000000), -ETIMEDOUT, "no slot is free");
    free(slot);
    gp_peer_close(&session);
    gp_test_session_free(&s);
}

/* ---- the machine ---------------------------------------------------------------------------------------------- */

/* Processor time: what other programs take of the machine is no cost of a scan. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

Test(collect, a_hundred_processes_of_thirty_descriptors, .timeout = 60)
{
    pid_t pids[100];
    for (int i = 0; i < 100; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            for (int fd = 0; fd < 30; fd++)
                open("/dev/null", O_RDONLY);
            pause();
            _exit(0);
        }
    }
    usleep(200000);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        struct gp_collect_options options = {.exact = false};
        struct gp_system *system;
        uint64_t before = cpu_ns();
        cr_assert_eq(gp_collect(&options, &system), 0);
        uint64_t took = cpu_ns() - before;
        best = took < best ? took : best;
        gp_system_free(system);
    }
    for (int i = 0; i < 100; i++)
        gp_test_process_stop(pids[i]);
    fprintf(stderr, "scan of 100 processes x 30 descriptors and the rest of the machine: %.1f ms of CPU\n",
            (double)best / 1e6);
    cr_assert_lt(best, 100000000);
}

Test(collect, container_ids)
{
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const char *const forms[] = {"12:memory:/docker/%s\n",
                                        "0::/system.slice/docker-%s.scope\n",
                                        "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope\n",
                                        "0::/kubepods/besteffort/pod77/%s\n",
                                        "0::/machine.slice/libpod-%s.scope/container\n",
                                        "0::/crio-%s.scope"};
    char text[300], container[72];
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        snprintf(text, sizeof(text), forms[i], id);
        gp_proc_container(text, container, sizeof(container));
        cr_assert_str_eq(container, "0123456789ab", "%s", text);
    }
    snprintf(text, sizeof(text), "0::/user.slice/%s0\n0::/x%s\n0::/%.63s\n", id, id, id);
    gp_proc_container(text, container, sizeof(container));
    cr_assert_str_eq(container, "");
}

/* A worker of Ray as it is seen: titles are padded with blanks, and the job of one that was there before any job is none. */
static void expect_ray(const char *title, const char *job, const char *comm, const char *ray_job)
{
    struct gp_process process = {0};
    struct gp_proc proc;
    char variable[64];
    int begin[2];
    cr_assert_eq(pipe2(begin, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *environment[] = {"A_RAY_JOB_ID=1", variable, "RAY_CLIENT_MODE=0", NULL};
        snprintf(variable, sizeof(variable), "RAY_JOB_ID=%s", job);
        dup2(begin[0], 0);
        execve("/bin/cat", (char *[]){(char *)title, NULL}, environment);
        _exit(1);
    }
    /* Until it has executed: its name follows its arguments. */
    for (int i = 0; i < 1000 && (strncmp(process.cmdline, title, 4) != 0 || strcmp(process.comm, "test_collect") == 0);
         i++) {
        cr_assert_eq(gp_proc_open(&proc, pid), 0);
        gp_proc_describe(&proc, &process);
        gp_proc_close(&proc);
        usleep(10000);
    }
    cr_expect_str_eq(process.comm, comm);
    cr_expect_str_eq(process.ray_job, ray_job);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(begin[0]);
    close(begin[1]);
}

Test(collect, workers_of_ray)
{
    expect_ray("ray::PolicyTrainer.step          ", "0100002a", "ray::PolicyTrainer.step", "0100002a");
    expect_ray("ray::preprocess", "ffffffff", "ray::preprocess", "");
    expect_ray("ray::a\033[1mb", "01\n00000", "ray::a?[1mb", "");
    expect_ray("ray::long", "0100002a01", "ray::long", "");
    expect_ray("raylet", "0100002a", "cat", "");
}

Test(collect, clean_text)
{
    char to[8];
    gp_text_clean(to, sizeof(to), "abcdefghij", 10);
    cr_assert_str_eq(to, "abcdefg");
    gp_text_clean(to, sizeof(to), "abcdef\xe2\x82\xac", 9);
    cr_assert_str_eq(to, "abcdef", "a character is not cut in two");
    gp_text_clean(to, sizeof(to), "a\xe2\x80\xaez", 5); /* right-to-left override */
    cr_assert_str_eq(to, "a?z");
    gp_text_clean(to, sizeof(to), "\xed\xa0\x80", 3); /* a surrogate */
    cr_assert_str_eq(to, "???");
}

/* A stand-in for NVML, compiled here: one GPU, which lists the pids in GP_FAKE_PIDS. */
static const char fake_nvml[] =
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "struct info { unsigned pid; unsigned long long used; unsigned a, b; };\n"
    "int nvmlInit_v2(void) { return 0; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return i ? 2 : 0; }\n"
    "int nvmlDeviceGetUUID(void *h, char *t, unsigned n) { (void)h;\n"
    "  snprintf(t, n, \"GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf\"); return 0; }\n"
    "int nvmlDeviceGetName(void *h, char *t, unsigned n) { (void)h; snprintf(t, n, \"NVIDIA Fake\"); return 0; }\n"
    "int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { (void)h; m[0] = 1000; m[1] = 400; m[2] = 600; "
    "return 0; }\n"
    "int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *n, struct info *list) { (void)h;\n"
    "  char text[200]; snprintf(text, sizeof(text), \"%s\", getenv(\"GP_FAKE_PIDS\")); unsigned k = 0;\n"
    "  for (char *w = strtok(text, \",\"); w; w = strtok(NULL, \",\"), k++)\n"
    "    if (k < *n) list[k] = (struct info){atoi(w), (k + 1) * 3000000ull, 0, 0};\n"
    "  int rc = k > *n ? 7 : 0; *n = k; return rc; }\n";

static bool fake_nvml_build(const char *folder)
{
    char path[200], command[600];
    snprintf(path, sizeof(path), "%s/nvml.c", folder);
    FILE *file = fopen(path, "w");
    fputs(fake_nvml, file);
    fclose(file);
    snprintf(command, sizeof(command),
             "cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o %s/libnvidia-ml.so.1 %s 2>/dev/null", folder, path);
    return system(command) == 0;
}

static bool is_live(const struct gp_system *system, pid_t pid)
{
    for (int i = 0; i < system->process_count; i++)
        if (system->processes[i].pid == pid)
            return system->processes[i].state == GP_PROCESS_LIVE;
    return false;
}

Test(collect, nvml)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", path[200], pids[64];
    cr_assert(mkdtemp(folder));
    if (!fake_nvml_build(folder))
        cr_skip("no C compiler");
    /* Load it by its full path first: a later dlopen of the bare name finds the same library. */
    snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", folder);
    extern void *dlopen(const char *, int);
    cr_assert(dlopen(path, 2));
    snprintf(path, sizeof(path), "rm -r %s", folder);
    cr_assert_eq(system(path), 0);
    pid_t pid = start((struct gp_test_process_options){0});
    snprintf(pids, sizeof(pids), "%d,%d", (int)pid, (int)getpid());
    setenv("GP_FAKE_PIDS", pids, 1);
    struct gp_collect_options options = {.exact = true, .with_nvml = true};
    struct gp_system *system;
    cr_assert_eq(gp_collect(&options, &system), 0);
    for (int tries = 0; tries < 20 && !is_live(system, pid); tries++) { /* a loaded machine answers too late */
        gp_system_free(system);
        cr_assert_eq(gp_collect(&options, &system), 0);
    }
    cr_assert(system->nvml, "%s", system->nvml_problem);
    cr_assert_geq(system->gpu_count, 1);
    cr_assert_eq(system->gpus[0].used_bytes, 600);
    cr_assert_str_eq(system->gpus[0].name, "NVIDIA Fake");
    bool foreign = false, profiled = false;
    for (int i = 0; i < system->process_count; i++) {
        struct gp_process *p = &system->processes[i];
        if (p->pid == getpid()) {
            foreign = true;
            cr_assert_eq(p->state, GP_PROCESS_FOREIGN);
            cr_assert_eq(p->device_count, 1);
            cr_assert_eq(p->devices[0].untracked_bytes, 6000000);
        }
        if (p->pid == pid) {
            profiled = true;
            cr_assert_eq(p->state, GP_PROCESS_LIVE);
            cr_assert_eq(p->devices[0].untracked_bytes, gp_proc_host_pids() ? 3000000 - (1 << 20) : -1);
        }
    }
    cr_assert(profiled);
    cr_assert_eq(foreign, gp_proc_host_pids(), "NVML's pids are the machine's");
    gp_system_free(system);
    gp_test_process_stop(pid);
}

Test(collect, without_nvml_it_is_unknown)
{
    struct gp_collect_options options = {.with_nvml = true};
    struct gp_system *system;
    cr_assert_eq(gp_collect(&options, &system), 0);
    if (!system->nvml)
        cr_assert(system->nvml_problem[0], "a reason is given");
    gp_system_free(system);
}

/* Creates, in its own root and file system, a file that /proc shows under the name of a session. */
static void pretend(const char *dir, int ready)
{
    const char *name = "/memfd:" GP_WIRE_SESSION_NAME, *stage = "";
    int fd = -1;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        stage = "unshare";
    else if (mount("none", dir, "tmpfs", 0, NULL) != 0 || chdir(dir) != 0)
        stage = "mount";
    else if (syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0)
        stage = "pivot";
    else if ((fd = open(name, O_RDWR | O_CREAT, 0700)) < 0 || write(fd, "a header", 8) != 8 || unlink(name) != 0)
        stage = "file";
    dprintf(ready, "%s", *stage ? stage : "ready");
    pause();
    _exit(0);
}

/* Opening the file of a FUSE server that does not answer would block. */
Test(collect, a_file_with_a_sessions_name_on_another_file_system_is_not_opened)
{
    static const char session[] = "/memfd:" GP_WIRE_SESSION_NAME " (deleted)";
    int ready[2];
    char state[6] = "", link[4096], dir[] = "/tmp/gpuprof-test-collect-XXXXXX", problem[GP_PROBLEM_BYTES];
    if (geteuid() != 0)
        cr_skip_test("not root");
    cr_assert(mkdtemp(dir) && pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0)
        pretend(dir, ready[1]);
    close(ready[1]);
    ssize_t n = read(ready[0], state, 5);
    struct gp_proc proc;
    struct gp_peer peer;
    cr_expect_gt(n, 0);
    cr_expect_eq(gp_proc_open(&proc, pid), 0);
    bool is_shown = false, is_below = false; /* in a chroot, the path begins with that of the root */
    for (int fd = 0; fd < 64 && !is_shown; fd++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        is_shown = strcmp(link, session) == 0;
        is_below |= strlen(link) > strlen(session) && strcmp(link + strlen(link) - strlen(session), session) == 0;
    }
    bool is_chroot = is_below && !is_shown;
    if (strcmp(state, "ready") == 0 && !is_chroot) {
        cr_expect(is_shown, "%s", link);
        cr_expect_eq(gp_peer_open(&peer, &proc, problem), -ENOENT, "%s", problem);
    }
    gp_proc_close(&proc);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    rmdir(dir);
    if (strcmp(state, "ready") != 0)
        cr_skip_test("no mount namespace: %s", state);
    if (is_chroot)
        cr_skip_test("in a chroot: the kernel names the file by a longer path");
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* Whatever the answer is, it leaves no descriptor behind but the session's. */
Test(collect, a_session_by_its_process_says_why_not)
{
    char problem[GP_PROBLEM_BYTES] = "x";
    struct gp_peer peer;
    int before = descriptors();
    cr_expect_eq(gp_peer_open_pid(&peer, getpid(), problem), -ESRCH, "a process without a session");
    cr_expect(peer.fd == -1 && problem[0] == '\0', "%s", problem);
    peer.fd = 99; /* of another */
    cr_expect_eq(gp_peer_open_pid(&peer, 0x3fffffff, problem), -ESRCH, "no process");
    cr_expect_eq(peer.fd, -1);
    cr_expect_eq(descriptors(), before);
    pid_t pid = start((struct gp_test_process_options){0});
    before = descriptors();
    cr_assert_eq(gp_peer_open_pid(&peer, pid, problem), 0, "%s", problem);
    cr_expect_geq(peer.fd, 0);
    cr_expect_eq(descriptors(), before + 1);
    gp_peer_close(&peer);
    cr_expect_eq(peer.fd, -1);
    gp_peer_close(&peer); /* closes nothing of another */
    cr_expect_eq(descriptors(), before);
    gp_test_process_stop(pid);
}
