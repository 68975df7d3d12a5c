/* SPDX-License-Identifier: MIT
 * html.c: puts a document into the page of `gpuprof report`; see html.h.  The page without data is
 * part of the program.  The document has names from untrusted programs.  In the page it is ASCII
 * without any character of markup: JSON, or for a large document gzip in base64, which the browser
 * unpacks. */
#include <show/page/html.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- the page without data --------------------------------------------------------------------------------------- */
/* Includes web/dist/report.html in the program.  The path is relative to the root of the repository,
 * where make runs.  The compiler does not report this dependency, so html.mk declares it. */

__asm__(".pushsection .rodata\n"
        "page_shell:\n"
        ".incbin \"tools/show/page/web/dist/report.html\"\n"
        "page_shell_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const char page_shell[], page_shell_end[];

#define SHELL_MARK "<!--@DATA@-->" /* once in the page; the data replace it */

/* ---- the page with data ------------------------------------------------------------------------------------------ */

/* Plain JSON is readable in an editor, but above this size the page would be slow to load and large
 * to send. */
#define GP_PLAIN_BYTES ((size_t)1 << 20)
#define GP_GZIP        (15 + 16) /* zlib's largest window, and 16 for a gzip header */

static bool put(FILE *out, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, out) == size;
}

static bool put_text(FILE *out, const char *text)
{
    return put(out, text, strlen(text));
}

/* JSON has <, > and & only in strings, where an escape has the same meaning. */
static bool put_escaped(FILE *out, const char *json, size_t size)
{
    while (size) {
        size_t plain = 0;
        while (plain < size && json[plain] != '<' && json[plain] != '>' && json[plain] != '&')
            plain++;
        if (!put(out, json, plain))
            return false;
        if (plain == size)
            break;
        if (fprintf(out, "\\u%04x", (unsigned char)json[plain]) < 0)
            return false;
        json += plain + 1;
        size -= plain + 1;
    }
    return true;
}

static bool put_base64(FILE *out, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three =
            (uint32_t)bytes[i] << 16 | (i + 1 < size ? bytes[i + 1] : 0u) << 8 | (i + 2 < size ? bytes[i + 2] : 0u);
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63], i + 1 < size ? digits[three >> 6 & 63] : '=',
                        i + 2 < size ? digits[three & 63] : '='};
        if (!put(out, four, sizeof(four)))
            return false;
    }
    return true;
}

static uint8_t *compressed(const char *text, size_t size, size_t *packed)
{
    z_stream stream = {0};
    if (deflateInit2(&stream, 6, Z_DEFLATED, GP_GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return NULL;
    /* zlib counts its input in 32 bits; the limits of a document keep it far below. */
    size_t room = deflateBound(&stream, size);
    uint8_t *out = size <= UINT32_MAX && room <= UINT32_MAX ? malloc(room) : NULL;
    int done = Z_MEM_ERROR;
    if (out) {
        stream.next_in = (Bytef *)(uintptr_t)text;
        stream.avail_in = (uInt)size;
        stream.next_out = out;
        stream.avail_out = (uInt)room;
        done = deflate(&stream, Z_FINISH);
        *packed = stream.total_out;
    }
    deflateEnd(&stream);
    if (done == Z_STREAM_END)
        return out;
    free(out);
    return NULL;
}

static int put_data(FILE *out, const char *json, size_t size)
{
    if (size <= GP_PLAIN_BYTES) {
        bool written = put_text(out, "<script type=\"application/json\" id=\"gpuprof-data\">") &&
                       put_escaped(out, json, size) && put_text(out, "</script>");
        return written ? 0 : -EIO;
    }
    size_t packed = 0;
    uint8_t *gzip = compressed(json, size, &packed);
    if (!gzip)
        return -ENOMEM;
    bool written = put_text(out, "<script type=\"application/gzip+base64\" id=\"gpuprof-data\">") &&
                   put_base64(out, gzip, packed) && put_text(out, "</script>");
    free(gzip);
    return written ? 0 : -EIO;
}

static int put_page(FILE *out, const char *json)
{
    size_t size = (size_t)(page_shell_end - page_shell);
    const char *mark = memmem(page_shell, size, SHELL_MARK, strlen(SHELL_MARK));
    if (!mark)
        return -EINVAL;
    const char *rest = mark + strlen(SHELL_MARK);
    errno = 0;
    if (!put(out, page_shell, (size_t)(mark - page_shell)))
        return -(errno ? errno : EIO);
    int err = put_data(out, json, strlen(json));
    if (!err && (!put(out, rest, (size_t)(page_shell_end - rest)) || fflush(out)))
        err = -EIO;
    return err == -EIO && errno ? -errno : err;
}

/* Opens a temporary file in the folder of the page, so that rename() stays on one file system.
 * *temporary is its name, which the caller frees. */
static FILE *open_temporary(const char *path, char **temporary)
{
    if (asprintf(temporary, "%s.XXXXXX", path) < 0) {
        *temporary = NULL;
        errno = ENOMEM;
        return NULL;
    }
    int fd = mkostemp(*temporary, O_CLOEXEC);
    if (fd < 0)
        return NULL;
    /* mkostemp makes a private file; a report gets the usual mode. */
    mode_t mask = umask(0);
    umask(mask);
    FILE *out = fchmod(fd, 0666 & ~mask) ? NULL : fdopen(fd, "w");
    if (!out) {
        int err = errno;
        close(fd);
        unlink(*temporary);
        errno = err;
    }
    return out;
}

static int save(const char *path, const char *json)
{
    struct stat there;
    /* A pipe or a device (/dev/null) is written to, not replaced. */
    if (!stat(path, &there) && !S_ISREG(there.st_mode)) {
        FILE *out = fopen(path, "we");
        int err = out ? put_page(out, json) : -errno;
        if (out && fclose(out) && !err)
            err = -errno;
        return err;
    }
    char *temporary = NULL;
    FILE *out = open_temporary(path, &temporary);
    if (!out) {
        int err = -errno;
        free(temporary);
        return err;
    }
    int err = put_page(out, json);
    if (fclose(out) && !err)
        err = -errno;
    if (!err && rename(temporary, path))
        err = -errno;
    if (err)
        unlink(temporary);
    free(temporary);
    return err;
}

int gp_html_report(const char *out_path, const json_t *document, char *why, size_t why_bytes)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    if (!schema || (strcmp(schema, "gpuprof.report/1") != 0 && strcmp(schema, "gpuprof.ranks/1") != 0)) {
        snprintf(why, why_bytes, "the document is not of schema gpuprof.report/1 or gpuprof.ranks/1");
        return -EINVAL;
    }
    char *json = json_dumps(document, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!json) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    int err = strcmp(out_path, "-") ? save(out_path, json) : put_page(stdout, json);
    free(json);
    if (err)
        snprintf(why, why_bytes, "%s: cannot be written: %s", strcmp(out_path, "-") == 0 ? "stdout" : out_path,
                 strerror(-err));
    return err;
}
