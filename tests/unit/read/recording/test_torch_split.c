/* SPDX-License-Identifier: MIT
 *
 * test_torch_split.c: the granted sizes of the blocks in a trace (tools/read/recording/torchsplit.c), against an allocator that
 * cuts its segments as PyTorch's does, with the sizes of its segments chosen so that they lie apart or side by side, and
 * hold up to some thousand blocks.
 */
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

#include <unit/analyze/train_fixture.h>

#define ROUND  512u
#define BLOCKS 20000u
#define EVENTS 60000u

struct piece { /* of a segment, free or not; in order of address */
    uint64_t address, bytes, asked;
    uint32_t segment;
    bool used, before; /* the trace */
};

struct model {
    struct piece pieces[BLOCKS];
    uint32_t count, segments;
    uint64_t next; /* address of the next segment */
    struct gp_rec_event events[EVENTS], baseline[64];
    uint64_t granted[EVENTS]; /* of each event; 0: not a block's */
    struct gp_recording recording;
    struct gp_torch_span spans[EVENTS];
    size_t span_count;
};

static struct model model;
static uint64_t seed;

static struct gp_rec_event *model_event(uint8_t type, uint64_t address, uint64_t bytes)
{
    struct gp_recording *r = &model.recording;
    cr_assert_lt(r->event_count, EVENTS);
    struct gp_rec_event *event = &r->events[r->event_count++];
    *event =
        (struct gp_rec_event){.type = type, .kind = GP_KIND_LINEAR, .device = 1, .address = address, .bytes = bytes};
    return event;
}

static void insert(uint32_t at, struct piece piece)
{
    cr_assert_lt(model.count, BLOCKS);
    memmove(&model.pieces[at + 1], &model.pieces[at], (model.count - at) * sizeof(piece));
    model.pieces[at] = piece;
    model.count++;
}

static void segment_add(uint64_t bytes, bool in_trace)
{
    uint64_t address = model.next;
    model.next += bytes + (random_next(&seed) % 2 ? 0 : (1 + random_next(&seed) % 5) << 20);
    insert(model.count, (struct piece){address, bytes, 0, model.segments++, false, false});
    struct gp_torch_span span = {.start = address, .end = address + bytes, .order = GP_TORCH_AT_END, .there = true};
    if (in_trace) {
        model_event(GP_EVENT_SEGMENT_ALLOC, address, bytes);
        span.order = (uint32_t)model.recording.event_count - 1, span.there = false;
    } else {
        model.baseline[model.recording.baseline_count++] = (struct gp_rec_event){
            .type = GP_EVENT_SEGMENT_ALLOC, .kind = GP_KIND_LINEAR, .device = 1, .address = address, .bytes = bytes};
    }
    model.spans[model.span_count++] = span;
}

/* Cuts the piece: of a small block a piece of 512 bytes is enough to be cut off, of a large one more than 1 MiB. */
static void cut(uint32_t at, uint64_t asked, uint64_t rounded)
{
    struct piece *piece = &model.pieces[at];
    uint64_t rest = piece->bytes - rounded;
    piece->used = true;
    piece->asked = asked;
    if (rounded <= 1u << 20 ? rest >= ROUND : rest > 1u << 20) {
        piece->bytes = rounded;
        insert(at + 1, (struct piece){piece->address + rounded, rest, 0, piece->segment, false, false});
    }
}

