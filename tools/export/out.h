/* SPDX-License-Identifier: MIT
 *
 * out.h: a stream of output with a buffer of its own, and the spellings of text in it.  Ten million events are a
 * thousand million characters, and printf takes half of the time that all else takes together.  Strings come from other
 * people's programs: whatever is no UTF-8 leaves as U+FFFD, in every format.
 *
 * The first error stays, and nothing is written after it; callers look once, at the end.
 */
#ifndef GP_EXPORT_OUT_H
#define GP_EXPORT_OUT_H

#include <stddef.h>
#include <stdint.h>

#define GP_OUT_BYTES 65536u

struct gp_out {
    int fd;
    int error; /* -errno; 0 none */
    uint64_t written;
    size_t used;
    char buffer[GP_OUT_BYTES];
};

void gp_out_begin(struct gp_out *out, int fd);
/* Writes what is left.  0 or -errno of the first error. */
int gp_out_end(struct gp_out *out);

void gp_out_bytes(struct gp_out *out, const void *bytes, size_t count);
void gp_out_text(struct gp_out *out, const char *text); /* as it is: our own words */
void gp_out_char(struct gp_out *out, char c);
void gp_out_u64(struct gp_out *out, uint64_t number);
void gp_out_i64(struct gp_out *out, int64_t number);
void gp_out_hex(struct gp_out *out, uint64_t number); /* 0x... */
/* Nanoseconds as microseconds with three digits behind the point. */
void gp_out_micros(struct gp_out *out, int64_t ns);

void gp_out_utf8(struct gp_out *out, const char *text);
void gp_out_json(struct gp_out *out, const char *text);  /* in quotes */
void gp_out_csv(struct gp_out *out, const char *text);   /* a field of RFC 4180 */
void gp_out_frame(struct gp_out *out, const char *text); /* a frame of a collapsed stack */

/* The character at *text, which moves on; invalid bytes give U+FFFD one at a time; 0 at the end. */
uint32_t gp_utf8_next(const char **text);
/* A copy of valid UTF-8 in to[bytes], NUL-terminated; a character that does not fit whole is left out. */
void gp_utf8_copy(char *to, size_t bytes, const char *text);

#endif
