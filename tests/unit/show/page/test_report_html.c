/* SPDX-License-Identifier: MIT
 * test_report_html.c: the page of a document: no text of the document becomes markup, no text is
 * lost, and a failure leaves no partial page. */
#include <show/page/html.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <lib/paths.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PLAIN  "<script type=\"application/json\" id=\"gpuprof-data\">"
#define MARK   "<!--@DATA@-->"
#define PACKED "<script type=\"application/gzip+base64\" id=\"gpuprof-data\">"

static char folder[] = "/tmp/gpuprof-test-report-XXXXXX", path[256], why[256];

static void begin(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/report.html", folder);
}

static void end(void)
{
    unlink(path);
    cr_assert_eq(rmdir(folder), 0, "a file was left beside the page: %s", strerror(errno));
}

static char *slurp(const char *file, size_t *size)
{
    FILE *in = fopen(file, "re");
    cr_assert(in, "%s: %s", file, strerror(errno));
    fseek(in, 0, SEEK_END);
    *size = (size_t)ftell(in);
    rewind(in);
    char *text = calloc(1, *size + 1);
    cr_assert_eq(fread(text, 1, *size, in), *size);
    fclose(in);
    return text;
}

static json_t *document_of(const char *name)
{
    json_t *document = json_pack("{s:s,s:s,s:I,s:f,s:n}", "schema", "gpuprof.report/1", "name", name, "bytes",
                                 (json_int_t)INT64_MAX, "part", 0.1, "none");
    cr_assert(document);
    return document;
}

/* The text between this opening tag and the end of its element. */
static char *island(const char *page, const char *tag)
{
    const char *at = strstr(page, tag);
    cr_assert(at, "no %s", tag);
    at += strlen(tag);
    return strndup(at, (size_t)(strstr(at, "</script>") - at));
}

