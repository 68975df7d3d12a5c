/* SPDX-License-Identifier: MIT
 * text.h: makes strings of other processes harmless.  Called by every reader in tools/collect before a string is kept;
 * must never pass on a byte that a terminal would act upon. */
#ifndef GP_COLLECT_TEXT_H
#define GP_COLLECT_TEXT_H

#include <stddef.h>

/* Copies at most from_bytes of `from` (up to its NUL) into to[to_bytes], always terminated.  Control characters,
 * invalid UTF-8, and the invisible characters that reorder a line (bidirectional overrides) become '?'.  A character
 * that does not fit whole is left out. */
void gp_text_clean(char *to, size_t to_bytes, const char *from, size_t from_bytes);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" as NVML prints it; "" if the bytes are all zero. */
void gp_text_uuid(char *to, size_t to_bytes, const unsigned char uuid[16]);

#endif
