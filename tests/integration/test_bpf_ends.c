/* SPDX-License-Identifier: MIT
 *
 * test_bpf_ends.c: tests all kinds of deaths, reused pids, and moves between the cgroup hierarchies
 * of a version 1 host: the sums always have exactly the bytes of the living processes.
 * Run: alone
 */
#include "agent/maps/maps.h"
#include "bpf/rig.h"
#include "lib/reusepid.h"

/* ---- ends ------------------------------------------------------------------------------------------------------ */

Test(bpf_ends, every_end_removes_the_bytes, .init = begin, .fini = end, .timeout = 60)
{
    for (int how = 0; how < 3; how++) {
        struct kid *kid = kid_start(0);
        kid_tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
        kid_tell(kid, "m 63 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
        cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB));
        pid_t pid = kid->pid;
        siginfo_t info;
        if (how == 0)
            kill(pid, SIGKILL);
        else if (how == 1) {
            fputs("q\n", kid->to);
            fflush(kid->to);
        } else
            cr_assert(eq(i64, kid_tell(kid, "x"), 0));
        if (how != 2)
            cr_assert(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
        /* The bytes are gone before any other process can know of the end, not some time later. */
        cr_assert(eq(u32, device_sum(1).processes, 0), "%d", how);
        kid_end(kid, SIGKILL);
        cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
        cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 0));
        cr_assert(eq(i64, device_sum(1).calls, 4 * (how + 1)), "calls of ended processes were removed");
        struct gp_map_process row;
        cr_assert(process_row(pid, 0, &row) != 0);
        cr_assert(eq(u64, container(0).entries, 0));
    }
}

/* Creates a memory cgroup of either version with 32 MiB; false if that is not possible. */
static bool memory_group(char *group, size_t bytes, const char **limit)
{
    static const char *const at[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                        {"/sys/fs/cgroup", "memory.max"}};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX + 64];
        snprintf(group, bytes, "%s/gpuprof-test-oom-%d", at[i][0], getpid());
        if (mkdir(group, 0755))
            continue;
        snprintf(path, sizeof path, "%s/%s", group, at[i][1]);
        FILE *file = fopen(path, "w");
        bool is_set = file && fputs("33554432", file) >= 0;
        if (file && fclose(file) == 0 && is_set) {
            *limit = at[i][1];
            return true;
        }
        rmdir(group);
    }
    return false;
}

Test(bpf_ends, killed_out_of_memory, .init = begin, .fini = end, .timeout = 60)
{
    char group[256], path[300];
    const char *limit;
    if (!memory_group(group, sizeof group, &limit))
        cr_skip_test("no memory cgroup");
    struct kid *kid = kid_start(0);
    kid_tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    FILE *file = fopen(path, "w");
    fprintf(file, "%d", kid->pid);
    int moved = fclose(file);
    fputs("w\n", kid->to);
    fflush(kid->to);
    siginfo_t info = {0};
    waitid(P_PID, (id_t)kid->pid, &info, WEXITED | WNOWAIT);
    int64_t left = device_sum(1).allocated_bytes;
    kid_end(kid, SIGKILL);
    group_remove(group);
    cr_assert(eq(int, moved, 0));
    cr_assert(eq(int, info.si_code, CLD_KILLED));
    cr_assert(eq(int, info.si_status, SIGKILL));
    cr_assert(eq(i64, left, 0));
}

/* The next process gets the dead one's pid: a new row, and the sums have no byte of the old one. */
Test(bpf_ends, a_reused_pid, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    pid_t pid = kid->pid;
    kid_tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", 5 * MIB, 5 * MIB, GIB);
    kid_tell(kid, "m 1 1 %lld %lld 0 0 2 %lld", 5 * MIB, 5 * MIB, GIB);
    struct gp_map_process before, after;
    cr_assert(process_row(pid, 0, &before) == 0);
    kid_end(kid, SIGKILL);
    for (int i = 0; i < 50; i++) { /* another process may get it first */
        if (!reusepid_next(pid))
            cr_skip_test("a pid cannot be chosen");
        kid_count = 0;
        kid = kid_start(1);
        if (kid->pid == pid)
            break;
        kid_end(kid, SIGKILL);
    }
    if (kid->pid != pid)
        cr_skip_test("the pid could not be reused");
    kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(process_row(pid, 0, &after) == 0);
    cr_assert(ne(u64, before.start_ns, after.start_ns));
    cr_assert(eq(u64, after.cgroup_id, group_id[1]));
    cr_assert(process_row(pid, 1, &before) != 0);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 0));
}

