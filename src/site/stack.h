/* SPDX-License-Identifier: MIT
 *
 * stack.h: how a stack is read; shared by site.c (the tables), native.c and python.c, and nobody else.
 */
#ifndef GP_SITE_STACK_H
#define GP_SITE_STACK_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Return addresses of the calling thread, innermost first, at most `room`; the caller's own frames of libgpuprof may be
 * among them, viewers leave them out.  Reads nothing outside the thread's own stack and the loaded objects' unwind
 * tables; a frame that cannot be followed ends the stack. *more: there was no room for all. */
unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more);

/* The Python frames of the calling thread, innermost first, whether or not it holds the GIL; 0 if it is no Python
 * thread, or of a version that is not known.  Of the interpreter it calls five functions that read one variable each;
 * it runs none of its code that waits or allocates, takes no reference and writes nothing there.  The strings are valid
 * until the caller returns to it; not NUL-terminated. */
struct gp_python_text {
    const char *bytes;
    uint32_t length; /* UTF-8 */
};
struct gp_python_frame {
    uint64_t code;                        /* address of the code object: names it as long as it lives */
    struct gp_python_text function, file; /* qualified name where the version has one */
    uint32_t line;
};
unsigned gp_stack_python(struct gp_python_frame *frames, unsigned room, bool *more);

/* In text of which no more than this is kept. */
#define GP_STACK_TEXT 512u

#endif
