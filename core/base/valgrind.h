/* SPDX-License-Identifier: MIT
 *
 * valgrind.h: whether Valgrind runs this process.  It translates the code of the program and would run the kernel's
 * breakpoint at a probe by itself, which ends the process.
 */
#ifndef GP_BASE_VALGRIND_H
#define GP_BASE_VALGRIND_H

#include <stdbool.h>
#include <stdint.h>

/* Valgrind takes this sequence, which changes nothing on a processor, for its request 0x1001 and answers how many
 * Valgrinds there are.  False on other processors. */
static inline bool gp_on_valgrind(void)
{
    volatile uint64_t request[6] = {0x1001};
    uint64_t answer = 0;
#if defined(__x86_64__)
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(request)
                     : "cc", "memory");
#elif defined(__aarch64__)
    register volatile uint64_t *asked __asm__("x4") = request;
    register uint64_t said __asm__("x3") = 0;
    __asm__ volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61; orr x10, x10, x10"
                     : "+r"(said)
                     : "r"(asked)
                     : "cc", "memory");
    answer = said;
#else
    (void)request;
#endif
    return answer != 0;
}

#endif