static unsigned char *unbase64(const char *text, size_t *size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *out = malloc(strlen(text));
    uint32_t bits = 0;
    *size = 0;
    for (size_t i = 0; text[i] && text[i] != '='; i++) {
        const char *digit = strchr(digits, text[i]);
        cr_assert(digit, "not base64 at %zu", i);
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4)
            out[(*size)++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return out;
}

static json_t *unpack(const char *text)
{
    size_t packed = 0;
    unsigned char *gzip = unbase64(text, &packed);
    char *json = malloc(16 << 20);
    z_stream stream = {.next_in = gzip, .avail_in = (uInt)packed, .next_out = (Bytef *)json, .avail_out = 16 << 20};
    cr_assert_eq(inflateInit2(&stream, 15 + 16), Z_OK);
    cr_assert_eq(inflate(&stream, Z_FINISH), Z_STREAM_END);
    json_t *document = json_loadb(json, stream.total_out, JSON_ALLOW_NUL, NULL);
    inflateEnd(&stream);
    free(gzip);
    free(json);
    return document;
}

TestSuite(report_html, .init = begin, .fini = end);

Test(report_html, names_are_not_markup)
{
    json_t *document = document_of(
        "</script><img src=x onerror=alert(1)>&amp;<!-- \xe2\x80\xa8\xe2\x80\xa9 \\u003c \" \x01 \xf0\x9f\x98\x80");
    cr_assert_eq(gp_html_report(path, document, why, sizeof(why)), 0, "%s", why);
    size_t size;
    char *page = slurp(path, &size), *text = island(page, PLAIN);
    cr_expect_null(strpbrk(text, "<>&"), "%s", text);
    for (const char *at = text; *at; at++)
        cr_expect(*at >= ' ' && *at <= '~', "byte %d", *at);
    json_t *read = json_loads(text, 0, NULL);
    cr_assert(read);
    cr_expect(json_equal(read, document));
    json_decref(read);
    json_decref(document);
    free(text);
    free(page);
}

Test(report_html, a_large_document_is_packed_and_whole)
{
    /* Lengths from the limit on, with every remainder by three. */
    for (size_t more = 0; more < 4; more++) {
        size_t length = ((size_t)1 << 20) + more;
        char *name = malloc(length + 1);
        for (size_t i = 0; i < length; i++)
            name[i] = (char)('!' + (i * i + more) % 90);
        name[length] = '\0';
        json_t *document = document_of(name);
        cr_assert_eq(gp_html_report(path, document, why, sizeof(why)), 0, "%s", why);
        size_t size;
        char *page = slurp(path, &size), *text = island(page, PACKED);
        json_t *read = unpack(text);
        cr_expect(read && json_equal(read, document), "%zu", more);
        cr_expect_null(strstr(page, PLAIN));
        json_decref(read);
        json_decref(document);
        free(text);
        free(page);
        free(name);
    }
}

Test(report_html, a_document_of_exactly_the_limit_stays_plain)
{
    json_t *document = document_of("");
    char *json = json_dumps(document, JSON_COMPACT | JSON_ENSURE_ASCII);
    for (int over = 0; over < 2; over++) {
        size_t length = ((size_t)1 << 20) - strlen(json) + (size_t)over;
        char *name = malloc(length + 1);
        memset(name, 'n', length);
        name[length] = '\0';
        json_object_set_new(document, "name", json_string(name));
        cr_assert_eq(gp_html_report(path, document, why, sizeof(why)), 0, "%s", why);
        size_t size;
        char *page = slurp(path, &size);
        cr_expect_not_null(strstr(page, over ? PACKED : PLAIN), "%d over", over);
        free(page);
        free(name);
    }
    free(json);
    json_decref(document);
}

Test(report_html, the_page_around_the_data_is_the_shell)
{
    json_t *document = document_of("a");
    cr_assert_eq(gp_html_report(path, document, why, sizeof(why)), 0, "%s", why);
    size_t size, bytes;
    char *page = slurp(path, &size), *shell = slurp(path_source("tools/show/page/web/dist/report.html"), &bytes);
    const char *mark = strstr(shell, MARK);
    cr_assert(mark);
    cr_expect_null(strstr(mark + 1, MARK));
    size_t head = (size_t)(mark - shell), tail = bytes - head - strlen(MARK);
    cr_expect_eq(memcmp(page, shell, head), 0);
    cr_expect_eq(memcmp(page + size - tail, shell + bytes - tail, tail), 0);
    cr_expect_leq(bytes, 256 * 1024);
    cr_expect_not_null(strstr(page, "default-src 'none'"));
    free(shell);
    free(page);
    json_decref(document);
}

Test(report_html, has_the_usual_file_mode)
{
    json_t *document = document_of("a");
    struct stat made;
    umask(027);
    cr_assert_eq(gp_html_report(path, document, why, sizeof(why)), 0, "%s", why);
    cr_assert_eq(stat(path, &made), 0);
    cr_expect_eq(made.st_mode & 0777, 0640, "%o", made.st_mode);
    json_decref(document);
}

Test(report_html, a_failure_leaves_the_old_page)
{
    json_t *document = document_of("old"), *other = json_pack("{s:s}", "schema", "gpuprof.report/2");
    cr_assert_eq(gp_html_report(path, document, why, sizeof(why)), 0, "%s", why);
    cr_expect_eq(gp_html_report(path, other, why, sizeof(why)), -EINVAL);
    cr_expect_not_null(strstr(why, "schema"), "%s", why);
    cr_expect_eq(gp_html_report(path, NULL, why, sizeof(why)), -EINVAL);
    size_t size;
    char *page = slurp(path, &size);
    cr_expect_not_null(strstr(page, "\"old\""));
    free(page);
    cr_expect_eq(gp_html_report("/dev/full", document, why, sizeof(why)), -ENOSPC, "%s", why);
    cr_expect_not_null(strstr(why, "/dev/full"), "%s", why);
    cr_expect_eq(access("/dev/full", F_OK), 0);
    cr_expect_eq(gp_html_report("/nowhere/report.html", document, why, sizeof(why)), -ENOENT);
    cr_expect_eq(gp_html_report("/dev/null", document, why, sizeof(why)), 0, "%s", why);
    struct stat null;
    cr_expect(!stat("/dev/null", &null) && S_ISCHR(null.st_mode), "a device was replaced");
    json_decref(document);
    json_decref(other);
}
