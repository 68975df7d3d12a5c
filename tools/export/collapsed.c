/* SPDX-License-Identifier: MIT
 * collapsed.c: one line per stack, "outermost;...;innermost BYTES", for flame graph scripts.  The
 * outermost frame is the device, the innermost one the kind of memory in brackets.  Called through
 * the table in formats.c. */
#include <export/formats.h>
#include <write/stats.h>

#include <stdlib.h>

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

int gp_export_collapsed(struct gp_export *export, struct gp_out *out)
{
    struct gp_export_sums sums;
    int rc = gp_export_weigh(export, &sums);
    for (uint32_t i = 0; !rc && i < sums.count && !out->error; i++) {
        int64_t bytes = gp_export_weight_of(&sums.rows[i], export->weight);
        if (bytes > 0) /* readers reject weights of 0 and below */
            collapsed_line(export, out, &sums.rows[i], bytes);
    }
    if (!rc)
        free(sums.rows);
    return rc ? rc : out->error;
}
