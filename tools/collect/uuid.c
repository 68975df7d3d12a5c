/* SPDX-License-Identifier: MIT
 * uuid.c: see uuid.h. */
#include <collect/uuid.h>

#include <stdio.h>

void gp_text_uuid(char *to, size_t to_bytes, const unsigned char u[16])
{
    unsigned any = 0;
    for (int i = 0; i < 16; i++)
        any |= u[i];
    to[0] = '\0';
    if (any)
        snprintf(to, to_bytes, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
                 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}
