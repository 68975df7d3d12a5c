/* SPDX-License-Identifier: MIT
 *
 * test_bpf.c: tests the BPF program in the running kernel, fed by tests/programs/probe_fire.c: its
 * sums against an oracle of all claims, full tables, forged batches, floods. Each test has private
 * maps and arms a private copy of the program, so concurrent tests and a live agent do not
 * interfere. Skips without BPF.
 */
#include "agent/kernel/bpf.h"
#include "bpf/rig.h"
#include "lib/spawn.h"
#include "loaderabi.h"
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static void oracle_run(void)
{
    enum { STEPS = 600, PROCESSES = 6, DEVICES = 2 };
    long long has[PROCESSES][DEVICES] = {{0}}, high_of[DEVICES] = {0}, group_high[3][DEVICES] = {{0}};
    long long calls[PROCESSES][DEVICES] = {{0}};
    unsigned seed = 42;
    for (int i = 0; i < PROCESSES; i++)
        kid_start(i % 3);
    for (int step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % PROCESSES, d = rand_r(&seed) % DEVICES;
        long long to = (rand_r(&seed) % 4096) * MIB,
                  high = (to > has[i][d] ? to : has[i][d]) + (rand_r(&seed) % 64) * MIB;
        long long sum = 0, group_sum = 0;
        for (int j = 0; j < PROCESSES; j++) {
            sum += j == i ? high : has[j][d];
            group_sum += j % 3 == i % 3 ? (j == i ? high : has[j][d]) : 0;
        }
        if (sum > high_of[d])
            high_of[d] = sum;
        if (group_sum > group_high[i % 3][d])
            group_high[i % 3][d] = group_sum;
        has[i][d] = to;
        calls[i][d] += 3;
        /* More may sleep than the device holds. */
        kid_tell(&kids[i], "m %d %d %lld %lld %lld %lld %lld %lld %lld %lld", d, d + 1, to, high, to * 2, high * 2,
                 calls[i][d], 64 * GIB, to * 32, high * 32);
    }
    for (int d = 0; d < DEVICES; d++) {
        long long sum = 0, group[3] = {0}, all_calls = 0;
        for (int i = 0; i < PROCESSES; i++)
            sum += has[i][d], group[i % 3] += has[i][d], all_calls += calls[i][d];
        struct gp_map_sum got = device_sum(d + 1);
        cr_assert(eq(i64, got.allocated_bytes, sum));
        cr_assert(eq(i64, got.reserved_bytes, 2 * sum));
        cr_assert(eq(i64, got.allocated_peak_bytes, high_of[d]), "exact machine-wide peak");
        cr_assert(eq(i64, got.reserved_peak_bytes, 2 * high_of[d]));
        cr_assert(eq(i64, got.asleep_bytes, 32 * sum));
        cr_assert(eq(i64, got.asleep_peak_bytes, 32 * high_of[d]));
        cr_assert(eq(i64, got.calls, all_calls));
        cr_assert(eq(i64, got.total_bytes, 64 * GIB));
        cr_assert(eq(u32, got.processes, PROCESSES));
        for (int g = 0; g < 3; g++) {
            got = container_sum(g, d + 1);
            cr_assert(eq(i64, got.allocated_bytes, group[g]));
            cr_assert(eq(i64, got.allocated_peak_bytes, group_high[g][d]));
            cr_assert(eq(i64, got.asleep_bytes, 32 * group[g]));
            cr_assert(eq(i64, got.asleep_peak_bytes, 32 * group_high[g][d]));
            cr_assert(eq(u32, got.processes, 2));
        }
    }
    cr_assert(eq(u64, gp_bpf_meta(bpf)->batches, STEPS));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->clamped, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->refused_batches, 0));
}

Test(bpf, sums_and_peaks_agree_with_the_oracle, .init = begin, .fini = end, .timeout = 120)
{
    oracle_run();
}

static void begin_by_perf(void)
{
    begin_with(&(struct gp_bpf_options){.by_perf = true});
}

