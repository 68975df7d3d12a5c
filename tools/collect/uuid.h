/* SPDX-License-Identifier: MIT
 * uuid.h: names of devices as people know them; and, for the readers here, what makes a string harmless. */
#ifndef GP_COLLECT_UUID_H
#define GP_COLLECT_UUID_H

#include <base/text.h>
#include <stddef.h>

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" as NVML prints it; "" if the bytes are all zero. */
void gp_text_uuid(char *to, size_t to_bytes, const unsigned char uuid[16]);

#endif
