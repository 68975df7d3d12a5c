/* SPDX-License-Identifier: MIT
 *
 * destructor.c: a library whose destructor runs a function of the program (shim_late.c). The order
 * of destructors depends on when the library was loaded.
 */
void (*destructor_call)(void);

__attribute__((destructor)) static void destructor_end(void)
{
    if (destructor_call)
        destructor_call();
}
