/* SPDX-License-Identifier: MIT
 *
 * test_agent_life.c: tests how an agent starts and ends: beside another one, without rights, and
 * with minimal rights.
 */
#include "integration/agentcase.h"
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

TestSuite(agent_life, .fini = end, .timeout = 180);

/* ---- agents ------------------------------------------------------------------------------------------------------ */

Test(agent_life, a_second_one_names_the_first_and_changes_nothing, .init = begin)
{
    struct agent second;
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    int status;
    int error = agent_start(&second, &place, &(struct agent_options){0}, &status, why, sizeof why);
    cr_assert(eq(int, error, -ECHILD));
    cr_assert(ended_with(status, 1), "%d: %s", status, why);
    char first[32];
    snprintf(first, sizeof first, "pid %d", (int)agent.pid);
    cr_assert(strstr(why, first) != NULL, "no '%s' in: %s", first, why);
    kid_tell(kid, "a 0 %lld", 2 * MIB);
    settle(kid, 0, 2, 0);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 4 * MIB), "counted once");
    cr_assert(eq(u64, share(groups[0]).entries, 1));
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 1));
}

/* Prometheus takes what a counter has after a reset for new: what running programs counted before is not added again,
 * while their memory is in the sums. */
Test(agent_life, counters_start_at_0_with_a_new_agent, .init = begin)
{
    struct kid *kid = walk(groups[0]);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 2 * MIB), 0));
    cr_assert(eq(i64, kid_tell(kid, "c 1000 512"), 0));
    settle(kid, 0, 1001, 1000);
    cr_assert(eq(i64, device_sum(0).calls, 1001));
    close_maps();
    int status = agent_stop(&agent, SIGTERM);
    cr_assert(ended_with(status, 0), "%d", status);
    start_agent(&(struct agent_options){0});
    settle(kid, 0, 1001, 1000); /* its own row has all */
    struct gp_map_sum sum = device_sum(0), container = container_sum(groups[0], 0);
    cr_assert(eq(i64, sum.allocated_bytes, 2 * MIB));
    cr_assert(sum.calls == 0 && sum.frees == 0 && container.calls == 0 && container.frees == 0, "%lld calls",
              (long long)sum.calls);
    cr_assert(eq(i64, kid_tell(kid, "c 10 512"), 0));
    settle(kid, 0, 1011, 1010);
    cr_assert(eq(i64, device_sum(0).calls, 10));
    cr_assert(eq(i64, container_sum(groups[0], 0).frees, 10));
    struct kid *later = walk(groups[1]); /* of this agent's time: from its first call */
    cr_assert(eq(i64, kid_tell(later, "c 5 512"), 0));
    settle(later, 0, 5, 5);
    cr_assert(eq(i64, device_sum(0).calls, 15));
}

Test(agent_life, a_clean_end_leaves_nothing, .init = begin)
{
    struct agent_ids ids;
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    agent_ids_read(&ids, agent.pid);
    cr_assert(gt(uint, ids.program_count, 1));
    cr_assert(gt(uint, ids.map_count, 5));
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 1));
    close_maps();
    int status = agent_stop(&agent, SIGTERM);
    cr_assert(ended_with(status, 0), "%d", status);
    cr_assert(ne(int, access(place.pins, F_OK), 0), "the pins remain");
    cr_assert(eq(uint, agent_ids_left(&ids, false), 0), "programs, links or maps remain");
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 0));
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 2 * MIB), 0), "the program does not run on");
}

static void expect_impossible(const char *const *before)
{
    int status = -1;
    int error = agent_start(&agent, &place, &(struct agent_options){.before = before}, &status, why, sizeof why);
    cr_assert(eq(int, error, -ECHILD), "it runs");
    cr_assert(ended_with(status, 77), "%d: %s", status, why);
    cr_assert(strstr(why, "gpuprof: agent: ") != NULL && strstr(why, "gpuprof doctor") != NULL, "%s", why);
}

/* systemd mounts /sys/fs/bpf with mode 0700: the modes of tables do not help other users then, so
 * the agent logs it. */
