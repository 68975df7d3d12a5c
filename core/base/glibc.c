/* SPDX-License-Identifier: MIT
 * glibc.c: what glibc.h cannot do with a macro. */
#include <stdint.h>

#if defined(__aarch64__)
/* The canary of what libzstd.a compiled with a stack protector (the Makefile gives it this name).
 * glibc's own is in the loader, which would become a needed library, and musl has none of that name. */
extern const uintptr_t gp_glibc_canary;
const uintptr_t gp_glibc_canary = 0x7d5b3ac91e684f00;
#endif
