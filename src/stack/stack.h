/* SPDX-License-Identifier: MIT
 *
 * stack.h: how a stack is read. site.c stores the stacks that native.c and python.c read; owner.c
 * looks for the library that asked for memory.
 */
#ifndef GP_STACK_STACK_H
#define GP_STACK_STACK_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Return addresses of the calling thread, innermost first, at most `room`. The caller's own frames
 * in libgpuprof may be among them; viewers leave them out. Reads only the thread's own stack and
 * the loaded objects' unwind tables; a frame that cannot be followed ends the stack. *more: there
 * was not enough room. */
unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more);

/* A number that differs from the last one if gp_stack_native noticed since that objects were loaded
 * or unloaded. */
uint64_t gp_stack_generation(void);

/* The Python frames of the calling thread, innermost first, whether or not it holds the GIL; 0 if
 * it is not a Python thread, or the version is unknown. Calls five functions of the interpreter
 * that read one variable each; runs none of its code that waits or allocates, takes no reference
 * and writes nothing there. The strings are not NUL-terminated, and valid until gp_stack_python's
 * caller returns. */
struct gp_python_text {
    const char *bytes;
    uint32_t length; /* UTF-8 */
};
struct gp_python_frame {
    uint64_t code;                        /* address of the code object: identifies it as long as it lives */
    struct gp_python_text function, file; /* qualified name where the version has one */
    uint32_t line;
};
unsigned gp_stack_python(struct gp_python_frame *frames, unsigned room, bool *more);

/* Whether the calling thread has Python frames that gp_stack_python can read; otherwise its caller saves
 * the arrays for them, which a small stack has no room for. *more: it has some, and the stack is too
 * small to read them. */
bool gp_stack_has_python(bool *more);

/* At most this many bytes of a text are kept. */
#define GP_STACK_TEXT 512u

#endif
