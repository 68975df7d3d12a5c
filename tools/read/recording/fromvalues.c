/* SPDX-License-Identifier: MIT
 * fromvalues.c: reads a pickle or JSON, and hands its values to the reader of what they are; see internal.h. */
#include <errno.h>
#include <read/recording/internal.h>
#include <read/recording/pickleread.h>
#include <stdio.h>

int gp_read_values(struct gp_read *read, const struct gp_input *from, char *why, size_t why_bytes)
{
    struct gp_pickle_file file;
    bool json = from->format == GP_INPUT_JSON;
    int rc = (json ? gp_unjson_read : gp_pickle_read)(&file, from->data, from->bytes);
    const struct gp_pickle *first = rc ? NULL : gp_pickle_at(&file.root, 0);
    if (rc == -EINVAL) {
        snprintf(why, why_bytes, "%s, but at byte %zu: %s", json ? "JSON" : "a pickle", file.position, file.why);
        rc = -EPROTO;
    } else if (rc == -E2BIG) {
        rc = -EFBIG;
    } else if (!rc && gp_pickle_get(&file.root, "traceEvents")) {
        rc = gp_read_kineto(read, &file, why, why_bytes);
    } else if (!rc && first && first->type == GP_PICKLE_LIST) {
        rc = gp_read_timeline(read, &file, why, why_bytes);
    } else if (!rc) {
        rc = gp_read_torch(read, &file, from, why, why_bytes);
    }
    gp_pickle_free(&file);
    return rc;
}
