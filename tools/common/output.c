/* SPDX-License-Identifier: MIT
 * output.c: the files of -o and --junit; see output.h.  Called by report.c, export.c, snapshot.c, trace.c,
 * generate.c, gateend.c, cdi.c and their like. */
#include <common/messages.h>
#include <common/output.h>

#include <errno.h>
#include <fcntl.h>
#include <record/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* What is read of a file at once.  Each format names its writer in its first bytes, except those
 * that are searched up to their end. */
#define GP_OUTPUT_BLOCK 65536u

/* ---- whether a file is one of ours ------------------------------------------------------------------------------- */

struct gp_output_format {
    const char *start; /* the first bytes ... */
    size_t start_bytes;
    const char *mark; /* ... and a text behind them; NULL: the start says enough */
    bool whole;       /* it can be anywhere in the file, not only in the first block */
};

#define GP_OUTPUT_START(_text) (_text), sizeof(_text) - 1

static const struct gp_output_format output_formats[] = {
    {GP_OUTPUT_START("<!DOCTYPE html>"), "content=\"gpuprof\"", false},
    {GP_OUTPUT_START("{\n \"schema\": \"gpuprof."), NULL, false},
    {GP_OUTPUT_START("{\"schema\":\"gpuprof."), NULL, false},
    {GP_OUTPUT_START("{\n \"cdiVersion\": "), "\"gpuprof.dev/inject\"", false},
    {GP_OUTPUT_START("{\"displayTimeUnit\":\"ns\",\"traceEvents\":["), "\"producer\":\"gpuprof\"", true},
    {GP_OUTPUT_START("event,time_ns,unix_ns,type,kind,device,"), NULL, false},
    {GP_OUTPUT_START("gpuprof.trace/1\n"), NULL, false},
    {GP_OUTPUT_START("\xff\xff\xff\xff"), "gpuprof.", false}, /* Arrow's stream: its schema has the table's name */
    {GP_OUTPUT_START("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "), "<testsuite name=\"gpuprof\"", false},
    {GP_OUTPUT_START("\x80\x02}(X\x08\0\0\0segments"), "gpuprof_allocator", true},
    {GP_OUTPUT_START("\x80\x04"), "gpuprof_allocator", true}}; /* of the Python package */

static size_t output_read(int fd, void *into, size_t bytes, off_t offset)
{
    ssize_t got = pread(fd, into, bytes, offset);
    return got > 0 ? (size_t)got : 0;
}

static bool output_has(int fd, const char *mark, bool whole)
{
    char block[GP_OUTPUT_BLOCK];
    size_t length = strlen(mark), got;
    off_t at = 0;
    do {
        got = output_read(fd, block, sizeof(block), at);
        if (memmem(block, got, mark, length))
            return true;
        at += (off_t)(got - length); /* the mark may lie across two blocks */
    } while (whole && got == sizeof(block));
    return false;
}

/* A pprof file: its first comment names gpuprof. */
static bool output_profile(const char *bytes, size_t count)
{
    static const char mark[] = "gpuprof: GPU memory of ";
    char text[1024];
    z_stream zip = {.next_in = (unsigned char *)bytes,
                    .avail_in = (uInt)count,
                    .next_out = (unsigned char *)text,
                    .avail_out = sizeof(text)};
    if (inflateInit2(&zip, 15 + 16) != Z_OK)
        return false;
    inflate(&zip, Z_SYNC_FLUSH);
    size_t got = sizeof(text) - zip.avail_out;
    inflateEnd(&zip);
    return memmem(text, got, mark, sizeof(mark) - 1) != NULL;
}

/* Collapsed stacks: the first line names a device, then frames, a kind in brackets, and a number. */
static bool output_stacks(const char *text, size_t count)
{
    const char *end = memchr(text, '\n', count), *number = end;
    if (!end || (strncmp(text, "device ", 7) != 0 && strncmp(text, "host;", 5) != 0))
        return false;
    while (number > text && number[-1] >= '0' && number[-1] <= '9')
        number--;
    return number < end && number - text > 2 && number[-1] == ' ' && number[-2] == ']';
}

