/* SPDX-License-Identifier: MIT
 *
 * text.h: strings from other processes made harmless, UUIDs, and the SIZE of options.
 */
#ifndef GP_BASE_TEXT_H
#define GP_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* ==== strings ===================================================================================================== */
/* Makes strings from other processes harmless, and prints UUIDs. Every reader calls gp_text_clean
 * before it keeps a string, so that no byte that a terminal acts upon is passed on. */

/* Length in bytes of the UTF-8 character at `at` (left > 0), with its code in *code; 0 if it is
 * not valid (overlong, surrogate, cut off). It never reads beyond a NUL, so a terminated string needs
 * no length: left is 4 then. */
size_t gp_utf8_decode(const unsigned char *at, size_t left, uint32_t *code);
/* Returns the character at *text and advances it; each invalid byte gives U+FFFD; 0 at the end. */
uint32_t gp_utf8_next(const char **text);
/* Writes a code up to 0x10ffff as UTF-8. Returns its length in bytes, 1 to 4. */
size_t gp_utf8_put(char to[4], uint32_t code);
/* Returns 0 for control characters and for the invisible ones that reorder a line (bidirectional
 * overrides). */
int gp_utf8_printable(uint32_t code);

/* Copies at most from_bytes of `from` (up to its NUL) into to[to_bytes], always terminated.
 * Characters that are not printable or not valid become '?'. A character that does not fit whole
 * is left out. */
void gp_text_clean(char *to, size_t to_bytes, const char *from, size_t from_bytes);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVML prints it; "" if all bytes are zero. */
void gp_text_uuid(char *to, size_t to_bytes, const uint8_t uuid[16]);

/* ==== sizes ======================================================================================================= */
/* The SIZE of options and of GPUPROF_LIMIT. */

/* SIZE: decimal digits, then B, KiB, MiB, GiB, TiB or K, M, G, T (powers of two, any case).  0,
 * -EINVAL, -ERANGE (does not fit int64_t). */
int gp_text_size_parse(const char *text, int64_t *bytes);

#endif
