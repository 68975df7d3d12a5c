/* SPDX-License-Identifier: MIT
 *
 * ownstack.c: the bounds of a stack, without asking pthread_getattr_np, which allocates and opens files.
 *
 * A thread's stack ends above at its thread control block, which libc puts at the top of the same block of memory, or,
 * for the main thread, at __libc_stack_end.  From there down to sp every page is asked for, once: all are there and
 * readable only if sp lies on that very stack, because a guard page, or for the main thread the kernel's gap, ends a
 * stack below.  A stack that the program made itself has no guard, and directly below it may lie a coroutine's, which
 * is unmapped one day: so the C library's own words about the stack are looked for in the control block, too.
 *
 * A page is there if mincore says so (which, unlike an access, does not make the main stack grow), and readable if
 * rt_sigprocmask can read a signal set from it: given no valid operation, it changes nothing.
 */
#include "ownstack.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The default stack has 8 MiB, and a page costs some 200 ns once; who uses more is treated like a coroutine. */
#define DEEPEST (256ull << 20)

__thread struct gp_own_stack gp_window __attribute__((tls_model("initial-exec")));

static bool page_readable(uint64_t page, uint64_t bytes)
{
    unsigned char resident;
    if (syscall(SYS_mincore, page, bytes, &resident) != 0)
        return false;
    return syscall(SYS_rt_sigprocmask, -1, page, NULL, 8) != 0 && errno == EINVAL;
}

/* Asked for once, at start: dlsym waits for whoever is in the middle of a dlopen. */
static uint64_t main_end;

void gp_window_start(void)
{
    void *const *end = dlsym(RTLD_DEFAULT, "__libc_stack_end");
    main_end = end ? (uint64_t)*end : 0;
}

static uint64_t stack_end(void)
{
    return syscall(SYS_gettid) == syscall(SYS_getpid) ? main_end : (uint64_t)pthread_self();
}

/* struct pthread of glibc 2.17 and later on x86-64 and AArch64; where it is shorter, what follows fits no stack. */
#define CONTROL_BYTES 2304u
/* Static TLS and the control block itself, both of which lie at the stack's upper end. */
#define ABOVE_BYTES (16ull << 20)

/* Where this thread's stack begins.  The control block has that and the stack's size side by side, in a place that is
 * private; but they fit no other pair of its words: a page's address below the block, and with the size added one
 * above it.  0: not found. */
__attribute__((no_sanitize("address", "thread"))) static uint64_t stack_floor(void)
{
    uint64_t self = (uint64_t)pthread_self(), page = (uint64_t)getpagesize(), floor = 0;
    uint64_t end = self + CONTROL_BYTES, next = (self + page) / page * page;
    if (end > next && !page_readable(next, page))
        end = next;
    for (const uint64_t *at = (const uint64_t *)self; (uint64_t)(at + 2) <= end; at++) {
        uint64_t low = at[0], above = low + at[1] - self;
        if (low == 0 || low % page || low >= self || at[1] > 1ull << 47 || above > ABOVE_BYTES)
            continue;
        if (floor)
            return 0;
        floor = low;
    }
    return floor;
}

bool gp_window_widen(uint64_t sp)
{
    int saved = errno;
    uint64_t page = (uint64_t)getpagesize();
    struct gp_own_stack *window = &gp_window;
    if (!window->high) {
        window->high = stack_end() / 8 * 8;
        window->low = window->high / page * page;
        /* A page that ends in the middle of it: ours as far as that. */
        if (window->high && !page_readable(window->low, page))
            window->high = window->low;
    }
    uint64_t floor = sp < window->low && window->high != main_end / 8 * 8 ? stack_floor() : 0;
    while (sp < window->low && sp >= floor && window->high - sp < DEEPEST && page_readable(window->low - page, page))
        window->low -= page;
    errno = saved;
    return sp >= window->low && sp < window->high;
}

bool gp_peek_word(struct gp_peek *peek, uint64_t address, uint64_t *word)
{
    if (address - peek->at >= peek->bytes) {
        int saved = errno;
        /* Up to the page's end, so that one page that is not there takes none away that is. */
        uint64_t bytes = 4096 - address % 4096;
        bytes = bytes < sizeof peek->words ? bytes : sizeof peek->words;
        struct iovec into = {peek->words, bytes}, from = {(void *)(uintptr_t)address, bytes};
        long n = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &into, 1ul, &from, 1ul, 0ul);
        errno = saved;
        peek->at = address;
        peek->bytes = n > 0 ? (uint64_t)n / 8 * 8 : 0;
        if (!peek->bytes)
            return false;
    }
    *word = peek->words[(address - peek->at) / 8];
    return true;
}
