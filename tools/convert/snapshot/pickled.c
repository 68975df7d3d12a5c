/* SPDX-License-Identifier: MIT
 *
 * pickled.c: writes Python's pickles; see pickled.h.
 */
#include <base/text.h>
#include <convert/snapshot/internal.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define GP_PICKLED_BATCH 1000u
#define GP_PICKLED_TEXT  4096u /* a mangled C++ name may have thousands of bytes; more are not readable */

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

static void pickled_bytes(struct gp_pickled *out, const void *bytes, uint32_t count)
{
    memcpy(gp_pickled_room(out, count), bytes, count);
    out->used += count;
}

static void pickled_op(struct gp_pickled *out, char op)
{
    pickled_bytes(out, &op, 1);
}

void gp_snapshot_pickled_begin(struct gp_pickled *out, int fd)
{
    out->fd = fd;
    out->error = 0;
    out->written = 0;
    out->memo_count = 0;
    out->used = 0;
    pickled_bytes(out, "\x80\x02", 2); /* PROTO 2 */
}

int gp_snapshot_pickled_end(struct gp_pickled *out)
{
    pickled_op(out, '.');
    gp_snapshot_pickled_flush(out);
    return out->error;
}

void gp_snapshot_pickled_bool(struct gp_pickled *out, bool value)
{
    pickled_op(out, value ? '\x88' : '\x89');
}

void gp_snapshot_pickled_float(struct gp_pickled *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    gp_pickled_number(out, 'G', __builtin_bswap64(bits), 8);
}

void gp_snapshot_pickled_text(struct gp_pickled *out, const char *text)
{
    char clean[GP_PICKLED_TEXT];
    gp_text_clean(clean, sizeof(clean), text, strnlen(text, sizeof(clean)));
    uint32_t bytes = (uint32_t)strlen(clean);
    gp_pickled_number(out, 'X', bytes, 4);
    pickled_bytes(out, clean, bytes);
}

void gp_snapshot_pickled_pair(struct gp_pickled *out, int64_t first, int64_t second)
{
    gp_snapshot_pickled_int(out, first);
    gp_snapshot_pickled_int(out, second);
    pickled_op(out, '\x86');
}

uint32_t gp_snapshot_pickled_remember(struct gp_pickled *out)
{
    uint32_t memo = out->memo_count++;
    gp_pickled_number(out, memo <= UINT8_MAX ? 'q' : 'r', memo, memo <= UINT8_MAX ? 1 : 4);
    return memo;
}

void gp_snapshot_pickled_dict(struct gp_pickled *out)
{
    pickled_bytes(out, "}(", 2);
}

void gp_snapshot_pickled_dict_end(struct gp_pickled *out)
{
    pickled_op(out, 'u');
}

void gp_snapshot_pickled_list(struct gp_pickled *out, struct gp_snapshot_pickled_list *list)
{
    list->count = 0;
    pickled_op(out, ']');
}

void gp_snapshot_pickled_item(struct gp_pickled *out, struct gp_snapshot_pickled_list *list)
{
    if (list->count % GP_PICKLED_BATCH == 0) {
        if (list->count)
            pickled_op(out, 'e');
        pickled_op(out, '(');
    }
    list->count++;
}

void gp_snapshot_pickled_list_end(struct gp_pickled *out, struct gp_snapshot_pickled_list *list)
{
    if (list->count)
        pickled_op(out, 'e');
}
