/* SPDX-License-Identifier: MIT
 *
 * pass.c: a library through which a call goes; unit/test_owner and tests/torture/framework.c load copies of it under
 * the names of libraries that own memory.
 */
void pass(void (*next)(void *), void *arg);
void pass(void (*next)(void *), void *arg)
{
    next(arg);
    __asm__ volatile("" ::: "memory"); /* no jump: the frame stays on the stack */
}
