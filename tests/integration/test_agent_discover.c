/* SPDX-License-Identifier: MIT
 *
 * test_agent_discover.c: an agent that nobody told of a library finds it in the programs that load it, with no more
 * than four capabilities.  A program of its own: it listens to every copy on the machine for a moment, so no test that
 * looks at a semaphore may run beside it.
 */
#define _GNU_SOURCE
#include "integration/agentcase.h"
#include "lib/elsewhere.h"

static void begin_alone(void)
{
    ELSEWHERE_SKIP();
    begin_four();
    /* Under a name by which an agent that nobody told of it finds it. */
    const char *copy = place_copy(&place, path_library(), "libgpuprof.so");
    cr_assert(copy != NULL);
    snprintf(place.library, sizeof place.library, "%s", copy);
}

TestSuite(agent_discover, .fini = end, .timeout = 180);

Test(agent_discover, four_capabilities_find_and_greet_what_runs, .init = begin_alone)
{
    struct kid *before = walk(groups[0]);
    cr_assert(ge(i64, kid_tell(before, "a 0 %lld", 6 * MIB), 0));
    usleep(300000); /* it sleeps: its numbers come because it is asked */
    start_agent(&(struct agent_options){.before = four, .want_discover = true});
    expect_four();
    uint64_t ready = now_ns();
    settle(before, 0, 1, 0);
    cr_log_info("the numbers of a program that ran: %.1f ms after READY=1", (double)(now_ns() - ready) / 1e6);
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 6 * MIB));
    /* Another copy, which nobody maps yet. */
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