/* What `trace` prints without --json: a time, then the process or the thread in brackets. */
static bool output_traced(const char *text, size_t count)
{
    char start[64];
    int seconds, at = 0;
    snprintf(start, sizeof(start), "%.*s", (int)count, text);
    return (sscanf(start, "[pid %d] %n", &seconds, &at) == 1 && at) ||
           (sscanf(start, "%d.%*6[0-9] [%n", &seconds, &at) == 1 && at);
}

static bool output_ours(int fd)
{
    char block[4096];
    size_t got = output_read(fd, block, sizeof(block), 0);
    for (size_t i = 0; i < GP_COUNT(output_formats); i++) {
        const struct gp_output_format *format = &output_formats[i];
        if (got >= format->start_bytes && memcmp(block, format->start, format->start_bytes) == 0)
            return !format->mark || output_has(fd, format->mark, format->whole);
    }
    if (got > 72 && memcmp(block, "SQLite format 3", 16) == 0)
        return memcmp(block + 68, "gprf", 4) == 0; /* the application's id */
    return got == 0 || output_stacks(block, got) || output_traced(block, got) || output_profile(block, got);
}

int gp_output_check(const char *command, const char *option, const char *path, bool force)
{
    char magic[sizeof(GP_RECORD_MAGIC) - 1];
    struct stat status;
    if (!path || strcmp(path, "-") == 0 || stat(path, &status) != 0)
        return GP_EXIT_OK;
    if (S_ISDIR(status.st_mode)) {
        gp_error(command, "%s%s: is a folder: name a file in it", option, path);
        return GP_EXIT_FAILED;
    }
    if (!S_ISREG(status.st_mode))
        return GP_EXIT_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool recording = fd >= 0 && output_read(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
                     memcmp(magic, GP_RECORD_MAGIC, sizeof(magic)) == 0;
    bool ours = fd >= 0 && output_ours(fd);
    if (fd >= 0)
        close(fd);
    if (recording)
        gp_error(command, "%s%s: this file is a recording and would be lost: choose another name", option, path);
    else if (!ours && !force)
        gp_error(command,
                 "%s%s: exists and was not written by gpuprof: choose another name, or replace it with --force", option,
                 path);
    return recording || (!ours && !force) ? GP_EXIT_FAILED : GP_EXIT_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

int gp_output_open(struct gp_output *out, const char *path)
{
    struct stat status;
    *out = (struct gp_output){.path = path, .fd = -1};
    if (!path || strcmp(path, "-") == 0) {
        out->fd = dup(STDOUT_FILENO);
    } else if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        out->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else if (snprintf(out->part, sizeof(out->part), "%s.%d.part", path, (int)getpid()) >= (int)sizeof(out->part)) {
        out->part[0] = '\0';
        return -ENAMETOOLONG;
    } else {
        /* O_EXCL: in a folder that others may write, never use a file or link that another user put
         * there. */
        out->fd = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (out->fd >= 0)
        return 0;
    out->part[0] = '\0'; /* it is not ours to remove */
    return -errno;
}

int gp_output_close(struct gp_output *out, int error)
{
    if (out->fd >= 0 && close(out->fd) != 0 && !error)
        error = -errno;
    if (!error && out->part[0] && rename(out->part, out->path) != 0)
        error = -errno;
    if (error && out->part[0])
        unlink(out->part);
    return error;
}

int gp_output_write(const char *path, int write(FILE *out, const void *what), const void *what)
{
    struct gp_output file;
    int rc = gp_output_open(&file, path);
    if (rc)
        return rc;
    int copy = dup(file.fd);
    FILE *out = copy >= 0 ? fdopen(copy, "w") : NULL;
    rc = out ? write(out, what) : -errno;
    if (out && fclose(out) != 0 && !rc)
        rc = -errno;
    else if (!out && copy >= 0)
        close(copy);
    return gp_output_close(&file, rc);
}