Test(bpf, sums_are_the_same_through_perf, .init = begin_by_perf, .fini = end, .timeout = 120)
{
    cr_assert(not(gp_bpf_is_multi(bpf)));
    oracle_run();
}

Test(bpf, identity_comes_from_the_kernel, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(1);
    kid_tell(kid, "m 3 1 %lld %lld 0 0 1 %lld", MIB, 2 * MIB, GIB);
    struct gp_map_process row;
    cr_assert(process_row(kid->pid, 3, &row) == 0);
    cr_assert(eq(u64, row.cgroup_id, group_id[1]));
    cr_assert(eq(u32, row.uid, 0));
    cr_assert(strncmp(row.comm, "gpuprof-test-fire", 15) == 0, "%.16s", row.comm);
    cr_assert(eq(i64, row.allocated_bytes, MIB));
    cr_assert(eq(i64, row.allocated_peak_bytes, 2 * MIB));
    cr_assert(row.start_ns != 0);
    cr_assert(eq(i64, kid_tell(kid, "u 65534"), 0));
    kid_tell(kid, "m 3 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(process_row(kid->pid, 3, &row) == 0);
    cr_assert(eq(u32, row.uid, 65534));
}

Test(bpf, a_device_that_becomes_known_and_a_move_between_cgroups, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    kid_tell(kid, "m 0 0 %lld %lld 0 0 5 -1", MIB, MIB);
    cr_assert(eq(u32, device_sum(0).processes, 0), "an unknown device is in a sum");
    kid_tell(kid, "m 0 1 %lld %lld 0 0 6 %lld", 2 * MIB, 2 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB));
    cr_assert(eq(i64, device_sum(1).calls, 6));
    cr_assert(enter(groups[2], kid->pid));
    kid_tell(kid, "m 0 1 %lld %lld 0 0 7 %lld", 3 * MIB, 3 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 3 * MIB));
    cr_assert(eq(i64, device_sum(1).calls, 7), "calls were counted twice");
    cr_assert(eq(u32, device_sum(1).processes, 1));
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 0));
    cr_assert(eq(u32, container_sum(0, 1).processes, 0));
    cr_assert(eq(i64, container_sum(2, 1).allocated_bytes, 3 * MIB));
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u64, container(2).entries, 1));
    kid_tell(kid, "m 0 2 %lld %lld 0 0 7 %lld", 4 * MIB, 4 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0), "bytes stayed on the device that had the index before");
    cr_assert(eq(i64, device_sum(2).allocated_bytes, 4 * MIB));
    kid_end(kid, SIGKILL);
    cr_assert(eq(u64, container(2).entries, 0));
    cr_assert(gp_bpf_forget_containers(bpf, &group_id[2], 1, NULL) >= 2);
    cr_assert(eq(i64, container_sum(2, 2).total_bytes, -99), "its rows remain");
}

Test(bpf, repeated_and_missing_batches, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    kid_tell(kid, "o");
    cr_assert(eq(u64, gp_bpf_meta(bpf)->old_batches, 1));
    kid_tell(kid, "g 5");
    kid_tell(kid, "l 17");
    kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gap_batches, 5));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->lost, 17));
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, 0), 0));
    kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->lost, 17), "losses before the first batch were counted");
    kid_tell(kid, "l 20");
    kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->lost, 20));
}

