/* SPDX-License-Identifier: MIT
 *
 * fork while another thread allocates from code that no unwinder has seen before: 32768 places, as
 * a just-in-time compiler makes them.  A child that asks the loader for its objects, as every C++
 * exception and every dlopen does, must get an answer. Leaves 1 MiB linear.
 */
#include <cuda.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "finish.h"
#include "threads.h"

#define PLACES      32768u
#define PLACE_BYTES 32u
#define FORKS       200

typedef CUresult place_fn(CUdeviceptr *pointer, size_t bytes);

static unsigned char *places;
static int stop;

/* push rbp; mov rbp, rsp; mov rax, cuMemAlloc; call rax; pop rbp; ret */
static void places_make(void)
{
    unsigned char code[PLACE_BYTES] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, [14] = 0xff, 0xd0, 0x5d, 0xc3};
    place_fn *called = cuMemAlloc;
    unsigned i;

    memcpy(code + 6, &called, sizeof(called));
    places = mmap(NULL, PLACES * PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (places == MAP_FAILED)
        exit(70);
    for (i = 0; i < PLACES; i++)
        memcpy(places + i * PLACE_BYTES, code, sizeof(code));
    if (mprotect(places, PLACES * PLACE_BYTES, PROT_READ | PROT_EXEC) != 0)
        exit(71);
}

static void thread_busy(unsigned number)
{
    CUdeviceptr pointer;
    unsigned i;
    for (i = number; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        place_fn *place = cuMemAlloc;
#if defined(__x86_64__)
        void *at = places + i % PLACES * PLACE_BYTES;
        memcpy(&place, &at, sizeof(place));
#endif
        CHECK(place(&pointer, 4096));
        CHECK(cuMemFree(pointer));
    }
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    return 1;
}

int main(void)
{
    struct thread_arg busy;
    int i, status, answered = 0;
    pid_t child;
    program_start();
    program_alloc(MIB);
    places_make();
    threads_start(&busy, 1, thread_busy);
    fflush(stdout);
    for (i = 0; i < FORKS; i++) {
        child = fork();
        if (child == 0) {
            alarm(1);
            _exit(dl_iterate_phdr(visit, NULL) == 1 ? 3 : 4);
        }
        answered += child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3;
    }
    printf("answered: %d of %d\n", answered, FORKS);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    threads_join(&busy, 1);
    return finish();
}
