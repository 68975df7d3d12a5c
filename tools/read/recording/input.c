/* SPDX-License-Identifier: MIT
 * input.c: opens, reads, recognises and unpacks files; see recording.h.
 *
 * Bounds: of what is not recognised by its first 64 KiB, nothing more is read.  A file has at most
 * GP_INPUT_MOST bytes, a pipe GP_INPUT_PIPE.  Packed bytes become at most GP_INPUT_UNPACKED, and what is
 * packed twice is refused, so work and memory follow from the size of the file. */
#include <read/recording/recording.h>

#include <record/format.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define GP_INPUT_HEAD  (64u << 10)
#define GP_INPUT_PIECE (4u << 20)
/* The largest known snapshots have 1 GB. */
#define GP_INPUT_MOST (8ull << 30)
#define GP_INPUT_PIPE (2ull << 30)
/* JSON repeats every stack, which deflate shrinks to a hundredth. */
#define GP_INPUT_UNPACKED(_bytes) ((16ull << 20) + 128ull * (_bytes))

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static bool input_begins(const uint8_t *head, size_t bytes, const char *with)
{
    size_t length = strlen(with);
    return bytes >= length && memcmp(head, with, length) == 0;
}

static bool input_is_pickle(const uint8_t *head, size_t bytes)
{
    return bytes >= 3 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5; /* PROTO and a version */
}

static bool input_is_trace(const uint8_t *head, size_t bytes)
{
    size_t length = sizeof(GP_INPUT_TRACE_NAME) - 1;
    return input_begins(head, bytes, GP_INPUT_TRACE_NAME) && (bytes == length || strchr("\n\r ", head[length]));
}

static const uint8_t *input_find(const uint8_t *in, size_t bytes, const char *what)
{
    return memmem(in, bytes, what, strlen(what));
}

static bool input_is_html(const uint8_t *head, size_t bytes)
{
    return (input_begins(head, bytes, "<!DOCTYPE") || input_begins(head, bytes, "<!doctype") ||
            input_begins(head, bytes, "<html")) &&
           input_find(head, bytes, "\"base64\"");
}

static bool input_is_json(const uint8_t *head, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && strchr(" \t\r\n", head[at]) && head[at])
        at++;
    return at < bytes && (head[at] == '{' || head[at] == '[');
}

static bool input_is_recording(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, GP_RECORD_MAGIC);
}

static bool input_is_gzip(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "\x1f\x8b");
}

static bool input_is_rmm(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "Thread,Time,Action,Pointer,Size,Stream");
}

/* A profile of pprof: a message of protobuf that begins with a type of samples (two numbers), or with the empty first
 * text of its table. */
static bool input_is_pprof(const uint8_t *head, size_t bytes)
{
    return (bytes >= 6 && head[0] == 0x0a && head[1] <= 8 && head[2] == 0x08) ||
           (bytes >= 3 && !memcmp(head, "2\0002", 3));
}

static const struct {
    enum gp_input_format format;
    bool (*knows)(const uint8_t *head, size_t bytes);
} formats[] = {
    {GP_INPUT_RECORDING, input_is_recording}, {GP_INPUT_PICKLE, input_is_pickle}, {GP_INPUT_RMM, input_is_rmm},
    {GP_INPUT_TRACE, input_is_trace},         {GP_INPUT_GZIP, input_is_gzip},     {GP_INPUT_HTML, input_is_html},
    {GP_INPUT_JSON, input_is_json},           {GP_INPUT_PPROF, input_is_pprof},
};

#define GP_INPUT_OURS "an export of gpuprof, from which nothing can be read: name the recording that it was made of"

/* Our collapsed stacks begin with "device 0;" or "host;". */
static bool input_is_stacks(const uint8_t *head, size_t bytes)
{
    size_t at = sizeof("device ") - 1;
    if (input_begins(head, bytes, "host;"))
        return true;
    while (input_begins(head, bytes, "device ") && at < bytes && head[at] >= '0' && head[at] <= '9')
        at++;
    return at > sizeof("device ") - 1 && at < bytes && head[at] == ';';
}

