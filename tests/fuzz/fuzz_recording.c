/* SPDX-License-Identifier: MIT
 *
 * fuzz_recording.c: feeds bytes to the reader of recordings.  Nothing may crash, hang, leak or read out of bounds, and
 * an accepted recording keeps every promise of recording.h.  An input is one of
 *
 *      a recording       read as it is, and again with all checksums corrected, since they reject other changes
 *      any other file    that is read as a recording: a snapshot or trace of PyTorch, a log of RMM, a heap
 *                        profile; also compressed
 *      'B' blocks        from which a recording is built: type, rows (2 bytes), length (2 bytes), payload; so that changes
 *                        reach the payloads, which are packed in real recordings
 *
 * With -DGP_FUZZ_REPLAY it runs the files named as arguments, each with every third byte changed in four ways and cut
 * there (of pickles every byte, of recordings every 29th: their blocks are larger).  Prints "N inputs".
 */
#include <fuzz/limits.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <record/pack.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t accepted, refused;

static void promise(bool kept)
{
    if (!kept)
        abort();
}

/* ---- what recording.h says --------------------------------------------------------------------------------------- */

static void check_string(const struct gp_recording *r, uint64_t offset)
{
    promise(offset < r->string_bytes && memchr(r->strings + offset, '\0', r->string_bytes - offset));
}

static void check_event(const struct gp_recording *r, const struct gp_rec_event *event)
{
    promise(event->type > GP_EVENT_NONE && event->type < GP_EVENT_TYPES && event->kind < GP_KINDS);
    promise(event->device == GP_REC_NO_DEVICE || event->device < r->device_count);
    promise(event->site < r->site_count && event->thread < r->thread_count);
    promise(event->stream == GP_REC_OTHERS || event->stream < r->stream_count);
    if (event->type == GP_EVENT_MARK)
        check_string(r, event->bytes);
}

static void check_peer(const struct gp_recording *r, size_t i)
{
    uint32_t peer = r->peer[i];
    if (peer != GP_REC_NONE && peer < r->event_count)
        promise(peer != i && r->events[peer].address == r->events[i].address);
    else
        promise(peer == GP_REC_NONE || peer - r->event_count < r->baseline_count);
}

static void check_tables(const struct gp_recording *r)
{
    promise(r->strings && r->string_bytes && r->strings[0] == '\0' && r->sites && r->site_count);
    for (uint32_t i = 0; i < r->site_count; i++)
        promise(r->sites[i].first_frame <= r->frame_count &&
                r->sites[i].frame_count <= r->frame_count - r->sites[i].first_frame);
    for (uint32_t i = 0; i < r->frame_count; i++) {
        check_string(r, r->frames[i].function);
        check_string(r, r->frames[i].file);
        promise(r->frames[i].module == GP_REC_NONE || r->frames[i].module < r->module_count);
    }
    for (uint32_t i = 0; i < r->module_count; i++) {
        check_string(r, r->modules[i].path);
        check_string(r, r->modules[i].build_id);
        promise(r->modules[i].start < r->modules[i].end);
    }
    for (uint32_t i = 0; i < r->thread_count; i++)
        check_string(r, r->threads[i].name);
    for (uint32_t i = 0; i < r->device_count; i++)
        promise(memchr(r->devices[i].name, '\0', sizeof(r->devices[i].name)) &&
                memchr(r->devices[i].uuid, '\0', sizeof(r->devices[i].uuid)));
    for (size_t i = 0; i < r->sample_count; i++)
        promise(r->samples[i].device < r->device_count);
    promise(!r->has_oom || r->oom.holder_count <= GP_OOM_HOLDERS);
    for (uint32_t i = 0; r->has_oom && i < r->oom.holder_count; i++)
        promise(r->oom.holders[i].kind < GP_KINDS && r->oom.holders[i].site < r->site_count);
}

