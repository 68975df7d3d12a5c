/* SPDX-License-Identifier: MIT
 *
 * test_agent_discover.c: an agent started without a library finds it in the programs that load it,
 * with only four capabilities. This is a separate test program: for a moment the agent arms every
 * copy on the machine, so no test that checks a semaphore may run at the same time.
 */
#include "integration/agentcase.h"
#include "lib/elsewhere.h"
#include <fcntl.h>

static void begin_alone(void)
{
    ELSEWHERE_SKIP();
    begin_four();
    /* A name by which discovery finds the library. */
    const char *copy = place_copy(&place, path_library(), "libgpuprof.so");
    cr_assert(copy != NULL);
    snprintf(place.library, sizeof place.library, "%s", copy);
}

TestSuite(agent_discover, .fini = end, .timeout = 180);

Test(agent_discover, four_capabilities_find_and_query_running_programs, .init = begin_alone)
{
    struct kid *before = walk(groups[0]);
    cr_assert(ge(i64, kid_tell(before, "a 0 %lld", 6 * MIB), 0));
    usleep(300000); /* the program is idle, so its numbers arrive only because it is queried */
    start_agent(&(struct agent_options){.before = four, .want_discover = true});
    expect_four();
    uint64_t ready = now_ns();
    settle(before, 0, 1, 0);
    cr_log_info("the numbers of a program that ran: %.1f ms after READY=1", (double)(now_ns() - ready) / 1e6);
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 6 * MIB));
    /* Another copy that no process maps yet. */
    const char *copy = place_copy(&place, path_library(), "other.so");
    cr_assert(copy != NULL);
    struct kid *after = &kids[kid_count++];
    cr_assert(kid_start(after, &place,
                        &(struct kid_options){
                            .file = path_program("agent_walk"), .group = groups[1], .library = copy, .sim = SIM}) == 0);
    cr_assert(ge(i64, kid_tell(after, "a 0 %lld", 4 * MIB), 0));
    settle(after, 0, 1, 0);
    cr_assert(eq(i64, container_sum(groups[1], 0).allocated_bytes, 4 * MIB));
    cr_assert(eq(int, agent_semaphore(before->pid, place.library), 1), "counted once");
    kid_end(after, SIGKILL);
    cr_assert(eq(i64, container_sum(groups[1], 0).allocated_bytes, 0));
}

/* `gpuprof attach` loads a copy from memory, which no file system has. */
Test(agent_discover, counts_a_program_that_was_attached, .init = begin_alone)
{
    start_agent(&(struct agent_options){.want_discover = true});
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_start(kid, &place,
                        &(struct kid_options){
                            .file = path_program("agent_walk"), .group = groups[0], .library = "", .sim = SIM}) == 0);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 4 * MIB), 0));
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)kid->pid);
    struct spawn_result result;
    cr_assert(spawn_command(&result, "attach", pid, NULL) == 0);
    cr_assert(result.status == 0, "%s", result.err);
    spawn_result_free(&result);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 6 * MIB), 0));
    settle(kid, 0, 1, 0);
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 6 * MIB));
    kid_end(kid, SIGKILL);
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 0));
}

static void wait_for_words(const char *text)
{
    for (uint64_t until = now_ns() + 40000000000ull;; usleep(20000)) {
        char *words = agent_words(&agent);
        bool is_there = strstr(words, text) != NULL, is_late = now_ns() > until;
        cr_assert(is_there || !is_late, "the agent does not log '%s': %s", text, words);
        free(words);
        if (is_there)
            return;
    }
}

static struct kid *walk_unprofiled(int group)
{
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_start(kid, &place,
                        &(struct kid_options){
                            .file = path_program("agent_walk"), .group = group, .library = "", .sim = SIM}) == 0);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 4 * MIB), 0));
    return kid;
}

static bool maps_library(pid_t pid)
{
    char path[64], line[4096];
    bool is_mapped = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        is_mapped |= strstr(line, "libgpuprof") != NULL;
    if (file)
        fclose(file);
    return is_mapped;
}

