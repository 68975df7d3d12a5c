/* SPDX-License-Identifier: MIT
 *
 * framework_mutant.c: the negative control of tests/torture/framework.c: the list of objects changes without an odd
 * turn, so that a thread may read half of it. Passes only if the oracle catches it.
 */
#define GP_OWNER_MUTANT_TURN
#include "../../src/stack/owner.c"

/* Both files have a lock. */
#define lock framework_lock
#include "torture/framework_oracle.h"

#include <sys/wait.h>

/* Whether a reader can see half of the list depends on where the loader has put the libraries, and that stays as it is for
 * most of a process. So each part runs in a new one. */
static int part(void)
{
    uint64_t end = gp_clock_ns() + 2000000000ull;
    unsigned rounds = 0;
    bool caught;
    oracle_start();
    do {
        oracle_round(rounds++);
        caught = oracle_wrong_owners || oracle_wrong_segments;
    } while (!caught && gp_clock_ns() < end);
    oracle_end();
    return !caught;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "part") == 0)
        return part();
    uint64_t end = gp_clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 60) * 1000000000ull;
    unsigned parts = 0;
    int status;
    bool ended, caught;
    do {
        pid_t pid = fork();
        if (pid == 0) {
            execl("/proc/self/exe", argv[0], "part", (char *)NULL);
            _exit(2);
        }
        parts++;
        ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
        caught = ended && WEXITSTATUS(status) == 0;
    } while (ended && WEXITSTATUS(status) == 1 && gp_clock_ns() < end);
    printf("framework_mutant: %s in part %u\n%u passed, %u failed\n", caught ? "caught" : "not caught", parts, caught,
           !caught);
    return !caught;
}
