/* SPDX-License-Identifier: MIT
 *
 * caller.c: a plug-in that is opened with RTLD_LOCAL, for lookups whose result depends on the caller. Its own
 * symbol is only in its own scope, and RTLD_NEXT finds the symbol of the library that it needs (this file
 * with CALLER_SECOND).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>

#ifdef CALLER_SECOND
int caller_mark = 8;
#else
int caller_mark = 7;
void caller_ask(void);

void caller_ask(void)
{
    int *mine = dlsym(RTLD_DEFAULT, "caller_mark"), *next = dlsym(RTLD_NEXT, "caller_mark");
    printf("plug-in: by default %d, next %d\n", mine != NULL ? *mine : 0, next != NULL ? *next : 0);
}
#endif