static void alloc(uint64_t asked, uint64_t segment_bytes, bool in_trace)
{
    uint64_t rounded = (asked + ROUND - 1) / ROUND * ROUND;
    uint32_t start = model.count ? (uint32_t)(random_next(&seed) % model.count) : 0, at = model.count;
    for (uint32_t i = 0; i < model.count && at == model.count; i++) {
        uint32_t k = (start + i) % model.count;
        at = !model.pieces[k].used && model.pieces[k].bytes >= rounded ? k : at;
    }
    if (at == model.count)
        segment_add(segment_bytes > rounded ? segment_bytes : rounded, in_trace);
    cut(at, asked, rounded);
    const struct piece *piece = &model.pieces[at];
    if (in_trace) {
        struct gp_rec_event *event = model_event(GP_EVENT_ALLOC, piece->address, rounded);
        event->unused = (uint32_t)(rounded - asked);
        model.granted[model.recording.event_count - 1] = piece->bytes;
    } else { /* of these the reader knows the size */
        model.pieces[at].before = true;
        model.baseline[model.recording.baseline_count++] = (struct gp_rec_event){.type = GP_EVENT_ALLOC,
                                                                                 .kind = GP_KIND_LINEAR,
                                                                                 .device = 1,
                                                                                 .address = piece->address,
                                                                                 .bytes = piece->bytes};
    }
}

static void join(uint32_t at)
{
    if (at + 1 >= model.count || model.pieces[at].used || model.pieces[at + 1].used ||
        model.pieces[at].segment != model.pieces[at + 1].segment)
        return;
    model.pieces[at].bytes += model.pieces[at + 1].bytes;
    memmove(&model.pieces[at + 1], &model.pieces[at + 2], (model.count - at - 2) * sizeof(model.pieces[0]));
    model.count--;
}

static void release(uint32_t at)
{
    struct piece *piece = &model.pieces[at];
    uint64_t rounded = (piece->asked + ROUND - 1) / ROUND * ROUND;
    struct gp_rec_event *event = model_event(GP_EVENT_FREE, piece->address, rounded);
    event->unused = (uint32_t)(rounded - piece->asked);
    model.granted[model.recording.event_count - 1] = piece->before ? rounded : piece->bytes; /* it keeps what it has */
    piece->used = piece->before = false;
    join(at);
    if (at)
        join(at - 1);
}

/* Gives a segment back that holds nothing. */
static void trim(void)
{
    for (uint32_t i = 0; i < model.count; i++) {
        const struct piece piece = model.pieces[i];
        if (piece.used || (i && model.pieces[i - 1].segment == piece.segment) ||
            (i + 1 < model.count && model.pieces[i + 1].segment == piece.segment))
            continue;
        model_event(GP_EVENT_SEGMENT_FREE, piece.address, piece.bytes);
        model.spans[model.span_count++] = (struct gp_torch_span){.start = piece.address,
                                                                 .end = piece.address + piece.bytes,
                                                                 .order = (uint32_t)model.recording.event_count - 1,
                                                                 .there = true};
        memmove(&model.pieces[i], &model.pieces[i + 1], (model.count - i - 1) * sizeof(piece));
        model.count--;
        return;
    }
}

static void begin(void)
{
    memset(&model, 0, sizeof(model));
    model.next = 0x7f0000000000;
    model.recording.events = model.events;
    model.recording.baseline = model.baseline;
}

static void compare(const char *what, unsigned round)
{
    struct gp_read read = {.recording = &model.recording};
    const struct gp_recording *r = &model.recording;
    cr_assert_eq(gp_torch_split(&read, model.spans, model.span_count, 1), 0);
    for (size_t i = 0; i < r->event_count; i++) {
        const struct gp_rec_event *event = &r->events[i];
        if (!model.granted[i])
            continue;
        cr_assert_eq(event->bytes, model.granted[i], "%s %u, event %zu of type %u at %llx: %llu instead of %llu", what,
                     round, i, event->type, (unsigned long long)event->address, (unsigned long long)event->bytes,
                     (unsigned long long)model.granted[i]);
    }
}

static uint64_t random_size(unsigned round)
{
    uint64_t kind = random_next(&seed) % 10;
    if (kind < 5)
        return 1 + random_next(&seed) % (round % 2 ? 4096 : 60000);
    if (kind < 7)
        return (1u << 20) - 1024 + random_next(&seed) % 2048;
    return 1 + random_next(&seed) % (6u << 20);
}

