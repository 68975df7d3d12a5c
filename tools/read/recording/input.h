/* SPDX-License-Identifier: MIT
 *
 * input.h: what a file is, by its contents, and its bytes: the one place that recognises a format.
 * The reader of recordings (read.c) and that of traces (replay) get theirs from here; a format that
 * a reader takes is a row of the table in input.c.  Threads: any, one caller per file.
 */
#ifndef GP_RECORDING_INPUT_H
#define GP_RECORDING_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gp_input_format {
    GP_INPUT_UNKNOWN,
    GP_INPUT_RECORDING,
    GP_INPUT_PICKLE,
    GP_INPUT_JSON,
    GP_INPUT_RMM,
    GP_INPUT_TRACE,
    GP_INPUT_GZIP,
    GP_INPUT_HTML,
    GP_INPUT_FOREIGN, /* known, and not read: the refusal says what to do */
};

/* The first line of gpuprof's text form of a trace, which only a replay reads. */
#define GP_INPUT_TRACE_NAME "gpuprof.trace/1"
/* What is read, for messages and help. */
#define GP_INPUT_READ                                                                                                  \
    "recordings of gpuprof, memory snapshots of PyTorch (pickle, JSON, memory_viz's page), RMM logs (CSV), each also " \
    "as .gz"

/* The format by the first bytes; 64 KiB are enough. */
enum gp_input_format gp_input_format(const uint8_t *head, size_t bytes);

struct gp_input {
    enum gp_input_format format; /* of the contents: never GP_INPUT_GZIP or GP_INPUT_HTML */
    const uint8_t *data;
    size_t bytes;
    uint8_t *own; /* data, if it was unpacked */
};

/* Recognises the bytes, and unpacks them if they are compressed or inside a page.  0; -EPROTO with
 * why for what is not known or damaged; -ENOMEM.  gp_input_free in every case. */
int gp_input_unwrap(struct gp_input *file, const uint8_t *data, size_t bytes, char *why, size_t why_bytes);
void gp_input_free(struct gp_input *file);

/* Opens a file, a pipe, or standard input ("-").  The descriptor, with the size of a file or -1 in *bytes; -errno. */
int gp_input_open(const char *path, int64_t *bytes);
/* Reads all of it; *data is to be freed.  Nothing behind the first 64 KiB is read if their format is
 * not known: then -EPROTO with why.  -EFBIG, -ENOMEM, -errno. */
typedef void gp_input_progress_fn(void *arg, unsigned parts);
int gp_input_slurp(int fd, int64_t size, uint8_t **data, size_t *bytes, char *why, size_t why_bytes,
                   gp_input_progress_fn *progress, void *arg);

#endif
