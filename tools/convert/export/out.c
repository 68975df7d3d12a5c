/* SPDX-License-Identifier: MIT
 * out.c: writes numbers and text to a file, buffered (out.h). */
#include <convert/export/out.h>

#include <base/text.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

void gp_out_begin(struct gp_out *out, int fd)
{
    out->fd = fd;
    out->error = 0;
    out->written = 0;
    out->used = 0;
}

static void out_flush(struct gp_out *out)
{
    size_t at = 0;
    while (at < out->used && !out->error) {
        ssize_t n = write(out->fd, out->buffer + at, out->used - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            out->error = -errno;
        else
            at += (size_t)n;
    }
    out->written += at;
    out->used = 0;
}

int gp_out_end(struct gp_out *out)
{
    out_flush(out);
    return out->error;
}

void gp_out_bytes(struct gp_out *out, const void *bytes, size_t count)
{
    const char *from = bytes;
    while (count) {
        size_t part = GP_OUT_BYTES - out->used < count ? GP_OUT_BYTES - out->used : count;
        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        count -= part;
        if (out->used == GP_OUT_BYTES)
            out_flush(out);
    }
}

void gp_out_text(struct gp_out *out, const char *text)
{
    gp_out_bytes(out, text, strlen(text));
}

void gp_out_char(struct gp_out *out, char c)
{
    out->buffer[out->used++] = c;
    if (out->used == GP_OUT_BYTES)
        out_flush(out);
}

void gp_out_u64(struct gp_out *out, uint64_t number)
{
    char digits[20]; /* of UINT64_MAX */
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    gp_out_bytes(out, digits + at, sizeof(digits) - at);
}

void gp_out_i64(struct gp_out *out, int64_t number)
{
    if (number < 0)
        gp_out_char(out, '-');
    gp_out_u64(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

void gp_out_hex(struct gp_out *out, uint64_t number)
{
    char digits[18];
    size_t at = sizeof(digits);
    do {
        digits[--at] = "0123456789abcdef"[number & 15];
        number >>= 4;
    } while (number);
    digits[--at] = 'x';
    digits[--at] = '0';
    gp_out_bytes(out, digits + at, sizeof(digits) - at);
}

void gp_out_micros(struct gp_out *out, int64_t ns)
{
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    if (ns < 0)
        gp_out_char(out, '-');
    gp_out_u64(out, size / 1000);
    char part[4] = {'.', (char)('0' + size / 100 % 10), (char)('0' + size / 10 % 10), (char)('0' + size % 10)};
    gp_out_bytes(out, part, sizeof(part));
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

void gp_utf8_copy(char *to, size_t bytes, const char *text)
{
    size_t at = 0, length;
    char one[4];
    uint32_t character;
    while ((character = gp_utf8_next(&text)) != 0) {
        length = gp_utf8_put(one, character);
        if (at + length >= bytes)
            break;
        memcpy(to + at, one, length);
        at += length;
    }
    to[at] = '\0';
}

static void out_character(struct gp_out *out, uint32_t character)
{
    char one[4];
    if (character < 0x80)
        gp_out_char(out, (char)character);
    else
        gp_out_bytes(out, one, gp_utf8_put(one, character));
}

/* Copies the part that needs no escape, which is most of most strings.  Returns the first byte that
 * may need one. */
static const char *out_plain(struct gp_out *out, const char *text)
{
    const char *at = text;
    while (*at >= ' ' && *at < 0x7f && *at != '"' && *at != '\\')
        at++;
    gp_out_bytes(out, text, (size_t)(at - text));
    return at;
}

void gp_out_json(struct gp_out *out, const char *text)
{
    uint32_t character;
    gp_out_char(out, '"');
    for (text = out_plain(out, text); (character = gp_utf8_next(&text)) != 0; text = out_plain(out, text)) {
        if (character == '"' || character == '\\') {
            gp_out_char(out, '\\');
            gp_out_char(out, (char)character);
        } else if (character < 0x20 || character == 0x7f) {
            char escape[6] = {'\\', 'u', '0', '0', (char)('0' + (character >> 4)), "0123456789abcdef"[character & 15]};
            gp_out_bytes(out, escape, sizeof(escape));
        } else {
            out_character(out, character);
        }
    }
    gp_out_char(out, '"');
}

/* RFC 4180 requires quotes around a field with one of its own characters.  A field that a
 * spreadsheet would take for a formula gets quotes too, for readers that tell text from formulas by
 * them; the data does not change. */
static bool csv_quoted(const char *text)
{
    return (*text && strchr("=+-@\t \r", *text)) || strpbrk(text, "\",\r\n");
}

void gp_out_csv(struct gp_out *out, const char *text)
{
    uint32_t character;
    bool quoted = csv_quoted(text);
    if (quoted)
        gp_out_char(out, '"');
    for (text = out_plain(out, text); (character = gp_utf8_next(&text)) != 0; text = out_plain(out, text)) {
        if (character == '"')
            gp_out_char(out, '"');
        out_character(out, character);
    }
    if (quoted)
        gp_out_char(out, '"');
}

/* Readers split a line at its last blank and then at each ';', without an escape for either: ';'
 * becomes ':', line breaks become blanks, and blanks at both ends are dropped. */
void gp_out_frame(struct gp_out *out, const char *text)
{
    uint32_t character;
    unsigned blanks = 0;
    bool begun = false;
    while ((character = gp_utf8_next(&text)) != 0) {
        if (character <= ' ' || character == 0x7f || character == 0x85 || character == 0xa0 || character == 0x2028 ||
            character == 0x2029) {
            blanks++;
            continue;
        }
        while (blanks && begun) {
            gp_out_char(out, ' ');
            blanks--;
        }
        blanks = 0;
        begun = true;
        out_character(out, character == ';' ? ':' : character);
    }
    if (!begun)
        gp_out_char(out, '?');
}
