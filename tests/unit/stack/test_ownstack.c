/* SPDX-License-Identifier: MIT
 *
 * test_ownstack.c: how far a thread's own stack reaches: on the main thread, on threads with a stack from libc and with one of
 * the program's, with and without something readable below it; and words read through the kernel at the ends of pages.
 */
#include "stack/internal.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB  ((uint64_t)1 << 20)
#define PAGE 4096u

static uint64_t here(void)
{
    return (uint64_t)(uintptr_t)__builtin_frame_address(0);
}

/* The answer, with errno as it was. */
static bool widen(uint64_t sp)
{
    errno = 4711;
    bool is = gp_own_stack_widen(sp);
    cr_assert_eq(errno, 4711);
    cr_assert(!is || (sp >= gp_own_stack_bounds.low && sp < gp_own_stack_bounds.high));
    return is;
}

static void run(void *(*main)(void *), void *stack, size_t bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    cr_assert_eq(pthread_attr_init(&attributes), 0);
    if (stack)
        cr_assert_eq(pthread_attr_setstack(&attributes, stack, bytes), 0);
    else
        cr_assert_eq(pthread_attr_setstacksize(&attributes, bytes), 0);
    cr_assert_eq(pthread_create(&thread, &attributes, main, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

TestSuite(ownstack, .init = gp_own_stack_start, .timeout = 60);

Test(ownstack, of_the_main_thread)
{
    static char elsewhere;
    char *heap = malloc(100);
    cr_expect_eq(gp_own_stack_bounds.high, 0);
    cr_expect(widen(here()));
    uint64_t high = gp_own_stack_bounds.high, low = gp_own_stack_bounds.low;
    cr_expect(high > here() && low <= here() && here() - low < PAGE, "no further than asked for");
    cr_expect_eq(low % PAGE, 0);
    cr_expect(high - here() < 8 * MIB);
    cr_expect(widen(here()));
    cr_expect(gp_own_stack_bounds.high == high && gp_own_stack_bounds.low == low);
    cr_expect_not(widen(high));
    cr_expect(widen(high - 8));
    cr_expect_not(widen((uint64_t)(uintptr_t)&elsewhere));
    cr_expect_not(widen((uint64_t)(uintptr_t)heap));
    free(heap);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static uint64_t base; /* the lowest address of the thread's stack; 0: libc's own, with a guard page */

static void *stack_main(void *arg)
{
    uint64_t sp = here();
    (void)arg;
    cr_expect(widen(sp));
    cr_expect_eq(gp_own_stack_bounds.low, sp / PAGE * PAGE);
    cr_expect(gp_own_stack_bounds.high > sp && gp_own_stack_bounds.high - sp < MIB / 2);
    if (base) {
        cr_expect(widen(base), "to its last byte");
        cr_expect_eq(gp_own_stack_bounds.low, base);
        cr_expect_not(widen(base - 8), "what lies below is another's");
        cr_expect_eq(gp_own_stack_bounds.low, base);
    } else {
        cr_expect(widen(sp - 100 * 1024));
        cr_expect_not(widen(sp - 2 * MIB), "beyond the guard page");
        cr_expect_gt(gp_own_stack_bounds.low, sp - 1 * MIB);
    }
    cr_expect(widen(sp));
    return NULL;
}

Test(ownstack, of_a_thread)
{
    run(stack_main, NULL, 1 * MIB);
    cr_expect_eq(gp_own_stack_bounds.high, 0, "this thread's are its own");
}

/* The mapping goes on below the stack, without a guard page, as for a coroutine's stack beside it. */
Test(ownstack, of_a_thread_whose_stack_is_the_programs)
{
    for (unsigned i = 0; i < 3; i++) {
        char *room = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert(room != MAP_FAILED);
        base = (uint64_t)(uintptr_t)room + MIB + i * PAGE;
        run(stack_main, (char *)(uintptr_t)base, MIB);
        munmap(room, 4 * MIB);
    }
}

static void *unreadable_main(void *arg)
{
    uint64_t sp = here(), gone = sp / PAGE * PAGE - 10 * PAGE;
    (void)arg;
    cr_assert_eq(mprotect((void *)(uintptr_t)gone, PAGE, PROT_NONE), 0);
    cr_expect(widen(gone + PAGE));
    cr_expect_not(widen(gone + PAGE - 8), "a page without access");
    cr_expect_not(widen(gone - 8));
    cr_expect_eq(gp_own_stack_bounds.low, gone + PAGE);
    cr_assert_eq(munmap((void *)(uintptr_t)gone, PAGE), 0);
    cr_expect_not(widen(gone), "a page that is not there");
    cr_expect_eq(gp_own_stack_bounds.low, gone + PAGE);
    return NULL;
}

Test(ownstack, ends_at_a_page_that_cannot_be_read)
{
    run(unreadable_main, NULL, 1 * MIB);
}

/* Deeper than 256 MiB it is treated as another stack. */
static void *deep_main(void *arg)
{
    (void)arg;
    cr_expect(widen(here()));
    uint64_t high = gp_own_stack_bounds.high, before = gp_own_stack_bounds.low;
    cr_expect_not(widen(high - 256 * MIB));
    cr_expect_eq(gp_own_stack_bounds.low, before);
    cr_expect(widen(high - 256 * MIB + 8));
    cr_expect_not(widen(high - 258 * MIB));
    return NULL;
}

Test(ownstack, of_a_deep_thread)
{
    size_t bytes = 280 * MIB;
    void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(stack != MAP_FAILED);
    run(deep_main, stack, bytes);
    munmap(stack, bytes);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

Test(ownstack, words_through_the_kernel)
{
    char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(pages != MAP_FAILED);
    srand(20251123);
    for (unsigned i = 0; i < 4 * PAGE; i++)
        pages[i] = (char)rand();
    cr_assert_eq(munmap(pages + 2 * PAGE, PAGE), 0);
    uint64_t at = (uint64_t)(uintptr_t)pages, word, want;
    struct gp_peek peek = {0};
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t offset = (uint64_t)rand() % (4 * PAGE / 8) * 8;
        if (round % 4)
            offset = peek.at - at + (uint64_t)rand() % 80 * 8; /* near the last one */
        if (offset >= 4 * PAGE)
            continue;
        bool there = offset / PAGE != 2;
        errno = 4711;
        cr_assert_eq(gp_ownstack_word(&peek, at + offset, &word), there, "offset %lu", (unsigned long)offset);
        cr_assert_eq(errno, 4711);
        memcpy(&want, there ? pages + offset : (char *)&word, 8);
        cr_assert_eq(word, want, "offset %lu", (unsigned long)offset);
    }
    peek = (struct gp_peek){0};
    cr_expect_not(gp_ownstack_word(&peek, at + 2 * PAGE - 4, &word), "half a word");
    cr_expect(gp_ownstack_word(&peek, at + 2 * PAGE - 8, &word));
    cr_expect_eq(peek.bytes, 8);
    cr_expect(gp_ownstack_word(&peek, at + PAGE, &word));
    cr_expect_eq(peek.bytes, sizeof(peek.words));
    memset(pages + PAGE, 0, PAGE); /* what was read is not read again */
    want = word;
    cr_expect(gp_ownstack_word(&peek, at + PAGE, &word));
    cr_expect_eq(word, want);
    cr_expect(gp_ownstack_word(&peek, at + PAGE + 504, &word));
    cr_expect_eq(peek.at, at + PAGE, "the last word of those");
    cr_expect(gp_ownstack_word(&peek, at + PAGE + 512, &word));
    cr_expect_eq(peek.at, at + PAGE + 512);
    cr_expect_eq(word, 0);
}
