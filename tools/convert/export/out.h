/* SPDX-License-Identifier: MIT
 *
 * out.h: writes text, numbers, JSON and CSV into a buffer for a file.
 */
#ifndef GP_CONVERT_EXPORT_OUT_H
#define GP_CONVERT_EXPORT_OUT_H

#include <stddef.h>
#include <stdint.h>

/* A buffered output stream, and the escapes of each format.  Ten million events are a thousand
 * million characters, for which printf would need half as long as everything else together.  Strings
 * come from the profiled program: invalid UTF-8 becomes U+FFFD in every format.
 *
 * The stream keeps the first error and writes nothing after it, so callers check once, at the end. */

#define GP_OUT_BYTES 65536u

struct gp_out {
    int fd;
    int error; /* -errno; 0 none */
    uint64_t written;
    size_t used;
    char buffer[GP_OUT_BYTES];
};

void gp_out_begin(struct gp_out *out, int fd);
/* Flushes the buffer.  0 or -errno of the first error. */
int gp_out_end(struct gp_out *out);

void gp_out_bytes(struct gp_out *out, const void *bytes, size_t count);
void gp_out_text(struct gp_out *out, const char *text); /* without escapes, for our own words */
void gp_out_char(struct gp_out *out, char c);
void gp_out_u64(struct gp_out *out, uint64_t number);
void gp_out_i64(struct gp_out *out, int64_t number);
void gp_out_hex(struct gp_out *out, uint64_t number); /* 0x... */
/* Nanoseconds as microseconds with three decimals. */
void gp_out_micros(struct gp_out *out, int64_t ns);

void gp_out_json(struct gp_out *out, const char *text);  /* in quotes */
void gp_out_csv(struct gp_out *out, const char *text);   /* a field of RFC 4180 */
void gp_out_frame(struct gp_out *out, const char *text); /* a frame of a collapsed stack */

/* Copies text as valid UTF-8 into to[bytes], NUL-terminated; a character that does not fit
 * completely is left out. */
void gp_utf8_copy(char *to, size_t bytes, const char *text);

#endif
