/* SPDX-License-Identifier: MIT
 *
 * A thread on a stack that the program made, which has no guard, and coroutines on stacks right
 * below it, entered by code that no unwind table describes truly.  The upper coroutine's stack is
 * unmapped while the lower one is used. Leaves 1 MiB linear.
 */
#include <cuda.h>
#include <sys/mman.h>

#include "finish.h"
#include "threads.h"

#define STACK (256 * KIB)

static char *stacks; /* lower coroutine, upper coroutine, thread */
static CUcontext context;

static void allocate(void)
{
    CHECK(cuMemFree(program_alloc(64 * KIB)));
}

/* Its frame is found by the stack pointer, which is another stack's. */
__attribute__((noinline, optimize("omit-frame-pointer"))) static void run_on(char *top)
{
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %%rbx\n"
                     "mov %0, %%rsp\n"
                     "call *%1\n"
                     "mov %%rbx, %%rsp\n"
                     :
                     : "r"(top), "r"(allocate)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
#else
    (void)top;
    allocate();
#endif
}

static void *thread_stacks(void *arg)
{
    CHECK(cuCtxSetCurrent(context));
    allocate();
    run_on(stacks + 2 * STACK);
    run_on(stacks + STACK);
    printf("unmapped: %d\n", munmap(stacks + STACK, STACK));
    run_on(stacks + STACK);
    return arg;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_t thread;

    program_start();
    program_alloc(MIB);
    CHECK(cuCtxGetCurrent(&context));
    stacks = mmap(NULL, 3 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, stacks + 2 * STACK, STACK));
    CHECK(pthread_create(&thread, &attributes, thread_stacks, NULL));
    CHECK(pthread_join(thread, NULL));
    return finish();
}
