/* SPDX-License-Identifier: MIT
 *
 * ownstack.c: finds the bounds of the calling thread's stack without pthread_getattr_np, which
 * allocates and opens files.
 *
 * A thread's stack ends above at its thread control block, which libc puts at the top of the same
 * mapping, or, for the main thread, above its arguments. From there down to sp every page is probed
 * once. All of them are mapped and readable only if sp lies on that very stack, because a guard
 * page, or for the main thread the kernel's gap, ends a stack below. A stack that the program
 * allocated itself has no guard page, and a coroutine's stack, which may be unmapped later, can lie
 * directly below it; so stack_floor also looks for the C library's own record of the stack in the
 * control block.
 *
 * A page is mapped if mincore succeeds (unlike an access, it does not make the main stack grow),
 * and readable if rt_sigprocmask can read a signal set from it: with an invalid operation it
 * changes nothing.
 */
#include "base/sandbox.h"
#include "stack/internal.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The default stack has 8 MiB, and probing a page costs some 200 ns once. A deeper stack is treated
 * like a coroutine's. */
#define DEEPEST (256ull << 20)

__thread struct gp_own_stack gp_own_stack_bounds __attribute__((tls_model("initial-exec")));

static bool page_readable(uint64_t page, uint64_t bytes)
{
    unsigned char resident;
    if (syscall(SYS_mincore, page, bytes, &resident) != 0)
        return false;
    return syscall(SYS_rt_sigprocmask, -1, page, NULL, 8) != 0 && errno == EINVAL;
}

/* The kernel puts these 16 bytes above the main thread's arguments and environment. To ask the loader for
 * __libc_stack_end might wait for it. */
static uint64_t main_end;

void gp_own_stack_start(void)
{
    main_end = getauxval(AT_RANDOM);
}

static uint64_t stack_end(void)
{
    return syscall(SYS_gettid) == syscall(SYS_getpid) ? main_end : (uint64_t)pthread_self();
}

/* The size of glibc's struct pthread, 2.17 and later, on x86-64 and AArch64. Where it is smaller,
 * the words behind it do not look like a stack. */
#define CONTROL_BYTES 2304u
/* The usual limit of its size. */
#define MAIN_BYTES (8ull << 20)
/* Static TLS and the control block itself lie at the stack's upper end. */
#define ABOVE_BYTES (16ull << 20)

/* The lowest address of this thread's stack. The control block stores that address and the stack's
 * size side by side, at a private offset. No other pair of its words looks the same: a page-aligned
 * address below the block that, with the size added, lies above it. 0: not found. */
__attribute__((no_sanitize("address", "thread"))) static uint64_t stack_floor(bool may_ask)
{
    uint64_t self = (uint64_t)pthread_self(), page = (uint64_t)getpagesize(), floor = 0;
    uint64_t end = self + CONTROL_BYTES, next = (self + page) / page * page;
    if (end > next && (!may_ask || !page_readable(next, page)))
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

/* In a sandbox no page is asked about. From the stack pointer up all pages of a thread's own stack
 * are mapped. The kernel maps nothing by itself so near below the main thread's. */
static bool stack_trust(struct gp_own_stack *stack, uint64_t sp, uint64_t page)
{
    bool is_main = stack->high == main_end / 8 * 8;
    uint64_t floor = is_main ? stack->high - MAIN_BYTES : stack_floor(false);
    if (floor && sp >= floor && sp < stack->low)
        stack->low = sp / page * page;
    return sp >= stack->low && sp < stack->high;
}

bool gp_own_stack_widen(uint64_t sp)
{
    int saved = errno;
    uint64_t page = (uint64_t)getpagesize();
    struct gp_own_stack *stack = &gp_own_stack_bounds;
    if (!stack->high) {
        stack->high = stack_end() / 8 * 8;
        stack->low = stack->high / page * page;
    }
    if (gp_sandboxed()) {
        errno = saved;
        return stack->high && stack_trust(stack, sp, page);
    }
    if (stack->low == stack->high / page * page) {
        /* The stack ends inside this page: use the page if it is readable, else nothing. */
        if (stack->high && !page_readable(stack->low, page))
            stack->high = stack->low;
    }
    uint64_t floor = sp < stack->low && stack->high != main_end / 8 * 8 ? stack_floor(true) : 0;
    while (sp < stack->low && sp >= floor && stack->high - sp < DEEPEST && page_readable(stack->low - page, page))
        stack->low -= page;
    errno = saved;
    return sp >= stack->low && sp < stack->high;
}

bool gp_ownstack_word(struct gp_peek *peek, uint64_t address, uint64_t *word)
{
    if (address - peek->at >= peek->bytes) {
        int saved = errno;
        if (gp_sandboxed()) /* process_vm_readv is what a sandbox forbids */
            return false;
        /* Reads up to the end of the page, so that an unmapped next page does not fail the read of
         * this one. */
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
