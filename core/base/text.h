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

/* SIZE: a decimal number, perhaps with a fraction, perhaps a blank, and a unit in any case: B; K, Ki or KiB to T, Ti or
 * TiB (powers of two); KB to TB (powers of ten).  "8e9" is a number too.  A part of a byte is left out.  0, -EINVAL,
 * -ERANGE (does not fit int64_t), -EDOM: a number above 0 and below 1 MiB without a unit, in *bytes: a caller that writes
 * --budget=20 does not mean bytes. */
int gp_text_size_parse(const char *text, int64_t *bytes);
#define GP_TEXT_WHY 96
/* Why it is no size: "not a size (like 7.5GiB, 24G or 8GB)". */
const char *gp_text_size_why(char why[GP_TEXT_WHY], const char *text);

/* "80%", from above 0 to 100.  0, -EINVAL, -ERANGE. */
int gp_text_percent_parse(const char *text, double *percent);

#endif
