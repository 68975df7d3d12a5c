/* SPDX-License-Identifier: MIT
 *
 * Prints everything about itself that a library loaded into it could disturb.  Output must be the
 * same with and without; on a GPU but for the lines that begin with "driver": a real cuInit opens
 * files, more of them with CUPTI, and leaves another errno. Leaves 1 MiB linear.
 */
#include <cuda.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "finish.h"

static void state_print(const char *when)
{
    sigset_t blocked;
    struct sigaction action;
    struct rlimit limit;
    char name[17] = "", directory[512] = "";
    mode_t mask = umask(0);
    int fd = open("/dev/null", O_RDONLY), number, masked = 0, handled = 0;

    umask(mask);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (number = 1; number < 65; number++) {
        masked += sigismember(&blocked, number) == 1;
        handled += sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL;
    }
    prctl(PR_GET_NAME, name);
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("%s: umask %o, masked %d, handled %d, name %s, locale %s, files %lu, dumpable %d, tty %d, cwd %d\n", when,
           (unsigned)mask, masked, handled, name, setlocale(LC_ALL, NULL), (unsigned long)limit.rlim_cur,
           prctl(PR_GET_DUMPABLE), isatty(0), getcwd(directory, sizeof(directory)) != NULL);
    printf("driver: %s, descriptor %d\n", when, fd);
    close(fd);
}

int main(void)
{
    CUdeviceptr pointer = 0;
    state_print("before");
    errno = 1234;
    CHECK(cuInit(0));
    printf("driver: errno %d\n", errno);
    state_print("after cuInit");
    program_start();
    errno = 1234;
    pointer = program_alloc(MIB);
    printf("errno %d\n", errno);
    CHECK(cuMemFree(pointer));
    REPORT("unknown", cuMemFree((CUdeviceptr)0x1000));
    printf("errno %d\n", errno);
    program_alloc(MIB);
    state_print("at the end");
    fprintf(stderr, "a line on stderr\n");
    return finish();
}