Test(agent_discover, attaches_to_programs_of_chosen_containers_only, .init = begin_alone)
{
    char pattern[200], text[96];
    struct kid *chosen = walk_unprofiled(groups[0]), *other = walk_unprofiled(groups[1]);
    snprintf(pattern, sizeof pattern, "/*%s", strrchr(place.groups[groups[0]].path, '/') + 1);
    start_agent(&(struct agent_options){
        .want_discover = true,
        .more = (const char *[]){"--attach-containers", pattern, "--listen", "127.0.0.1:0", NULL}});
    snprintf(text, sizeof text, ": Attached to %d ", (int)chosen->pid);
    wait_for_words(text);
    cr_assert(ge(i64, kid_tell(chosen, "a 0 %lld", 6 * MIB), 0));
    settle(chosen, 0, 1, 0);
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 6 * MIB));
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    cr_assert(agent_sample(page, "gpuprof_agent_attached_total") == 1);
    cr_assert(agent_sample(page, "gpuprof_agent_attach_refused_total") == 0);
    free(page);
    cr_assert(maps_library(other->pid) == false, "its container does not match");
}

Test(agent_discover, logs_a_refused_attach_once, .init = begin_alone)
{
    char pattern[200], text[96];
    struct kid *kid = walk_unprofiled(groups[0]);
    snprintf(pattern, sizeof pattern, "/*%s", strrchr(place.groups[groups[0]].path, '/') + 1);
    cr_assert(kill(kid->pid, SIGSTOP) == 0); /* a stopped process is refused */
    start_agent(
        &(struct agent_options){.want_discover = true, .more = (const char *[]){"--attach-containers", pattern, NULL}});
    snprintf(text, sizeof text, "not attached to process %d: ", (int)kid->pid);
    wait_for_words(text);
    cr_assert(kill(kid->pid, SIGCONT) == 0);
    usleep(11000000); /* one more look */
    char *words = agent_words(&agent), *first = strstr(words, text);
    cr_assert(first && !strstr(first + 1, text), "%s", words);
    cr_assert(maps_library(kid->pid) == false);
    free(words);
}

static void enter_group(int group, pid_t pid)
{
    char path[600];
    snprintf(path, sizeof path, "%s/cgroup.procs", place.groups[group].path);
    FILE *file = fopen(path, "we");
    cr_assert(file && fprintf(file, "%d", (int)pid) > 0 && fclose(file) == 0, "%s: %s", path, strerror(errno));
}

/* The pid that a program wrote to the file `child` of its folder. */
static pid_t child_in(const char *folder)
{
    char path[96];
    int child = 0;
    snprintf(path, sizeof path, "%s/child", folder);
    for (int i = 0; child == 0 && i < 1000; i++, usleep(10000)) {
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%d", &child) != 1)
            child = 0;
        if (file)
            fclose(file);
    }
    return child;
}

/* A program that forks, the child in a container, and the agent for that. */
static pid_t begin_forked(struct spawn *program, const char *what, const char *folder)
{
    char pattern[200];
    const char *argv[] = {path_program("attach_target"), what, folder, NULL};
    cr_assert(spawn_start(program, &(struct spawn_options){.argv = argv}) == 0);
    pid_t child = child_in(folder);
    cr_assert(child > 0);
    enter_group(groups[0], child);
    snprintf(pattern, sizeof pattern, "/*%s", strrchr(place.groups[groups[0]].path, '/') + 1);
    start_agent(
        &(struct agent_options){.want_discover = true, .more = (const char *[]){"--attach-containers", pattern, NULL}});
    return child;
}

static void make_file(const char *folder, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && close(fd) == 0);
}

static void end_forked(struct spawn *program, const char *folder)
{
    static const char *const names[] = {"ready", "stop", "child", "init"};
    struct spawn_result result;
    char path[96];
    make_file(folder, "stop");
    spawn_finish(program, &result);
    cr_assert(result.status == 0, "%s%s", result.out, result.err);
    spawn_result_free(&result);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* A child of vfork maps what its parent maps, and only the child's container is chosen. */
Test(agent_discover, leaves_a_child_of_vfork_alone, .init = begin_alone)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX";
    struct spawn program;
    cr_assert(mkdtemp(folder) != NULL);
    begin_forked(&program, "vfork", folder);
    usleep(12000000); /* two looks */
    char *words = agent_words(&agent);
    cr_assert(strstr(words, "ttached to") == NULL, "%s", words);
    cr_assert(maps_library(program.pid) == false);
    free(words);
    end_forked(&program, folder);
}

/* A service that loads libraries and then forks: its workers initialise CUDA later. */
Test(agent_discover, tries_a_child_of_fork_again, .init = begin_alone)
{
    char text[96], folder[] = "/tmp/gpuprof-test-XXXXXX";
    struct spawn program;
    cr_assert(mkdtemp(folder) != NULL);
    pid_t child = begin_forked(&program, "forked_early", folder);
    snprintf(text, sizeof text, "not attached to process %d: ", (int)child);
    wait_for_words(text);
    make_file(folder, "init");
    snprintf(text, sizeof text, ": Attached to %d ", (int)child);
    wait_for_words(text);
    end_forked(&program, folder);
}