Test(bpf, peaks_restart_after_a_reset, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *a = kid_start(0), *b = kid_start(1);
    kid_tell(a, "m 0 1 %lld %lld %lld %lld 1 %lld", MIB, 9 * MIB, MIB, 9 * MIB, GIB);
    kid_tell(b, "m 0 1 %lld %lld %lld %lld 1 %lld", MIB, MIB, MIB, MIB, GIB);
    struct gp_map_device_key every = {{0}};
    struct gp_map_reset reset = {.allocated_ns = (uint64_t)now_ns()};
    cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "reset"), &every, &reset, BPF_ANY) == 0);
    kid_tell(b, "m 0 1 %lld %lld %lld %lld 1 %lld", 0ll, MIB, MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_peak_bytes, 2 * MIB),
              "the peak did not restart from the value at the reset");
    cr_assert(eq(i64, device_sum(1).reserved_peak_bytes, 9 * MIB), "the other peak changed");
    cr_assert(eq(i64, container_sum(1, 1).allocated_peak_bytes, MIB));
    cr_assert(eq(i64, container_sum(0, 1).allocated_peak_bytes, 9 * MIB), "an unchanged row was changed by the reset");
    kid_tell(a, "m 0 1 %lld %lld %lld %lld 1 %lld", MIB, 4 * MIB, MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_peak_bytes, 4 * MIB));
}

/* A row of which one word was reset: that peak starts from what is held, the other one stays. */
static void word_check(const char *what, int64_t peak, int64_t held, int64_t before, bool was_reset)
{
    cr_expect(eq(i64, peak, was_reset ? held : before), "%s", what);
}

Test(bpf, each_word_is_reset_alone_for_one_device_and_for_all, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    for (int uuid = 1; uuid <= 8; uuid++) {
        bool reserved = uuid & 1, one = uuid & 2, twice = uuid & 4; /* twice: the newer of two resets counts */
        char what[80];
        struct gp_map_device_key key = {{0}}, other = {{0}};
        struct gp_map_reset reset = {0}, old = {.allocated_ns = 1, .reserved_ns = 1};
        snprintf(what, sizeof(what), "%s of %s%s", reserved ? "reserved" : "allocated", one ? "one" : "all",
                 twice ? ", after an older reset" : "");
        memset(one ? key.uuid : other.uuid, uuid, 16);
        kid_tell(kid, "m %d %d %lld %lld %lld %lld 1 %lld %lld %lld", uuid, uuid, MIB, 9 * MIB, 2 * MIB, 18 * MIB, GIB,
                 3 * MIB, 27 * MIB);
        *(reserved ? &reset.reserved_ns : &reset.allocated_ns) = (uint64_t)now_ns();
        cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "reset"), &key, &reset, BPF_ANY) == 0);
        if (twice)
            cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "reset"), &other, &old, BPF_ANY) == 0);
        kid_tell(kid, "m %d %d %lld %lld %lld %lld 1 %lld %lld %lld", uuid, uuid, MIB, MIB, 2 * MIB, 2 * MIB, GIB,
                 3 * MIB, 3 * MIB);
        const struct gp_map_sum sums[] = {device_sum(uuid), container_sum(0, uuid)};
        for (int i = 0; i < 2; i++) {
            word_check(what, sums[i].allocated_peak_bytes, MIB, 9 * MIB, !reserved);
            word_check(what, sums[i].reserved_peak_bytes, 2 * MIB, 18 * MIB, reserved);
            word_check(what, sums[i].asleep_peak_bytes, 3 * MIB, 27 * MIB, !reserved);
        }
        struct gp_map_process row;
        cr_assert(eq(int, process_row(kid->pid, (uint32_t)uuid, &row), 0));
        word_check(what, row.allocated_peak_bytes, MIB, 9 * MIB, !reserved);
        word_check(what, row.reserved_peak_bytes, 2 * MIB, 18 * MIB, reserved);
        word_check(what, row.asleep_peak_bytes, 3 * MIB, 27 * MIB, !reserved);
    }
}

static uint32_t processes_known(void)
{
    uint32_t tgid, count = 0;
    for (void *from = NULL; bpf_map_get_next_key(gp_bpf_map(bpf, "process"), from, &tgid) == 0; from = &tgid)
        count++;
    return count;
}

static void begin_shares(void)
{
    begin_with(&(struct gp_bpf_options){.processes = 128});
}