Test(torch_split, sizes_are_those_of_the_allocator)
{
    seed = 12;
    for (unsigned round = 0; round < 300; round++) {
        const uint64_t segment = (round % 3 ? 2ull : 20ull) << 20;
        begin();
        for (unsigned i = 0; i < round % 7; i++)
            alloc(random_size(round), segment, false);
        for (unsigned step = 0; step < 300; step++) {
            uint64_t what = random_next(&seed) % 20;
            uint32_t at = model.count ? (uint32_t)(random_next(&seed) % model.count) : 0;
            if (what < 11)
                alloc(random_size(round), segment, true);
            else if (what < 19 && model.count && model.pieces[at].used && model.pieces[at].asked)
                release(at);
            else if (what == 19)
                trim();
        }
        compare("round", round);
    }
}

/* One after the other, then freed but for a few, then one that needs most of what is between them. */
Test(torch_split, free_pieces_of_thousands_of_blocks)
{
    static const unsigned counts[] = {62, 63, 64, 65, 127, 128, 4094, 4095, 4096, 4097, 4160, 8191, 8192, 8300, 13000};
    seed = 3;
    for (unsigned round = 0; round < sizeof(counts) / sizeof(counts[0]); round++)
        for (unsigned kept = 0; kept < 3; kept++) {
            const unsigned count = counts[round];
            begin();
            segment_add((uint64_t)count * ROUND, true);
            for (unsigned i = 0; i < count; i++) {
                cut(i, ROUND, ROUND); /* in order of address */
                model_event(GP_EVENT_ALLOC, model.pieces[i].address, ROUND);
                model.granted[model.recording.event_count - 1] = ROUND;
            }
            /* Free all from the end but the last `kept`; the pieces join. */
            for (unsigned i = count - kept; i-- > 0;) {
                release(i);
                if (i % 64 == 1 || i < 3) {
                    uint64_t bytes = model.pieces[i].bytes;
                    alloc(bytes > 2u << 20 ? bytes - (1u << 20) : bytes > 300 ? bytes - 200 : bytes, 64u << 20, true);
                    uint32_t at = 0;
                    while (model.pieces[at].address != model.recording.events[model.recording.event_count - 1].address)
                        at++;
                    release(at);
                }
            }
            compare("blocks", count);
        }
}

/* What is left of a piece decides, to the byte. */
Test(torch_split, what_is_left_decides)
{
    static const struct {
        uint64_t asked, piece, granted;
    } rows[] = {
        {1, 512, 512},
        {1, 1024, 512},
        {512, 1023, 1023},
        {513, 1535, 1535},
        {513, 1536, 1024},
        {1u << 20, (1u << 20) + 511, (1u << 20) + 511},
        {1u << 20, (1u << 20) + 512, 1u << 20},
        {(1u << 20) + 1, 2u << 20, 2u << 20},
        {(1u << 20) + 512, (2u << 20) + 512, (2u << 20) + 512},
        {(1u << 20) + 512, (2u << 20) + 513, (1u << 20) + 512},
        {600, 1000, 1024}, /* a piece that is too small: not PyTorch's */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int own = 0; own < 2; own++) {
            begin();
            model.spans[model.span_count++] = (struct gp_torch_span){.start = 4096, .end = 4096 + rows[i].piece};
            model_event(GP_EVENT_SEGMENT_ALLOC, 4096, rows[i].piece);
            uint64_t rounded = (rows[i].asked + 511) / 512 * 512 + (uint64_t)own; /* a size that is known stays */
            model_event(GP_EVENT_ALLOC, 4096, rounded)->unused = (uint32_t)(rounded - rows[i].asked);
            struct gp_rec_event *other = model_event(GP_EVENT_ALLOC, 4096, rounded);
            other->device = 2; /* which is not looked at */
            compare("row", (unsigned)i);
            cr_expect_eq(model.events[1].bytes, own ? rounded : rows[i].granted, "%zu", i);
            cr_expect_eq(gp_rec_requested(&model.events[1]), rows[i].asked, "%zu", i);
            cr_expect_eq(model.events[2].bytes, rounded);
        }
}