/* A program to which attaching is tried for ten seconds, because its only thread runs on a stack of its own. */
static void begin_slow(struct spawn *program, char *folder)
{
    char path[96];
    const char *argv[] = {path_program("attach_target"), "fibre", folder, NULL};
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/ready", folder);
    cr_assert(spawn_start(program, &(struct spawn_options){.argv = argv}) == 0);
    for (int i = 0; access(path, F_OK) != 0; i++, usleep(10000))
        cr_assert(i < 1000);
    enter_group(groups[0], program->pid);
}

/* One container has slow programs, with lower pids. */
Test(agent_discover, a_container_does_not_wait_for_the_programs_of_another, .init = begin_alone)
{
    char pattern[200], text[96], folders[][32] = {"/tmp/gpuprof-test-XXXXXX", "/tmp/gpuprof-test-XXXXXX"};
    struct spawn programs[2];
    for (int i = 0; i < 2; i++)
        begin_slow(&programs[i], folders[i]);
    struct kid *kid = walk_unprofiled(groups[1]);
    snprintf(pattern, sizeof pattern, "/*gpuprof-test-%d-*", (int)getpid());
    uint64_t before = now_ns();
    start_agent(
        &(struct agent_options){.want_discover = true, .more = (const char *[]){"--attach-containers", pattern, NULL}});
    snprintf(text, sizeof text, ": Attached to %d ", (int)kid->pid);
    wait_for_words(text);
    double took = (double)(now_ns() - before) / 1e9;
    for (int i = 0; i < 2; i++) { /* one after the other */
        char *words = agent_words(&agent);
        snprintf(text, sizeof text, "process %d: ", (int)programs[i].pid);
        cr_assert(strstr(words, text) == NULL, "the slow ones came first: %s", words);
        free(words);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "process %d: ", (int)programs[i].pid);
        wait_for_words(text);
    }
    cr_log_info("%.1f s, and %.1f s for the slow ones", took, (double)(now_ns() - before) / 1e9);
    cr_assert(now_ns() - before > 18 * 1000000000ull, "both at once");
    for (int i = 0; i < 2; i++)
        end_forked(&programs[i], folders[i]);
}

Test(agent_discover, attaching_needs_a_capability_and_discovery, .init = begin_alone)
{
#define THREE "-all,+bpf,+perfmon,+dac_read_search"
    static const char *const three[] = {"setpriv", "--bounding-set=" THREE, "--inh-caps=" THREE, NULL};
    int status = 0;
    const char *const more[] = {"--attach-containers", "*", NULL};
    int error =
        agent_start(&agent, &place, &(struct agent_options){.before = three, .more = more, .want_discover = true},
                    &status, why, sizeof why);
    cr_assert(eq(int, error, -ECHILD));
    cr_assert(ended_with(status, 77) && strstr(why, "CAP_SYS_PTRACE"), "%s", why);
    error = agent_start(&agent, &place, &(struct agent_options){.more = more}, &status, why, sizeof why);
    cr_assert(error == -ECHILD && ended_with(status, 2), "%s", why);
}

/* The agent with the rights and system calls of its service, and of a drop-in, if any. */
static void attach_as_service(const char *dropin, const char *wanted)
{
    char pattern[200], text[96], files[1024], as_unit[512];
    struct kid *kid = walk_unprofiled(groups[0]);
    snprintf(pattern, sizeof pattern, "/*%s", strrchr(place.groups[groups[0]].path, '/') + 1);
    snprintf(as_unit, sizeof as_unit, "%s", path_source("tests/deploy/as-unit"));
    snprintf(files, sizeof files, "%s", path_source("deploy/systemd/gpuprof-agent.service"));
    if (dropin) {
        strcat(files, ",");
        strcat(files, path_source(dropin));
    }
    start_agent(&(struct agent_options){.before = (const char *[]){as_unit, files, NULL},
                                        .want_discover = true,
                                        .more = (const char *[]){"--attach-containers", pattern, NULL}});
    snprintf(text, sizeof text, wanted, (int)kid->pid);
    wait_for_words(text);
    cr_assert(eq(int, maps_library(kid->pid), dropin != NULL));
}

Test(agent_discover, the_service_attaches_with_its_drop_in, .init = begin_alone)
{
    attach_as_service("deploy/systemd/gpuprof-agent-attach.conf", ": Attached to %d ");
}

Test(agent_discover, the_service_does_not_attach_without_it, .init = begin_alone)
{
    attach_as_service(NULL, "not attached to process %d: ");
}