static bool input_is_ours(const uint8_t *head, size_t bytes)
{
    static const char csv[] = "event,time_ns,", chrome[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    /* SQLite's application id, which is at this place of its header. */
    if (input_begins(head, bytes, "SQLite format 3") && bytes >= 72)
        return memcmp(head + 68, "gprf", 4) == 0;
    /* A stream of Arrow, whose schema has the table's name. */
    if (input_begins(head, bytes, "\xff\xff\xff\xff"))
        return input_find(head, bytes, "gpuprof.");
    return input_is_stacks(head, bytes) || input_begins(head, bytes, csv) || input_begins(head, bytes, chrome);
}

/* JSON and lines of JSON that name our schema first. */
static bool input_is_answer(const uint8_t *head, size_t bytes)
{
    const uint8_t *at = input_find(head, bytes < 64 ? bytes : 64, "\"schema\"");
    return input_begins(head, bytes, "{") && at && (size_t)(at - head) < 16 &&
           input_find(at, bytes - (size_t)(at - head) < 32 ? bytes - (size_t)(at - head) : 32, "\"gpuprof.");
}

/* Lines of RMM's logger: [process][time][level] text. */
static bool input_is_rmm_debug(const uint8_t *head, size_t bytes)
{
    size_t at = 1;
    if (!bytes || head[0] != '[')
        return false;
    while (at < bytes && (head[at] == ' ' || (head[at] >= '0' && head[at] <= '9')))
        at++;
    return at > 1 && at + 1 < bytes && head[at] == ']' && head[at + 1] == '[';
}

static bool input_is_nsys(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "SQLite format 3");
}

/* What export_memory_timeline writes into a name that ends in .html. */
static bool input_is_picture(const uint8_t *head, size_t bytes)
{
    return (input_begins(head, bytes, "<html") || input_begins(head, bytes, "<!DOCTYPE html")) &&
           input_find(head, bytes < 512 ? bytes : 512, "<title>GPU Memory Timeline HTML</title>");
}

static bool input_is_zstd(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "\x28\xb5\x2f\xfd");
}

static bool input_is_xz(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes,
                        "\xfd"
                        "7zXZ");
}

static bool input_is_bzip2(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "BZh");
}

static bool input_is_parquet(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "PAR1");
}

static bool input_is_zip(const uint8_t *head, size_t bytes)
{
    return input_begins(head, bytes, "PK\x03\x04");
}

/* Files that people have and that are not read, and what to do about them; the first that knows a file names it. */
static const struct {
    bool (*knows)(const uint8_t *head, size_t bytes);
    const char *what;
} foreign[] = {
    {input_is_ours, GP_INPUT_OURS},
    {input_is_answer, "an answer of gpuprof in JSON, which is not read again: name the recording that it is about"},
    {input_is_nsys, "a database of SQLite, as Nsight Systems makes them: it is not read. Record the program with "
                    "'gpuprof run --record'"},
    {input_is_rmm_debug, "the debug log of RMM, which is not read: its CSV log is (rmm.enable_logging, or "
                         "logging_resource_adaptor in C++)"},
    {input_is_picture,
     "a page of PyTorch's export_memory_timeline, which has a picture alone: give it a name that ends in "
     ".json or .raw.json.gz"},
    {input_is_zstd, "compressed with zstd: unpack it with 'zstd -d' first"},
    {input_is_xz, "compressed with xz: unpack it with 'xz -d' first"},
    {input_is_bzip2, "compressed with bzip2: unpack it with 'bunzip2' first"},
    {input_is_parquet, "a table in Parquet: it is not read. Name the recording that it was made of"},
    {input_is_zip, "a zip archive: unpack it with 'unzip' first"},
};

enum gp_input_format gp_input_format(const uint8_t *head, size_t bytes)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (foreign[i].knows(head, bytes))
            return GP_INPUT_FOREIGN;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (formats[i].knows(head, bytes))
            return formats[i].format;
    return GP_INPUT_UNKNOWN;
}