/* One container may use 64 of the 128 entries, whatever its processes send. */
Test(bpf, sleeping_processes_leave_room_for_other_containers, .init = begin_shares, .fini = end, .timeout = 60)
{
    enum { SHARE = 64, MANY = 150 };
    struct kid *silent = kid_start(0), *wrong = kid_start(0), *real = kid_start(1);
    cr_assert(eq(i64, kid_tell(silent, "z %d 0 0", MANY), MANY));
    cr_assert(eq(u32, processes_known(), 0), "processes without rows have entries");
    cr_assert(eq(i64, kid_tell(wrong, "z %d 1 64", MANY), MANY));
    cr_assert(eq(u32, processes_known(), SHARE), "refused rows take more than the share");
    cr_assert(eq(u64, container(0).entries, SHARE));
    cr_assert(eq(u64, container(0).map_full, MANY - SHARE));
    kid_tell(real, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB), "the other container's process is not counted");
    cr_assert(eq(u64, container(1).entries, 1));
    kid_end(wrong, SIGKILL);
    for (int i = 0; i < 500 && container(0).entries; i++)
        usleep(10000);
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u32, processes_known(), 1));
    kid_tell(silent, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, MIB));
    cr_assert(eq(u64, container(0).entries, 1));
}

/* All fire at once and half are killed meanwhile: the sums are those of the living, to the byte. */
Test(bpf, many_at_once_and_a_storm_of_kills, .init = begin, .fini = end, .timeout = 120)
{
    enum { ALL = 6, KILLED = 3 };
    bool is_slow = getenv("GPUPROF_TEST_SLOW");
    for (int i = 0; i < ALL; i++)
        kid_start(i % 3);
    for (int i = 0; i < ALL; i++) {
        fprintf(kids[i].to, "c %d\n", is_slow ? 1000 : 100000);
        fflush(kids[i].to);
    }
    for (int i = 0; i < KILLED; i++) {
        usleep(30000);
        kid_end(&kids[i], SIGKILL);
    }
    for (int i = KILLED; i < ALL; i++)
        cr_assert(eq(i64, kid_answer(&kids[i]), 0));
    struct gp_map_sum sum = device_sum(1);
    cr_assert(eq(i64, sum.allocated_bytes, (ALL - KILLED) * 5 * MIB));
    cr_assert(eq(i64, sum.reserved_bytes, (ALL - KILLED) * 5 * MIB));
    cr_assert(eq(u32, sum.processes, ALL - KILLED));
    /* Each had 1000 MiB at every batch, so the smallest possible peak is one at 1000 MiB and the
     * others at their last value. */
    cr_assert(ge(i64, sum.allocated_peak_bytes, 1000 * MIB));
    cr_assert(le(i64, sum.allocated_peak_bytes, ALL * 1000 * MIB));
    for (int g = 0; g < 3; g++) {
        cr_assert(eq(i64, container_sum(g, 1).allocated_bytes, 5 * MIB));
        cr_assert(eq(u64, container(g).entries, 1));
    }
    cr_assert(eq(u64, gp_bpf_meta(bpf)->raced_batches, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->old_batches, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gap_batches, 0), "the kernel lost a batch");
}

/* ---- the library ----------------------------------------------------------------------------------------------- */

/* The sum of the machine's only device, once the batch with these calls and bytes has arrived. */
static struct gp_map_sum only_device(long long calls, long long bytes)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    for (int i = 0; i < 2000 && (sum.calls != calls || sum.allocated_bytes != bytes); i++) {
        usleep(5000);
        if (bpf_map_get_next_key(gp_bpf_map(bpf, "device"), NULL, &key) == 0)
            bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    }
    return sum;
}

static void library_run(struct spawn *spawn, const char *const *argv, const char *sim)
{
    close(link_fd);
    close(copy_fd);
    copy_of(path_library());
    link_copy();
    char inject[PATH_MAX + 32];
    snprintf(inject, sizeof inject, "CUDA_INJECTION64_PATH=%s", copy);
    const char *env[] = {inject, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .sim = sim, .want_library = true, .want_hold = true};
    cr_assert(spawn_start(spawn, &options) == 0);
}

