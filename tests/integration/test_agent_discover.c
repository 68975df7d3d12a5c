/* SPDX-License-Identifier: MIT
 *
 * test_agent_discover.c: an agent started without a library finds it in the programs that load it,
 * with only four capabilities. This is a separate test program: for a moment the agent arms every
 * copy on the machine, so no test that checks a semaphore may run at the same time.
 */
#define _GNU_SOURCE
#include "integration/agentcase.h"
#include "lib/elsewhere.h"

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