static void check(const struct gp_recording *r)
{
    check_tables(r);
    promise(r->comm && r->command_line && r->host && r->allocator);
    promise(strlen(r->comm) + strlen(r->command_line) + strlen(r->host) + strlen(r->allocator) < SIZE_MAX);
    for (size_t i = 0; i < r->event_count; i++) {
        promise(i == 0 || r->events[i - 1].time_ns <= r->events[i].time_ns);
        check_event(r, &r->events[i]);
        check_peer(r, i);
    }
    for (size_t i = 0; i < r->baseline_count; i++)
        check_event(r, &r->baseline[i]);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static void parse(const uint8_t *data, size_t size)
{
    struct gp_recording *recording = NULL;
    char why[256];
    limits_begin();
    int rc = gp_recording_parse(&recording, data, size, why, sizeof(why));
    limits_end(data, size);
    if (rc) {
        promise(rc < 0 && rc != -ENOMEM && why[0] && memchr(why, '\0', sizeof(why)));
        refused++;
        return;
    }
    accepted++;
    check(recording);
    gp_recording_free(recording);
}

static void repair(uint8_t *data, size_t size)
{
    const size_t head = offsetof(struct gp_format_head, crc), at_crc = offsetof(struct gp_format_block, crc);
    if (size < sizeof(struct gp_format_head))
        return;
    uint32_t crc = gp_file_crc32c(0, data, head);
    memcpy(data + head, &crc, sizeof(crc));
    for (size_t at = sizeof(struct gp_format_head); size - at >= sizeof(struct gp_format_block);) {
        struct gp_format_block block;
        memcpy(&block, data + at, sizeof(block));
        if (memcmp(block.mark, GP_FORMAT_MARK, sizeof(block.mark)) != 0 ||
            block.stored_bytes > size - at - sizeof(block)) {
            at++;
            continue;
        }
        crc = gp_file_crc32c(gp_file_crc32c(0, data + at, at_crc), data + at + sizeof(block), block.stored_bytes);
        memcpy(data + at + at_crc, &crc, sizeof(crc));
        at += sizeof(block) + block.stored_bytes;
    }
}

static void blocks(const uint8_t *data, size_t size)
{
    struct gp_format_head head = {
        .order = GP_FORMAT_ORDER, .major = GP_FORMAT_MAJOR, .minor = GP_FORMAT_MINOR, .head_bytes = sizeof(head)};
    uint8_t *out = malloc(sizeof(head) + size * (sizeof(struct gp_format_block) / 5 + 1));
    size_t put = sizeof(head);
    uint32_t sequence = 0;
    memcpy(head.magic, GP_RECORD_MAGIC, sizeof(head.magic));
    memcpy(out, &head, sizeof(head));
    for (size_t at = 0; size - at >= 5;) {
        uint16_t rows, length;
        memcpy(&rows, data + at + 1, sizeof(rows));
        memcpy(&length, data + at + 3, sizeof(length));
        size_t left = size - at - 5, bytes = length < left ? length : left;
        struct gp_format_block block = {.type = data[at],
                                        .count = rows,
                                        .stored_bytes = (uint32_t)bytes,
                                        .bytes = (uint32_t)bytes,
                                        .sequence = sequence++};
        memcpy(block.mark, GP_FORMAT_MARK, sizeof(block.mark));
        memcpy(out + put, &block, sizeof(block));
        memcpy(out + put + sizeof(block), data + at + 5, bytes);
        put += sizeof(block) + bytes;
        at += 5 + bytes;
    }
    repair(out, put);
    parse(out, put);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == 'B') {
        blocks(data + 1, size - 1);
        return 0;
    }
    parse(data, size);
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    repair(copy, size);
    parse(copy, size);
    free(copy);
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

/* Blocks of recordings are larger than those that 'B' makes; a pickle has no checksums. */
static size_t step(const uint8_t *data, size_t size)
{
    return size && data[0] == 0x80 ? 1 : size && data[0] == 'B' ? 3 : 29;
}

int main(int argc, char **argv)
{
    return replay_all(argc, argv, step, &accepted, &refused);
}
#endif