static void library_kill(struct spawn *spawn)
{
    struct spawn_result result = {0};
    spawn_kill(spawn, SIGKILL);
    spawn_finish(spawn, &result);
    spawn_result_free(&result);
}

/* The sums agree with a program under the real library and the simulated GPU, until its kill -9. */
Test(bpf, a_program_under_the_library, .init = begin, .fini = end, .timeout = 120)
{
    static const long long peaks[] = {1, 5, 5, 9};
    struct spawn spawn;
    library_run(&spawn, (const char *[]){path_program("steps"), NULL}, NULL);
    for (int step = 0; step < 4; step++) {
        cr_assert(eq(int, step ? spawn_step(&spawn) : spawn_wait_held(&spawn, 1), 0));
        struct gp_map_sum sum = only_device(step + 1, MIB);
        cr_assert(eq(i64, sum.calls, step + 1));
        cr_assert(eq(i64, sum.allocated_bytes, MIB));
        cr_assert(eq(i64, sum.allocated_peak_bytes, peaks[step] * MIB), "step %d", step);
        cr_assert(eq(u32, sum.processes, 1));
    }
    library_kill(&spawn);
    struct gp_map_sum left = only_device(4, 0);
    cr_assert(eq(i64, left.allocated_bytes, 0));
    cr_assert(eq(i64, left.allocated_peak_bytes, 9 * MIB));
    cr_assert(eq(u32, left.processes, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->refused_batches, 0));
}

/* The program takes the memory away below two blocks of its framework, and is killed. */
Test(bpf, what_sleeps_under_the_library_is_in_a_sum_of_its_own, .init = begin, .fini = end, .timeout = 120)
{
    char folder[PATH_MAX];
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    struct spawn spawn;
    snprintf(folder, sizeof folder, "%s/../framework/unsigned-now", path_program("."));
    if (access(folder, F_OK) != 0)
        cr_skip_test("no framework here, as in tests/bpf/qemu.sh");
    library_run(&spawn, (const char *[]){path_program("framework"), "sleep", folder, NULL}, "memory=1GiB");
    cr_assert(spawn_wait_held(&spawn, 1) == 0);
    for (int i = 0; i < 2000 && (sum.asleep_bytes != 7 * MIB || sum.allocated_bytes); i++) {
        usleep(5000);
        if (bpf_map_get_next_key(gp_bpf_map(bpf, "device"), NULL, &key) == 0)
            bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    }
    cr_assert(eq(i64, sum.asleep_bytes, 7 * MIB));
    cr_assert(eq(i64, sum.asleep_peak_bytes, 7 * MIB));
    cr_assert(eq(i64, sum.allocated_bytes, 0));
    cr_assert(eq(i64, sum.reserved_bytes, 0));
    library_kill(&spawn);
    for (int i = 0; i < 2000 && sum.processes; i++, usleep(5000))
        bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    cr_assert(eq(i64, sum.asleep_bytes, 0));
    cr_assert(eq(i64, sum.asleep_peak_bytes, 7 * MIB));
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static void begin_tiny(void)
{
    begin_with(&(struct gp_bpf_options){.processes = 4, .containers = 1, .devices = 1});
}

Test(bpf, full_tables_are_counted_and_existing_rows_stay_exact, .init = begin_tiny, .fini = end, .timeout = 60)
{
    for (int i = 0; i < 6; i++)
        kid_tell(kid_start(i % 2), "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 4 * MIB), "4 have room");
    cr_assert(eq(u32, device_sum(1).processes, 4));
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 2 * MIB));
    cr_assert(eq(i64, container_sum(1, 1).total_bytes, -99), "the other container found room");
    cr_assert(gt(u64, gp_bpf_meta(bpf)->map_full, 0));
    uint64_t full = gp_bpf_meta(bpf)->map_full;
    kid_tell(&kids[0], "m 1 2 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(gt(u64, gp_bpf_meta(bpf)->map_full, full));
    for (int i = 0; i < 4; i++)
        kid_end(&kids[i], SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    kid_tell(&kids[5], "m 0 1 %lld %lld 0 0 1 %lld", 7 * MIB, 7 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 7 * MIB), "the waiting process found no room");
    cr_assert(gp_bpf_forget_containers(bpf, &group_id[0], 1, NULL) == 2);
    kid_tell(&kids[5], "m 0 1 %lld %lld 0 0 1 %lld", 8 * MIB, 8 * MIB, GIB);
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 8 * MIB), "its container found no room");
    kid_tell(&kids[5], "m 1 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, container(1).entries, 1), "the row older than its container's entry was counted");
    kid_end(&kids[5], SIGKILL);
    cr_assert(eq(u64, container(1).entries, 0));
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 0));
}