/* If an end was missed and the pid is reused, the next batch removes the dead process's rows. */
Test(bpf_ends, an_end_that_was_missed, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    for (int i = 0; i < 2; i++)
        kid_tell(kid, "m %d 1 %lld %lld 0 0 2 %lld", i, 5 * MIB, 5 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 10 * MIB));
    uint64_t state[32]; /* its first word is the start time */
    uint32_t tgid = (uint32_t)kid->pid;
    int process = gp_bpf_map(bpf, "process");
    cr_assert(bpf_map_lookup_elem(process, &tgid, state) == 0);
    state[0] -= 1000;
    cr_assert(bpf_map_update_elem(process, &tgid, state, BPF_EXIST) == 0);
    kid_tell(kid, "m 0 1 %lld %lld 0 0 3 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(u32, device_sum(1).processes, 1));
    cr_assert(eq(i64, device_sum(1).calls, 7));
    cr_assert(eq(u64, container(0).entries, 1));
}

Test(bpf_ends, a_storm_of_execs, .init = begin, .fini = end, .timeout = 120)
{
    int times = getenv("GPUPROF_TEST_SLOW") ? 20 : 300;
    for (int i = 0; i < 2; i++)
        kid_start(i);
    for (int i = 0; i < times; i++)
        for (int j = 0; j < 2; j++) {
            kid_tell(&kids[j], "m 0 1 %lld %lld 0 0 2 %lld", MIB, 9 * MIB, GIB);
            kid_tell(&kids[j], "m 63 2 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
            cr_assert(eq(i64, kid_tell(&kids[j], "x"), 0));
        }
    for (int uuid = 1; uuid <= 2; uuid++) {
        cr_assert(eq(i64, device_sum(uuid).allocated_bytes, 0));
        cr_assert(eq(u32, device_sum(uuid).processes, 0));
        cr_assert(eq(i64, device_sum(uuid).calls, 4 * times));
    }
    cr_assert(eq(i64, device_sum(1).allocated_peak_bytes, 9 * MIB));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gone, 2 * (uint64_t)times));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gap_batches, 0));
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u64, container(0).devices, 2));
}

Test(bpf_ends, a_process_lives_until_its_last_thread_ends, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    kid_tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
    kid_tell(kid, "t");
    usleep(50000);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB), "removed although only its leader has ended");
    kid_tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", 2 * MIB, 2 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB));
    kid_end(kid, SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
}

Test(bpf_ends, the_agents_fallback, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    kid_tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
    struct gp_map_process row;
    cr_assert(process_row(kid->pid, 0, &row) == 0);
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, row.start_ns + 1), -ENOENT),
              "another process with that pid was removed");
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, row.start_ns), 0));
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, row.start_ns), -ENOENT));
}

Test(bpf_ends, closing_disarms, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    cr_assert(eq(i64, kid_tell(kid, "s"), 1));
    close(link_fd);
    link_fd = -1;
    for (int i = 0; i < 200 && kid_tell(kid, "s") != 0; i++)
        usleep(5000);
    cr_assert(eq(i64, kid_tell(kid, "s"), 0));
}

Test(bpf_ends, many_short_processes, .init = begin, .fini = end, .timeout = 300)
{
    /* 100 000 processes take minutes on an emulator; GPUPROF_TEST_MANY asks for them. */
    const char *many = getenv("GPUPROF_TEST_MANY");
    long times = many ? atol(many) : 5000;
    struct kid *kid = kid_start(0);
    cr_assert(eq(i64, kid_tell(kid, "f %ld", times), 0));
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    cr_assert(eq(u32, device_sum(1).processes, 0));
    cr_assert(eq(i64, device_sum(1).calls, times));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gone, (uint64_t)times));
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->map_full, 0));
}

/* ---- hosts of version 1 ---------------------------------------------------------------------------------------- */

/* Creates another cgroup below this folder; returns its number. */
static uint64_t more_group(const char *below, const char *suffix)
{
    char *path = more[more_count];
    struct stat about;
    snprintf(path, sizeof more[0], "%s/gpuprof-test-%d%s", below, getpid(), suffix);
    if (mkdir(path, 0755))
        cr_skip_test("cannot make %s: %s", path, strerror(errno));
    more_count++;
    cr_assert(stat(path, &about) == 0);
    return about.st_ino;
}

#define MEMORY "/sys/fs/cgroup/memory"
#define PIDS   "/sys/fs/cgroup/pids"

/* The cgroup in which the process's next batch is counted. */
static uint64_t counted_in(struct kid *kid, long long bytes)
{
    struct gp_map_process row;
    kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", bytes, bytes, GIB);
    cr_assert(process_row(kid->pid, 0, &row) == 0);
    cr_assert(eq(i64, sum_of_cgroup(row.cgroup_id, 1).allocated_bytes, bytes));
    cr_assert(eq(u32, sum_of_cgroup(row.cgroup_id, 1).processes, 1));
    cr_assert(eq(u64, row_of_cgroup(row.cgroup_id).entries, 1));
    return row.cgroup_id;
}

