/* SPDX-License-Identifier: MIT
 *
 * fuzz_session.c: feeds damaged sessions to everything that reads one: layout checks, rows, ring, and the writers that
 * print the result.  Nothing may crash, hang, or read out of bounds.
 *
 *   clang -fsanitize=fuzzer,address,undefined -Iinclude -Icore -Isrc -Itools -Itests ... : libFuzzer
 *   any compiler with -DGP_FUZZ_REPLAY: runs the files and folders named as arguments, then flips every byte of the
 *   header and of one row of each table itself.  Prints "N inputs".
 *
 * Input: byte 0 odd: the rest is the file.  Even: the rest is a list of patches to a good session, each
 * {offset (3 bytes, little-endian), length, bytes}.
 */
#include <fuzz/limits.h>
#include <gpuprof/wire.h>
#include <lib/session.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <record/ringread.h>
#include <show/text/write.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gp_test_session good;
static void *spare; /* a copy of the good session, to restore what an input changed */
static FILE *nowhere;
static uint64_t damaged, refused, accepted;

static void fuzz_begin(void)
{
    if (gp_test_session_make(&good, 8, false) != 0)
        abort();
    gp_test_session_device(&good, 0, "Simulated GPU 0", 1 << 20);
    gp_test_session_device(&good, 5, "NVIDIA Test", 1 << 30);
    gp_test_session_host(&good, 4096);
    gp_test_session_scope(&good, 2, "epoch", 9);
    good.failures[3] = (struct gp_wire_failure){.api = "cuMemAlloc_v2", .error = 2, .count = 1};
    for (uint64_t i = 0; i < 130; i++)
        gp_test_session_event(&good, 1 + (int)(i % 13), 1 + (int)(i % 13), (int)(i % 66), i * 4096, i);
    gp_test_session_publish(&good);
    spare = malloc(good.bytes);
    nowhere = fopen("/dev/null", "w");
    if (!spare || !nowhere)
        abort();
    memcpy(spare, good.map, good.bytes);
}

static void fuzz_show(struct gp_process *process)
{
    struct gp_system system = {.process_count = 1, .processes = process};
    json_t *top = gp_stat_json(&system, -1);
    if (!top)
        abort(); /* an invalid UTF-8 string would cause this */
    json_dumpf(top, nowhere, JSON_COMPACT);
    json_decref(top);
    gp_stat_table(nowhere, &system, -1);
    for (int i = 0; i < process->device_count; i++)
        gp_summary_print(nowhere, &process->devices[i]);
}

static void fuzz_ring(const struct gp_peer *session)
{
    struct gp_ringread *reader;
    struct gp_trace_place place = {.pid = 1, .start_ns = session->start_ns};
    const struct gp_wire_event *events;
    if (gp_ringread_new_fd(&reader, session->fd, session->ring_offset, session->chunk_count, GP_RINGREAD_OLDEST) != 0)
        return;
    ssize_t n = gp_ringread_poll(reader, UINT64_MAX, &events);
    for (ssize_t i = 0; i < n; i++) {
        json_t *object = gp_event_json(&place, &events[i]);
        if (!object)
            abort();
        json_decref(object);
        gp_event_line(nowhere, &place, &events[i]);
    }
    gp_ringread_free(reader);
}

static void fuzz_session(void)
{
    struct gp_peer session;
    struct gp_process process;
    char problem[GP_PROBLEM_BYTES] = "";
    memset(&process, 0, sizeof(process));
    int rc = gp_peer_load(&session, dup(good.fd), problem);
    if (rc) {
        if (rc == -EPROTO && !problem[0])
            abort(); /* damage must be reported with a reason */
        refused++;
        return;
    }
    if (gp_peer_read(&session, &process) != 0)
        abort();
    if (process.state == GP_PROCESS_DAMAGED && (process.device_count || !process.problem[0]))
        abort();
    damaged += process.state == GP_PROCESS_DAMAGED;
    accepted += process.state == GP_PROCESS_STALE;
    fuzz_show(&process);
    fuzz_ring(&session);
    gp_peer_drop(&process);
    gp_peer_close(&session);
}

/* The whole file is the input; the mapping must not be touched meanwhile. */
static void fuzz_file(const uint8_t *data, size_t size)
{
    if (size > good.bytes)
        size = good.bytes;
    if (ftruncate(good.fd, (off_t)size) != 0 || pwrite(good.fd, data, size, 0) != (ssize_t)size)
        abort();
    fuzz_session();
    if (ftruncate(good.fd, (off_t)good.bytes) != 0)
        abort();
    memcpy(good.map, spare, good.bytes);
}

static void fuzz_patches(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    for (int pass = 0; pass < 2; pass++) { /* damage it, then restore it */
        for (at = data; end - at >= 4;) {
            size_t offset = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16, length = at[3];
            at += 4;
            length = length > (size_t)(end - at) ? (size_t)(end - at) : length;
            size_t room = offset < good.bytes ? good.bytes - offset : 0;
            size_t n = length < room ? length : room;
            memcpy((char *)good.map + offset, pass ? (char *)spare + offset : (const char *)at, n);
            at += length;
        }
        if (pass == 0)
            fuzz_session();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!spare)
        fuzz_begin();
    if (size == 0)
        return 0;
    limits_begin();
    if (data[0] & 1)
        fuzz_file(data + 1, size - 1);
    else
        fuzz_patches(data + 1, size - 1);
    limits_end((const uint8_t *)good.map, good.bytes);
    return 0;
}

#ifdef GP_FUZZ_REPLAY
#include "fuzz/files.h"

/* Every byte of [from, from + bytes) is set to values that differ in one bit, to zero, and to
 * all ones. */
static void flip(size_t from, size_t bytes)
{
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    for (size_t at = from; at < from + bytes; at++) {
        for (size_t i = 0; i < sizeof(flips); i++) {
            uint8_t was = ((uint8_t *)spare)[at];
            uint8_t patch[] = {0, (uint8_t)at, (uint8_t)(at >> 8), (uint8_t)(at >> 16), 1, (uint8_t)(was ^ flips[i])};
            /* An odd publish_seq costs 5 ms of waiting, so it is tried only once. */
            if (at == offsetof(struct gp_wire_header, publish_seq) && i)
                continue;
            LLVMFuzzerTestOneInput(patch, sizeof(patch));
            inputs++;
        }
    }
}

int main(int argc, char **argv)
{
    uint8_t nothing[] = {0};
    LLVMFuzzerTestOneInput(nothing, sizeof(nothing));
    if (accepted != 1) {
        printf("the good session was not accepted\n");
        return 1;
    }
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    flip(0, sizeof(struct gp_wire_header));
    flip(good.header->devices_offset, sizeof(struct gp_wire_device));
    flip(good.header->scopes_offset + 2 * sizeof(struct gp_wire_scope), sizeof(struct gp_wire_scope));
    flip(good.header->failures_offset + 3 * sizeof(struct gp_wire_failure), sizeof(struct gp_wire_failure));
    flip(good.header->ring_offset, 256);
    printf("%llu inputs: %llu refused, %llu damaged, %llu accepted\n", (unsigned long long)inputs,
           (unsigned long long)refused, (unsigned long long)damaged, (unsigned long long)accepted);
    return refused && damaged ? 0 : 1;
}
#endif
