/* SPDX-License-Identifier: MIT
 * uuid.h: formats the UUID of a GPU. Includes base/text.h, with which its users clean strings. */
#ifndef GP_COLLECT_UUID_H
#define GP_COLLECT_UUID_H

#include <base/text.h>
#include <stddef.h>

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVML prints it; "" if all bytes are zero. */
void gp_text_uuid(char *to, size_t to_bytes, const unsigned char uuid[16]);

#endif
