/* SPDX-License-Identifier: MIT
 *
 * pickled.c: writes Python's pickles; see pickled.h.
 */
#include <base/text.h>
#include <convert/snapshot/internal.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define GP_PICKLED_TEXT 4096u /* a mangled C++ name may have thousands of bytes; more are not readable */

void gp_snapshot_pickled_flush(struct gp_pickled *out)
{
    for (uint32_t done = 0; done < out->used && !out->error;) {
        ssize_t n = write(out->fd, out->buffer + done, out->used - done);
        if (n > 0)
            done += (uint32_t)n;
        else if (n == 0 || errno != EINTR)
            out->error = n == 0 ? -EIO : -errno;
    }
    out->written += out->error ? 0 : out->used;
    out->used = 0;
}

void gp_snapshot_pickled_begin(struct gp_pickled *out, int fd)
{
    out->fd = fd;
    out->error = 0;
    out->written = 0;
    out->memo_count = 0;
    out->used = 0;
    gp_pickled_part_end(out, gp_pickled_op(gp_pickled_op(gp_pickled_part(out), '\x80'), 2)); /* PROTO 2 */
}

int gp_snapshot_pickled_end(struct gp_pickled *out)
{
    gp_pickled_part_end(out, gp_pickled_op(gp_pickled_part(out), '.'));
    gp_snapshot_pickled_flush(out);
    return out->error;
}

uint8_t *gp_snapshot_pickled_text(struct gp_pickled *out, uint8_t *at, const char *text)
{
    char clean[GP_PICKLED_TEXT];
    gp_text_clean(clean, sizeof(clean), text, strnlen(text, sizeof(clean)));
    uint32_t bytes = (uint32_t)strlen(clean);
    gp_pickled_part_end(out, gp_pickled_number(at, 'X', bytes, 4));
    if (out->used + bytes > GP_PICKLED_BUFFER)
        gp_snapshot_pickled_flush(out);
    memcpy(out->buffer + out->used, clean, bytes);
    out->used += bytes;
    return gp_pickled_part(out);
}
