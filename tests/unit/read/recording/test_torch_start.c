/* SPDX-License-Identifier: MIT
 *
 * test_torch_start.c: the segments that were there before a trace (tools/read/recording/torchsplit.c), against a model that
 * looks at each address on its own.
 */
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <stdlib.h>

#include <unit/analyze/train_fixture.h>

#define ADDRESSES 64u
#define SPANS     40u

/* Of the changes at this address, the first one; segments at the end come last. */
static const struct gp_torch_span *first_at(const struct gp_torch_span *spans, unsigned count, uint64_t address)
{
    const struct gp_torch_span *first = NULL;
    for (unsigned i = 0; i < count; i++) {
        const struct gp_torch_span *span = &spans[i];
        if (span->start > address || span->end <= address)
            continue;
        if (!first || span->order < first->order || (span->order == first->order && span->start < first->start))
            first = span;
    }
    return first;
}

static void compare(struct gp_torch_span *spans, unsigned count, unsigned round)
{
    struct gp_recording recording = {0};
    struct gp_read read = {.recording = &recording};
    size_t at = 0;
    const struct gp_rec_event like = {.time_ns = 77, .kind = GP_KIND_LINEAR, .device = 3};
    cr_assert_eq(gp_torch_start(&read, spans, count, &like), 0);
    for (uint64_t address = 0, end; address < ADDRESSES; address = end) {
        const struct gp_torch_span *span = first_at(spans, count, address);
        for (end = address + 1; end < ADDRESSES && first_at(spans, count, end) == span;)
            end++;
        if (!span || !span->there)
            continue;
        cr_assert_lt(at, recording.baseline_count, "round %u: nothing at %llu", round, (unsigned long long)address);
        const struct gp_rec_event *event = &recording.baseline[at++];
        cr_assert(event->address == address && event->bytes == end - address,
                  "round %u: %llu + %llu instead of %llu + %llu", round, (unsigned long long)event->address,
                  (unsigned long long)event->bytes, (unsigned long long)address, (unsigned long long)(end - address));
        cr_assert_eq(event->type, span->growable ? GP_EVENT_SEGMENT_MAP : GP_EVENT_SEGMENT_ALLOC);
        cr_assert(event->time_ns == 77 && event->device == 3 && event->kind == GP_KIND_LINEAR);
    }
    cr_assert_eq(at, recording.baseline_count, "round %u: too many", round);
    free(recording.baseline);
}

Test(torch_start, every_address_has_what_was_there_before_its_first_change)
{
    uint64_t seed = 20;
    for (unsigned round = 0; round < 4000; round++) {
        struct gp_torch_span spans[SPANS];
        bool ends[ADDRESSES] = {false};
        unsigned count = (unsigned)(random_next(&seed) % SPANS), longest = 1 + round % 40;
        for (unsigned i = 0; i < count; i++) {
            uint64_t start = random_next(&seed) % (ADDRESSES - 1), end = start + 1 + random_next(&seed) % longest;
            bool last = random_next(&seed) % 4 == 0 && !ends[start];
            ends[start] |= last;
            spans[i] = (struct gp_torch_span){.start = start,
                                              .end = end < ADDRESSES ? end : ADDRESSES,
                                              .order = last ? GP_TORCH_AT_END : (i * 7) % SPANS * 3,
                                              .there = last || random_next(&seed) % 3,
                                              .growable = random_next(&seed) % 2};
        }
        compare(spans, count, round);
    }
}