static int input_refuse(const uint8_t *head, size_t bytes, char *why, size_t why_bytes)
{
    const char *what = "not a recording, snapshot or log that is known";
    if (input_begins(head, bytes, "<!") || input_begins(head, bytes, "<html"))
        what = "a page without a snapshot";
    for (size_t i = sizeof(foreign) / sizeof(foreign[0]); i--;)
        if (foreign[i].knows(head, bytes))
            what = foreign[i].what;
    if (bytes)
        snprintf(why, why_bytes, "%s. gpuprof reads %s", what, GP_INPUT_READ);
    else
        snprintf(why, why_bytes, "the file is empty");
    return -EPROTO;
}

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

static int input_room(uint8_t **data, size_t *room, uint64_t most)
{
    size_t more = *room ? 2 * *room : GP_INPUT_HEAD;
    if (*room >= most)
        return -EFBIG;
    more = more < most ? more : (size_t)most;
    uint8_t *bigger = realloc(*data, more);
    if (!bigger)
        return -ENOMEM;
    *data = bigger;
    *room = more;
    return 0;
}

/* Several members one after the other are one file, as gunzip sees them. */
static int input_inflate(struct gp_input *file, z_stream *z, size_t bytes)
{
    size_t room = 0;
    for (int rc = Z_OK;;) {
        if (file->bytes == room) {
            int error = input_room(&file->own, &room, GP_INPUT_UNPACKED(bytes));
            if (error)
                return error;
        }
        size_t part = room - file->bytes < UINT32_MAX ? room - file->bytes : UINT32_MAX;
        size_t left = bytes - (size_t)(z->next_in - file->data);
        z->avail_in = left < UINT32_MAX ? (uInt)left : UINT32_MAX;
        z->next_out = file->own + file->bytes;
        z->avail_out = (uInt)part;
        rc = inflate(z, Z_NO_FLUSH);
        file->bytes += part - z->avail_out;
        left = bytes - (size_t)(z->next_in - file->data);
        if (rc == Z_STREAM_END && (left < 2 || !input_is_gzip(z->next_in, left)))
            return 0;
        if (rc == Z_STREAM_END)
            rc = inflateReset(z);
        if (rc != Z_OK && (rc != Z_BUF_ERROR || z->avail_out || !left))
            return rc == Z_MEM_ERROR ? -ENOMEM : -EPROTO;
    }
}

static int input_gunzip(struct gp_input *file, char *why, size_t why_bytes)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)file->data};
    size_t bytes = file->bytes;
    file->bytes = 0;
    int rc = inflateInit2(&z, 16 + MAX_WBITS) == Z_OK ? input_inflate(file, &z, bytes) : -ENOMEM;
    inflateEnd(&z);
    if (rc == -EFBIG)
        snprintf(why, why_bytes, "compressed more than a hundredfold: unpack it with gunzip first");
    else if (rc == -EPROTO)
        snprintf(why, why_bytes, "compressed with gzip, but damaged or cut");
    return rc == -EFBIG ? -EPROTO : rc;
}

static int input_digit(uint8_t c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = memchr(digits, c, sizeof(digits) - 1);
    return at ? (int)(at - digits) : -1;
}

/* The first value of "base64" in a page that torch.cuda._memory_viz or memory_viz wrote. */
static int input_page(struct gp_input *file, char *why, size_t why_bytes)
{
    const uint8_t *end = file->data + file->bytes, *at = input_find(file->data, file->bytes, "\"base64\"") + 8;
    uint32_t bits = 0, have = 0;
    file->own = malloc(file->bytes);
    if (!file->own)
        return -ENOMEM;
    file->bytes = 0;
    while (at < end && (*at == ' ' || *at == ':'))
        at++;
    if (at == end || *at++ != '"')
        at = end;
    for (int digit; at < end && (digit = input_digit(*at)) >= 0; at++) {
        bits = bits << 6 | (uint32_t)digit;
        if ((have += 6) >= 8)
            file->own[file->bytes++] = (uint8_t)(bits >> (have -= 8));
    }
    if (file->bytes)
        return 0;
    snprintf(why, why_bytes, "a page without a snapshot");
    return -EPROTO;
}

