/* SPDX-License-Identifier: MIT
 * An injection library that leads the driver's call to walk.c. */
void walk_here(const char *where);

int InitializeInjection(void)
{
    walk_here("InitializeInjection");
    return 1;
}
