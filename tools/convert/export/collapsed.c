/* SPDX-License-Identifier: MIT
 * collapsed.c: one line per stack, "outermost;...;innermost BYTES", for flame graph scripts.  The
 * outermost frame is the device, the innermost one the kind of memory in brackets.  Called through
 * the table in formats.c. */
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <read/common/hash.h>
#include <show/text/stats.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void collapsed_line(struct gp_export *export, struct gp_out *out, const struct gp_export_sum *sum, int64_t bytes)
{
    const struct gp_frame_text *frames;
    char text[512];
    uint32_t count = gp_symbols_site(export->symbols, sum->site, &frames);
    gp_out_text(out, "device ");
    gp_out_text(out, gp_export_device(export->recording, sum->device, text));
    while (count-- > 0) {
        gp_frame_label(&frames[count], text, sizeof(text));
        gp_out_char(out, ';');
        gp_out_frame(out, text);
    }
    gp_out_text(out, ";[");
    gp_out_text(out, gp_kind_name(sum->kind));
    gp_out_text(out, "] ");
    gp_out_i64(out, bytes);
    gp_out_char(out, '\n');
}

struct collapsed {    /* a line */
    uint32_t row;     /* of the sums: the first with this stack */
    uint64_t mark[2]; /* of its text */
    int64_t bytes;
};

struct collapsed_search {
    const struct collapsed *lines;
    const uint64_t *mark;
};

static bool collapsed_same(const void *search, uint32_t number)
{
    const struct collapsed_search *s = search;
    return memcmp(s->lines[number].mark, s->mark, sizeof(s->lines[number].mark)) == 0;
}

static void collapsed_mark(uint64_t mark[2], const char *text)
{
    for (; *text; text++) { /* FNV, and another */
        mark[0] = (mark[0] ^ (unsigned char)*text) * 0x100000001b3ull;
        mark[1] = (mark[1] + (unsigned char)*text) * 0x9e3779b97f4a7c15ull;
        mark[1] ^= mark[1] >> 29;
    }
    mark[0] *= 0x100000001b3ull; /* the end of a frame */
    mark[1] += 0x632be59bd9b4e019ull;
}

static void collapsed_marks(struct gp_export *export, const struct gp_export_sum *sum, uint64_t mark[2])
{
    const struct gp_frame_text *frames;
    char text[512];
    uint32_t count = gp_symbols_site(export->symbols, sum->site, &frames);
    mark[0] = 0xcbf29ce484222325ull;
    mark[1] = (uint64_t)sum->device << 8 | sum->kind;
    while (count-- > 0) {
        gp_frame_label(&frames[count], text, sizeof(text));
        collapsed_mark(mark, text);
    }
}

/* Sites whose stacks read the same, as those of one line that was compiled twice, are one line. */
static int collapsed_join(struct gp_export *export, const struct gp_export_sums *sums, struct collapsed *lines,
                          uint32_t *count)
{
    struct gp_hash known = {0};
    int rc = 0;
    for (uint32_t i = 0; !rc && i < sums->count; i++) {
        struct collapsed line = {.row = i, .bytes = gp_export_weight_of(&sums->rows[i], export->weight)};
        bool added;
        if (line.bytes <= 0) /* readers reject weights of 0 and below */
            continue;
        collapsed_marks(export, &sums->rows[i], line.mark);
        const struct collapsed_search search = {lines, line.mark};
        const uint32_t *at =
            gp_hash_add(&known, gp_hash_of_number(line.mark[0]), collapsed_same, &search, *count, &added);
        if (!at)
            rc = -ENOMEM;
        else if (added)
            lines[(*count)++] = line;
        else
            lines[*at].bytes += line.bytes;
    }
    gp_hash_free(&known);
    return rc;
}

int gp_export_collapsed(struct gp_export *export, struct gp_out *out)
{
    struct gp_export_sums sums;
    int rc = gp_export_weigh(export, &sums);
    if (rc)
        return rc;
    struct collapsed *lines = calloc(sums.count + 1ul, sizeof(*lines));
    uint32_t count = 0;
    rc = lines ? collapsed_join(export, &sums, lines, &count) : -ENOMEM;
    for (uint32_t i = 0; !rc && i < count && !out->error; i++)
        collapsed_line(export, out, &sums.rows[lines[i].row], lines[i].bytes);
    free(lines);
    free(sums.rows);
    return rc ? rc : out->error;
}
