/* SPDX-License-Identifier: MIT
 * open.c: recognizes the format of a file by its content and reads it; see trace.h.  Called by the
 * commands and the fuzz target. */
#include "trace.h"

#include <base/compiler.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 4 GiB of text is 100 M operations, beyond GP_REPLAY_OPS; the largest known pickles have 1 GB. */
#define GP_TRACE_FILE_LIMIT (4ull << 30)

static const struct gp_replay_reader *const readers[] = {&gp_replay_text, &gp_replay_rmm, &gp_replay_torch,
                                                         &gp_replay_recording};

int gp_replay_read(struct gp_replay_trace *trace, const uint8_t *data, size_t bytes, struct gp_replay_problem *problem)
{
    struct gp_replay_builder builder = {.trace = trace};
    const struct gp_replay_reader *reader = NULL;
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    for (size_t i = 0; i < GP_COUNT(readers) && !reader; i++) {
        if (readers[i]->knows(data, bytes))
            reader = readers[i];
    }
    if (!reader) {
        bool gzip = bytes > 2 && data[0] == 0x1f && data[1] == 0x8b;
        gp_replay_say(problem, gzip ? "compressed: unpack it with gunzip first"
                                    : "not a trace that this version reads: it reads gpuprof.trace/1 text, recordings "
                                      "of 'gpuprof record', RMM logs (CSV) and PyTorch snapshots (pickle)");
        return -EINVAL;
    }
    trace->format = reader->name;
    int rc = reader->read(&builder, data, bytes);
    gp_replay_builder_free(&builder);
    if (rc) {
        *problem = builder.problem;
        gp_replay_trace_free(trace);
    }
    return rc;
}

static int read_all(int fd, uint8_t **data, size_t *bytes)
{
    size_t room = 1 << 16;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        room = (size_t)st.st_size + 1;
    *bytes = 0;
    *data = NULL;
    for (;;) {
        if (room > GP_TRACE_FILE_LIMIT)
            return -EFBIG;
        uint8_t *bigger = realloc(*data, room);
        if (!bigger)
            return -ENOMEM;
        *data = bigger;
        while (*bytes < room) {
            ssize_t n = read(fd, *data + *bytes, room - *bytes);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return -errno;
            if (n == 0)
                return 0;
            *bytes += (size_t)n;
        }
        room *= 2;
    }
}

int gp_replay_load(struct gp_replay_trace *trace, const char *path, struct gp_replay_problem *problem)
{
    bool in = strcmp(path, "-") == 0;
    int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *data = NULL;
    size_t bytes = 0;
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    int rc = fd < 0 ? -errno : read_all(fd, &data, &bytes);
    if (rc)
        gp_replay_say(problem, "%s", strerror(-rc));
    else
        rc = gp_replay_read(trace, data, bytes, problem);
    free(data);
    if (fd >= 0 && !in)
        close(fd);
    return rc;
}