/* ---- forged batches -------------------------------------------------------------------------------------------- */

Test(bpf, forged_batches_change_no_sum, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *honest = kid_start(0), *forger = kid_start(1);
    kid_tell(honest, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    kid_tell(forger, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    for (int how = 0; how <= 11; how++) {
        uint64_t refused = gp_bpf_meta(bpf)->refused_batches;
        kid_tell(forger, "h %d", how);
        cr_assert(eq(u64, gp_bpf_meta(bpf)->refused_batches, refused + 1), "%d was not refused", how);
        cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB), "%d", how);
    }
    cr_assert(eq(u64, container(1).refused, 12));
    cr_assert(eq(u64, container(0).refused, 0));
}

Test(bpf, numbers_are_clamped, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *forger = kid_start(1);
    kid_tell(forger, "m 0 1 %lld %lld %lld %lld 5 %lld", LLONG_MAX, LLONG_MAX, LLONG_MIN, LLONG_MIN, 2 * GIB);
    struct gp_map_sum sum = device_sum(1);
    cr_assert(eq(i64, sum.allocated_bytes, 2 * GIB));
    cr_assert(eq(i64, sum.allocated_peak_bytes, 2 * GIB));
    cr_assert(eq(i64, sum.reserved_bytes, 0));
    kid_tell(forger, "m 0 1 0 0 0 0 %lld %lld", LLONG_MIN, LLONG_MAX);
    cr_assert(eq(i64, device_sum(1).calls, 5), "a counter fell");
    kid_tell(forger, "m 0 1 %lld 0 0 0 5 -7", LLONG_MAX);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, GP_MAPS_BYTES_LIMIT));
    cr_assert(gt(u64, gp_bpf_meta(bpf)->clamped, 5));
    kid_tell(forger, "m 0 1 0 0 0 0 5 %lld %lld %lld", GIB, LLONG_MIN, LLONG_MIN);
    sum = device_sum(1);
    cr_assert(eq(i64, sum.asleep_bytes, 0));
    cr_assert(eq(i64, sum.asleep_peak_bytes, 0));
    kid_tell(forger, "m 0 1 1 1 2 2 5 %lld %lld 0", GIB, LLONG_MAX);
    sum = device_sum(1);
    cr_assert(eq(i64, sum.asleep_bytes, GP_MAPS_BYTES_LIMIT));
    cr_assert(eq(i64, sum.asleep_peak_bytes, GP_MAPS_BYTES_LIMIT));
    cr_assert(eq(i64, sum.allocated_bytes, 1), "what sleeps counts in another sum");
    cr_assert(eq(i64, sum.reserved_bytes, 2));
    kid_end(forger, SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    cr_assert(eq(i64, device_sum(1).asleep_bytes, 0));
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 0));
    cr_assert(eq(i64, container_sum(1, 1).asleep_bytes, 0));
}

