/* SPDX-License-Identifier: MIT
 * stack_frame.c: a library whose one function has a frame of STACK_BYTES.  Two of them have the same code at the same
 * addresses except for that number, but different unwind tables. */
#ifndef STACK_BYTES
#define STACK_BYTES 1000
#endif

#pragma GCC optimize("omit-frame-pointer")

void stack_frame(void (*call)(void *), void *argument);
void stack_frame(void (*call)(void *), void *argument)
{
    volatile char room[STACK_BYTES];
    room[0] = 1;
    call(argument);
    room[STACK_BYTES - 1] = room[0];
}