int gp_input_unwrap(struct gp_input *file, const uint8_t *data, size_t bytes, char *why, size_t why_bytes)
{
    *file = (struct gp_input){.data = data, .bytes = bytes};
    for (unsigned unpacked = 0;; unpacked++) {
        const uint8_t *inner = file->own;
        int rc = 0;
        size_t head = file->bytes < GP_INPUT_HEAD ? file->bytes : GP_INPUT_HEAD;
        file->format = gp_input_format(file->data, head);
        if (file->format == GP_INPUT_UNKNOWN || file->format == GP_INPUT_FOREIGN)
            return input_refuse(file->data, head, why, why_bytes);
        if (file->format != GP_INPUT_GZIP && file->format != GP_INPUT_HTML)
            return 0;
        if (unpacked == 2 || (unpacked && file->format == GP_INPUT_GZIP)) {
            snprintf(why, why_bytes, "compressed more than once: unpack it with gunzip first");
            return -EPROTO;
        }
        file->own = NULL;
        rc = file->format == GP_INPUT_GZIP ? input_gunzip(file, why, why_bytes) : input_page(file, why, why_bytes);
        free((void *)(uintptr_t)inner);
        file->data = file->own;
        if (rc)
            return rc;
    }
}

void gp_input_free(struct gp_input *file)
{
    free(file->own);
    *file = (struct gp_input){0};
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

int gp_input_open(const char *path, int64_t *bytes)
{
    struct stat st;
    /* A FIFO is opened again, to wait for its writer.  What else may block when it is opened is never read. */
    int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                    : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int error = fd < 0 || fstat(fd, &st) != 0 ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : 0;
    if (!error && S_ISFIFO(st.st_mode) && strcmp(path, "-") != 0) {
        int again = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        error = again < 0 ? -errno : 0;
        close(fd);
        fd = again;
    }
    *bytes = !error && S_ISREG(st.st_mode) ? st.st_size : -1;
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

static const char *input_kind(mode_t mode)
{
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    return S_ISDIR(mode) ? "a folder" : "a device";
}

int gp_input_open_regular(const char *path, int64_t *bytes, char *why, size_t why_bytes)
{
    struct stat st;
    /* To open a device may change it, so the file is looked at first.  What takes its place then is not waited for. */
    int fd = -1, error = stat(path, &st) != 0 ? -errno : 0;
    if (!error && S_ISREG(st.st_mode)) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        error = fd < 0 || fstat(fd, &st) != 0 ? -errno : 0;
    }
    if (!error && !S_ISREG(st.st_mode)) {
        snprintf(why, why_bytes, "%s, not a regular file", input_kind(st.st_mode));
        error = -EPROTO;
    }
    *bytes = !error ? st.st_size : -1;
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

int gp_input_slurp(int fd, int64_t size, uint8_t **data, size_t *bytes, char *why, size_t why_bytes,
                   gp_input_progress_fn *progress, void *arg)
{
    const uint64_t most = size < 0 ? GP_INPUT_PIPE : GP_INPUT_MOST;
    size_t room = 0;
    bool known = false;
    *data = NULL;
    *bytes = 0;
    if (size > (int64_t)most)
        return -EFBIG;
    for (;;) {
        if (*bytes == room) {
            if (known && size >= (int64_t)room && (uint64_t)size < most)
                room = (size_t)size / 2 + 1; /* all of a file at once, and the byte that shows its end */
            int error = input_room(data, &room, most);
            if (error)
                return error;
        }
        ssize_t n = read(fd, *data + *bytes, room - *bytes < GP_INPUT_PIECE ? room - *bytes : GP_INPUT_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        *bytes += (size_t)n;
        if (!known && (n == 0 || *bytes >= GP_INPUT_HEAD)) {
            enum gp_input_format format = gp_input_format(*data, *bytes);
            known = format != GP_INPUT_UNKNOWN && format != GP_INPUT_FOREIGN;
            if (!known)
                return input_refuse(*data, *bytes, why, why_bytes);
        }
        if (n == 0)
            return 0;
        if (progress && size > 0)
            progress(arg, (unsigned)(*bytes < (size_t)size ? *bytes * 300 / (size_t)size : 300));
    }
}