Test(bpf, a_container_cannot_fill_the_tables, .init = begin, .fini = end, .timeout = 120)
{
    struct kid *forger = kid_start(1), *honest = kid_start(0);
    for (int i = 0; i < 64; i++)
        for (int uuid = 100; uuid < 102; uuid++)
            kid_tell(forger, "m %d %d 1 1 1 1 1 %lld", i, uuid + 2 * i > 255 ? uuid + 2 * i - 200 : uuid + 2 * i, GIB);
    cr_assert(eq(u64, container(1).devices, GP_MAPS_DEVICES_OF_CONTAINER));
    cr_assert(gt(u64, container(1).map_full, 0));
    kid_tell(honest, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, MIB));
    cr_assert(eq(u64, container(0).map_full, 0));
}

Test(bpf, two_threads_that_fire_at_once_make_no_drift, .init = begin, .fini = end, .timeout = 120)
{
    struct kid *forger = kid_start(1), *honest = kid_start(0);
    kid_tell(honest, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    kid_tell(forger, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    kid_tell(forger, "r %d", getenv("GPUPROF_TEST_SLOW") ? 2000 : 100000); /* on an emulated machine */
    kid_tell(forger, "m 0 1 %lld %lld %lld %lld 1 %lld", 3 * MIB, 3 * MIB, MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 4 * MIB));
    cr_assert(eq(i64, device_sum(1).reserved_bytes, MIB));
    cr_log_info("raced %llu, came late %llu", (unsigned long long)gp_bpf_meta(bpf)->raced_batches,
                (unsigned long long)gp_bpf_meta(bpf)->old_batches);
    kid_end(forger, SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 0));
}

static uint64_t received[3];

static int record_take(void *unused, void *data, size_t bytes)
{
    (void)unused;
    const struct gp_map_record *record = data;
    cr_assert(bytes >= sizeof *record + record->count * sizeof record->events[0]);
    for (int i = 0; i < 3; i++)
        if (record->cgroup_id == group_id[i])
            received[i] += record->count;
    return 0;
}

Test(bpf, a_flood_costs_only_itself, .init = begin, .fini = end, .timeout = 120)
{
    struct kid *flood = kid_start(0), *quiet = kid_start(1);
    struct ring_buffer *ring = ring_buffer__new(gp_bpf_map(bpf, "events"), record_take, NULL, NULL);
    cr_assert(ring != NULL);
    for (int i = 0; i < 10; i++) { /* the ring has no reader, so the flood fills it as far as it can */
        kid_tell(flood, "e 256 200");
        kid_tell(quiet, "e 20 3");
    }
    while (ring_buffer__consume(ring) > 0) {
    }
    ring_buffer__free(ring);
    cr_assert(eq(u64, received[1], 600), "the quiet one lost events");
    cr_assert(eq(u64, container(1).ring_dropped, 0));
    cr_assert(gt(u64, container(0).ring_dropped, 0), "the flood did not flood");
    cr_assert(eq(u64, received[0] + container(0).ring_dropped, 256 * 200 * 10),
              "an event was neither received nor counted");
    cr_assert(eq(u64, gp_bpf_meta(bpf)->events, 256 * 200 * 10 + 600));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->ring_dropped, container(0).ring_dropped));
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

Test(bpf, the_verifiers_limit_is_far, .init = begin, .fini = end, .timeout = 60)
{
    struct gp_bpf_costs costs;
    cr_assert(gp_bpf_costs(bpf, &costs) == 0);
    cr_log_info("the verifier processed %u of %u instructions; %s", costs.verified, costs.verified_limit,
                gp_bpf_is_multi(bpf) ? "uprobe_multi" : "perf");
    cr_assert(costs.verified > 0 && costs.verified <= costs.verified_limit / 2);
}

