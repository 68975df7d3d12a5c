/* SPDX-License-Identifier: MIT
 * tracenotes.c: what the trace of a snapshot of PyTorch or a log does not know, as notes above a result; see text.h.
 */
#include <inttypes.h>
#include <read/recording/recording.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <show/text/write.h>
#include <stdio.h>

static void trace_lacks(const struct gp_text_page *page, const char *note, const char *what, uint64_t blocks,
                        uint64_t bytes)
{
    char size[GP_SIZE_TEXT];
    if (blocks)
        fprintf(page->out,
                "%s%" PRIu64 " block%s (%s) %s %s in no entry of the trace: each counts only where it is certain "
                "(skip_actions of torch.cuda.memory._record_memory_history)%s\n",
                note, blocks, blocks == 1 ? "" : "s", gp_size_text(size, (int64_t)bytes), blocks == 1 ? "was" : "were",
                what, gp_text_on(page, GP_OFF));
}

/* What a trace that begins in the middle of a program does not know. */
void gp_text_before(const struct gp_text_page *page, const struct gp_recording *r, const char *note)
{
    char size[GP_SIZE_TEXT];
    if (r->from_pprof) {
        fprintf(
            page->out,
            "%sa heap profile has what was held at one time, as a sum of each stack: there is no peak, and the blocks "
            "of a stack count as equally large%s\n",
            note, gp_text_on(page, GP_OFF));
        return;
    }
    if (r->before_sum)
        fprintf(page->out, "%s%s was allocated before the first entry of the trace: where is not known%s\n", note,
                gp_size_text(size, (int64_t)r->before_bytes), gp_text_on(page, GP_OFF));
    else if (r->before_blocks)
        fprintf(page->out,
                "%s%" PRIu64 " block%s (%s) %s allocated before the first entry of the trace: where is not known%s\n",
                note, r->before_blocks, r->before_blocks == 1 ? "" : "s", gp_size_text(size, (int64_t)r->before_bytes),
                r->before_blocks == 1 ? "was" : "were", gp_text_on(page, GP_OFF));
    if (r->timeline == GP_REC_SIZES)
        fprintf(page->out,
                "%sa memory timeline has no addresses: a free is taken for that of the newest block of its size and "
                "category, so sums are exact and times that blocks live are not%s\n",
                note, gp_text_on(page, GP_OFF));
    else if (r->timeline)
        fprintf(
            page->out,
            "%sa memory timeline has sums of categories alone: what counts as a block is a change of such a sum%s\n",
            note, gp_text_on(page, GP_OFF));
    trace_lacks(page, note, "allocated", r->unseen_blocks, r->unseen_bytes);
    trace_lacks(page, note, "freed", r->unfreed_blocks, r->unfreed_bytes);
    if (r->torch_unknown)
        fprintf(page->out, "%s%" PRIu64 " entries of the trace have actions that this version does not know%s\n", note,
                r->torch_unknown, gp_text_on(page, GP_OFF));
}
