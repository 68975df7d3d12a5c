/* SPDX-License-Identifier: MIT
 * diff.c: Compares two recordings of one program by call site; see analyze.h.
 */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>

static int64_t diff_change(const struct gp_diff_row *row)
{
    return (int64_t)((uint64_t)row->peak_bytes[1] - (uint64_t)row->peak_bytes[0]);
}

static int diff_compare(const void *one, const void *other)
{
    const struct gp_diff_row *a = one, *b = other;
    int64_t left = diff_change(a), right = diff_change(b);
    if (left != right)
        return GP_ORDER(right, left);
    left = (int64_t)((uint64_t)a->live_bytes[1] - (uint64_t)a->live_bytes[0]);
    right = (int64_t)((uint64_t)b->live_bytes[1] - (uint64_t)b->live_bytes[0]);
    if (left != right)
        return GP_ORDER(right, left);
    if (a->site[0] != b->site[0])
        return GP_ORDER(a->site[0], b->site[0]);
    return GP_ORDER(a->site[1], b->site[1]);
}

/* For site i: [2i] its bytes at the peak of the device, [2i + 1] its live bytes at the end. */
static int64_t *diff_numbers(const struct gp_flow *flow, int64_t *calls)
{
    const struct gp_recording *recording = flow->recording;
    int64_t *numbers = calloc((size_t)recording->site_count * 2 + 2, sizeof(*numbers));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    for (uint32_t d = 0; numbers && d < recording->device_count; d++) {
        struct gp_peak *peak = gp_flow_peak(flow, d, 0);
        if (!peak) {
            free(numbers);
            return NULL;
        }
        for (uint32_t i = 0; i < peak->count; i++)
            numbers[peak->parts[i].site * 2] += peak->parts[i].bytes;
        free(peak);
    }
    while (numbers && gp_flow_next(&walk, &change)) {
        uint64_t bytes = change.add ? change.item->bytes : -change.item->bytes;
        if (!(change.what & GP_FLOW_KIND))
            continue;
        calls[change.item->site] += change.add;
        numbers[change.item->site * 2 + 1] = (int64_t)((uint64_t)numbers[change.item->site * 2 + 1] + bytes);
    }
    return numbers;
}

/* The highest number of bytes that each row held at one moment: peaks[row_count].  False: out of memory. */
static bool diff_peaks(const struct gp_flow *flow, const uint32_t *rows, uint32_t row_count, int64_t *peaks)
{
    int64_t *held = calloc(row_count + 1ul, sizeof(*held));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (held && gp_flow_next(&walk, &change)) {
        if (!(change.what & GP_FLOW_SUMMED)) /* as in the peak of the device: code that is loaded at a line is none */
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        uint32_t row = rows[change.item->site];
        held[row] = (int64_t)((uint64_t)held[row] + bytes);
        peaks[row] = held[row] > peaks[row] ? held[row] : peaks[row];
    }
    bool ok = held;
    free(held);
    return ok;
}

/* at: for each row the index of its numbers in diff->rows + 1; 0: none yet. */
static bool diff_side(struct gp_diff *diff, const struct gp_recording *recording, int side, const uint32_t *rows,
                      uint32_t row_count, uint32_t *at)
{
    struct gp_flow *flow = gp_flow_new(recording);
    int64_t *calls = calloc(recording->site_count + 1u, sizeof(*calls));
    int64_t *peaks = calloc(row_count + 1ul, sizeof(*peaks));
    int64_t *numbers = flow && calls && peaks ? diff_numbers(flow, calls) : NULL;
    bool ok = numbers && diff_peaks(flow, rows, row_count, peaks);
    for (uint32_t i = 0; ok && i < recording->site_count; i++) {
        if (calls[i] == 0 && numbers[i * 2] == 0)
            continue;
        if (!at[rows[i]]) {
            diff->rows[diff->count] = (struct gp_diff_row){.site = {GP_REC_NONE, GP_REC_NONE}};
            at[rows[i]] = ++diff->count;
        }
        struct gp_diff_row *to = &diff->rows[at[rows[i]] - 1];
        to->site[side] = to->site[side] == GP_REC_NONE ? i : to->site[side];
        to->peak_bytes[side] += numbers[i * 2];
        to->own_bytes[side] = peaks[rows[i]];
        to->live_bytes[side] += numbers[i * 2 + 1];
        to->calls[side] += calls[i];
    }
    free(calls);
    free(peaks);
    free(numbers);
    gp_flow_free(flow);
    return ok;
}

struct gp_diff *gp_diff_find(const struct gp_recording *const recordings[2], const uint32_t *const rows[2],
                             uint32_t row_count)
{
    struct gp_diff *diff = calloc(1, sizeof(*diff) + (row_count + 1ul) * sizeof(struct gp_diff_row));
    uint32_t *at = calloc(row_count + 1ul, sizeof(*at));
    bool ok = diff && at;
    for (int side = 0; ok && side < 2; side++)
        ok = diff_side(diff, recordings[side], side, rows[side], row_count, at);
    free(at);
    if (!ok) {
        free(diff);
        return NULL;
    }
    qsort(diff->rows, diff->count, sizeof(diff->rows[0]), diff_compare);
    return diff;
}