Test(agent_life, tables_behind_a_closed_directory_are_reported, .init = make_place)
{
    char inner[160], said[256];
    int status;
    snprintf(inner, sizeof inner, "%s/inner", place.pins);
    snprintf(said, sizeof said, "other users cannot enter %s ('chmod o+x %s'", place.pins, place.pins);
    for (mode_t mode = 0700;; mode = 0711) {
        cr_assert(zero(int, mkdir(place.pins, 0700)));
        cr_assert(zero(int, chmod(place.pins, mode)));
        int error =
            agent_start(&agent, &place, &(struct agent_options){.more = (const char *[]){"--pins", inner, NULL}},
                        &status, why, sizeof why);
        bool is_impossible = error == -ECHILD && ended_with(status, 77);
        char *words = error ? strdup("") : agent_words(&agent);
        if (!error)
            agent_stop(&agent, SIGTERM);
        cr_expect(zero(int, rmdir(place.pins)));
        if (is_impossible)
            cr_skip_test("%s", why);
        cr_assert(zero(int, error), "%s", why);
        cr_expect(eq(int, strstr(words, said) != NULL, mode == 0700), "%o: %s", mode, words);
        free(words);
        if (mode != 0700)
            break;
    }
}

/* ---- the BPF file system ----------------------------------------------------------------------------------------- */

static bool is_bpffs_there(void)
{
    struct statfs about;
    return statfs("/sys/fs/bpf", &about) == 0 && about.f_type == (typeof(about.f_type))BPF_FS_MAGIC;
}

static void make_place_without_bpffs(void)
{
    make_place();
    int error = place_unmount();
    if (error)
        cr_skip_test("the bpffs stays mounted: %s", strerror(-error));
}

Test(agent_life, it_mounts_a_missing_bpffs_which_stays, .init = make_place_without_bpffs)
{
    struct stat top;
    start_agent(&(struct agent_options){0});
    cr_assert(is_bpffs_there());
    cr_assert(zero(int, stat("/sys/fs/bpf", &top)));
    cr_assert(eq(int, (int)top.st_mode & 0777, 0711), "other users reach the tables and cannot list them");
    char *words = agent_words(&agent);
    cr_expect(strstr(words, "gpuprof: agent: mounted a BPF file system at /sys/fs/bpf (mode 0711)\n") != NULL, "%s",
              words);
    cr_expect(strstr(words, "other users cannot enter") == NULL, "%s", words);
    free(words);
    walk_with(groups[0], 2 * MIB);
    close_maps();
    cr_assert(ended_with(agent_stop(&agent, SIGTERM), 0));
    cr_assert(is_bpffs_there());
    start_agent(&(struct agent_options){0});
    words = agent_words(&agent);
    cr_expect(strstr(words, "mounted a BPF") == NULL, "the second agent mounts nothing: %s", words);
    free(words);
}

Test(agent_life, it_reports_why_it_cannot_mount_a_bpffs, .init = begin_four)
{
    cr_assert(zero(int, place_unmount()));
    expect_impossible(four);
    cr_assert(strstr(why, "no BPF file system is mounted at /sys/fs/bpf, and mounting one needs CAP_SYS_ADMIN: run "
                          "'mount -t bpf bpf /sys/fs/bpf' as root") != NULL,
              "%s", why);
    cr_assert(not(is_bpffs_there()));
}

/* ---- rights ------------------------------------------------------------------------------------------------------ */

Test(agent_life, without_rights_it_reports_it, .init = make_place)
{
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    expect_impossible((const char *[]){"setpriv", "--bounding-set=-all", "--inh-caps=-all", NULL});
    cr_assert(ne(int, access(place.pins, F_OK), 0), "pins remain");
}

Test(agent_life, as_another_user_it_reports_it, .init = make_place)
{
    char command[4200];
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    snprintf(command, sizeof command, "setpriv --reuid=65534 --regid=65534 --clear-groups test -x '%s'",
             path_command());
    if (system(command) != 0)
        cr_skip_test("another user cannot execute files of this build");
    expect_impossible((const char *[]){"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", NULL});
}

Test(agent_life, four_capabilities_are_enough, .init = begin_four)
{
    start_agent(&(struct agent_options){.before = four, .more = (const char *[]){"--listen", "127.0.0.1:0", NULL}});
    expect_four();
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 2 * MIB));
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    cr_assert(eq(dbl, agent_sample(page, "gpuprof_exporter_read_success"), 1));
    cr_assert(eq(dbl, page_sum(page, "gpuprof_device_memory_allocated_bytes", ""), 2.0 * MIB));
    free(page);
    kid_end(kid, SIGKILL);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 0));
    close_maps();
    int status = agent_stop(&agent, SIGTERM);
    cr_assert(ended_with(status, 0));
    cr_assert(ne(int, access(place.pins, F_OK), 0), "its pins remain");
}