static void path_is(uint64_t id, pid_t hint, const char *group, const char *mount)
{
    struct gp_container_name name;
    cr_assert(eq(int, gp_container_lookup("", id, hint, &name), 0));
    cr_assert(eq(str, name.path, (char *)group + strlen(mount)));
}

static void root_of_version_2(char *path, size_t bytes)
{
    if (access(MEMORY "/cgroup.procs", W_OK))
        cr_skip_test("memory is not under version 1 at " MEMORY);
    cr_assert(mounts_find("cgroup2", NULL, path, bytes));
}

Test(bpf_ends, containers_of_version_1, .init = begin, .fini = end, .timeout = 60)
{
    char root[512];
    root_of_version_2(root, sizeof root);
    uint64_t a_id = more_group(MEMORY, "-a") | GP_MAP_CGROUP_V1, b_id = more_group(MEMORY, "-b") | GP_MAP_CGROUP_V1;
    struct kid *a = kid_start(0), *b = kid_start(0);
    cr_assert(enter(root, a->pid) && enter(root, b->pid) && enter(more[0], a->pid) && enter(more[1], b->pid));
    kid_tell(b, "m 0 1 %lld %lld 0 0 1 %lld", 2 * MIB, 2 * MIB, GIB);
    cr_assert(eq(u64, counted_in(a, MIB), a_id));
    cr_assert(eq(i64, sum_of_cgroup(b_id, 1).allocated_bytes, 2 * MIB));
    for (int i = 0; i < 2; i++) { /* by a process in it, then by the hierarchy only */
        path_is(a_id, i ? a->pid : 0, more[0], MEMORY);
        path_is(b_id, i ? a->pid : 0, more[1], MEMORY);
    }
    cr_assert(enter(more[1], a->pid));
    kid_tell(a, "m 0 1 %lld %lld 0 0 1 %lld", 3 * MIB, 3 * MIB, GIB);
    cr_assert(eq(u32, sum_of_cgroup(a_id, 1).processes, 0));
    cr_assert(eq(i64, sum_of_cgroup(a_id, 1).allocated_bytes, 0));
    cr_assert(eq(u64, row_of_cgroup(a_id).entries, 0));
    cr_assert(eq(u32, sum_of_cgroup(b_id, 1).processes, 2));
    cr_assert(eq(i64, sum_of_cgroup(b_id, 1).allocated_bytes, 5 * MIB));
    kid_end(b, SIGKILL);
    cr_assert(eq(i64, sum_of_cgroup(b_id, 1).allocated_bytes, 3 * MIB));
    kid_end(a, SIGKILL);
    cr_assert(eq(u32, sum_of_cgroup(b_id, 1).processes, 0));
    cr_assert(eq(u64, row_of_cgroup(b_id).entries, 0));
    cr_assert(gp_bpf_forget_containers(bpf, &b_id, 1, NULL) == 2);
}

Test(bpf_ends, which_of_two_hierarchies_counts, .init = begin, .fini = end, .timeout = 60)
{
    char root[512];
    root_of_version_2(root, sizeof root);
    uint64_t old = more_group(MEMORY, "-a") | GP_MAP_CGROUP_V1, service = more_group(root, ".service");
    struct kid *kid = kid_start(0);
    cr_assert(enter(more[0], kid->pid));
    cr_assert(eq(u64, counted_in(kid, MIB), group_id[0]), "not counted in its version 2 cgroup");
    cr_assert(enter(more[1], kid->pid));
    cr_assert(eq(u64, counted_in(kid, 2 * MIB), old), "counted in the cgroup of its runtime");
    cr_assert(enter(MEMORY, kid->pid));
    cr_assert(eq(u64, counted_in(kid, 3 * MIB), service), "a service");
    cr_assert(enter(root, kid->pid));
    if (access(PIDS "/cgroup.procs", W_OK))
        return;
    cr_assert(enter(PIDS, kid->pid));
    cr_assert(eq(u64, counted_in(kid, 4 * MIB), 1), "not counted in the root");
    uint64_t pids = more_group(PIDS, "-p") | GP_MAP_CGROUP_V1_PIDS;
    cr_assert(enter(more[2], kid->pid));
    cr_assert(eq(u64, counted_in(kid, 5 * MIB), pids));
    for (int i = 0; i < 2; i++)
        path_is(pids, i ? kid->pid : 0, more[2], PIDS);
}