Test(bpf, arguments_of_notes)
{
    static const struct {
        unsigned machine;
        const char *text;
        uint32_t first, second; /* 0: refused */
    } cases[] = {
        {EM_X86_64, "8@%rdi 8@%rsi", GP_ARG(14, GP_ARG_REGISTER, 0, 0), GP_ARG(13, GP_ARG_REGISTER, 0, 0)},
        {EM_X86_64, "-8@-16(%rbp) 4@$768", GP_ARG(4, GP_ARG_MEMORY, 0, -16), GP_ARG(0, GP_ARG_CONSTANT, 1, 768)},
        {EM_X86_64, "8@(%r12) -4@%r9d", GP_ARG(3, GP_ARG_MEMORY, 0, 0), GP_ARG(8, GP_ARG_REGISTER, 1, 0)},
        {EM_X86_64, "", 0, 0},
        {EM_X86_64, "8@", 0, 0},
        {EM_X86_64, "8@%rdi", 0, 0},
        {EM_X86_64, "8@%xmm0 8@%rsi", 0, 0},
        {EM_X86_64, "2@%rdi 8@%rsi", 0, 0},
        {EM_X86_64, "8@%rdi 8@8(%rax,%rbx,8)", 0, 0},
        {EM_X86_64, "8@gpuprof(%rip) 8@%rsi", 0, 0},
        {EM_X86_64, "8@%rdi 8@$99999999999", 0, 0},
        {EM_X86_64, "8@x1 8@x0", 0, 0},
        {EM_AARCH64, "8@x1 8@x0", GP_ARG(1, GP_ARG_REGISTER, 0, 0), GP_ARG(0, GP_ARG_REGISTER, 0, 0)},
        {EM_AARCH64, "8@x30 -4@w19", GP_ARG(30, GP_ARG_REGISTER, 0, 0), GP_ARG(19, GP_ARG_REGISTER, 1, 0)},
        {EM_AARCH64, "8@[sp] 8@[x29, -16]", GP_ARG(31, GP_ARG_MEMORY, 0, 0), GP_ARG(29, GP_ARG_MEMORY, 0, -16)},
        {EM_AARCH64, "8@[sp,8] 4@768", GP_ARG(31, GP_ARG_MEMORY, 0, 8), GP_ARG(0, GP_ARG_CONSTANT, 1, 768)},
        {EM_AARCH64, "8@x31 8@x0", 0, 0},
        {EM_AARCH64, "8@x 8@x0", 0, 0},
        {EM_AARCH64, "8@x1a 8@x0", 0, 0},
        {EM_AARCH64, "8@[sp 8@x0", 0, 0},
        {EM_AARCH64, "8@[sp, x1] 8@x0", 0, 0},
        {EM_AARCH64, "8@%rdi 8@%rsi", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t cookie = 0;
        int error = gp_bpf_arguments_of(cases[i].machine, cases[i].text, &cookie);
        cr_expect(error == (cases[i].first || cases[i].second ? 0 : -EINVAL), "%s: %d", cases[i].text, error);
        cr_expect(cookie == (cases[i].first | (uint64_t)cases[i].second << 32), "%s: %lx", cases[i].text,
                  (unsigned long)cookie);
    }
}

/* Damages each byte of the file's headers and tables: an answer, and no crash. */
Test(bpf, broken_files, .timeout = 120)
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    copy_of(path_program("probe_fire"));
    int fd = open(copy, O_RDWR);
    struct stat about;
    cr_assert(fd >= 0 && fstat(fd, &about) == 0);
    struct gp_bpf_probe probe;
    for (off_t at = 0; at < about.st_size; at += at < 1024 || at > about.st_size - 4096 ? 1 : 97) {
        uint8_t was, broken;
        cr_assert(pread(fd, &was, 1, at) == 1);
        for (int bit = 0; bit < 8; bit += 3) {
            broken = was ^ (uint8_t)(0x81 << bit);
            pwrite(fd, &broken, 1, at);
            gp_bpf_probe_find(fd, &probe);
        }
        pwrite(fd, &was, 1, at);
    }
    cr_assert(gp_bpf_probe_find(fd, &probe) == 0);
    for (off_t size = about.st_size - 1; size > 0; size = size * 9 / 10) {
        cr_assert(ftruncate(fd, size) == 0);
        cr_assert(gp_bpf_probe_find(fd, &probe) != 0);
    }
    close(fd);
    unlink(copy);
}
