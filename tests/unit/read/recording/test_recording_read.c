/* SPDX-License-Identifier: MIT
 *
 * test_recording_read.c: how the blocks of a recording are found (tools/read/recording/read.c): the head, the limits of a
 * block, the way past damage, what is said while it is read, and files that cannot be read or that change meanwhile.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <lib/lackmemory.h>
#include <lib/recfile.h>
#include <lib/standin.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A sound block of one thread, whose name tells them apart. */
static void thread_block(struct recfile *file, uint32_t tid, size_t name_bytes)
{
    static char name[60000];
    struct gp_pack *pack = recfile_rows(file);
    memset(name, 'n', name_bytes);
    gp_pack_number(pack, tid);
    gp_pack_string(pack, name, name_bytes);
    recfile_block_rows(file, GP_BLOCK_THREADS, 1);
}

static struct recfile *begin(void)
{
    struct recfile *file = malloc(sizeof(*file));
    const struct gp_format_head head = recfile_head_of(321, 777);
    recfile_begin(file);
    recfile_head(file, &head);
    return file;
}

static void end(struct recfile *file)
{
    free(file->at);
    free(file);
}

static char why[256];

static int parse(const struct recfile *file, struct gp_recording **out)
{
    uint8_t *exact = malloc(file->size + !file->size); /* so that a sanitizer detects a read beyond it */
    memcpy(exact, file->at, file->size);
    memset(why, 'x', sizeof(why));
    *out = NULL;
    int rc = gp_recording_parse(out, exact, file->size, why, sizeof(why));
    free(exact);
    return rc;
}

/* Of a file that ends here: the threads that were found as digits, and the damaged blocks behind a slash. */
static const char *found(struct recfile *file)
{
    static char text[64];
    struct gp_recording *r;
    int rc = parse(file, &r), used = 0;
    text[0] = '\0';
    if (rc) {
        snprintf(text, sizeof(text), "error %d", rc);
    } else {
        for (uint32_t i = 0; i < r->thread_count && i < 20; i++)
            used += snprintf(text + used, sizeof(text) - (size_t)used, "%u", r->threads[i].tid);
        snprintf(text + used, sizeof(text) - (size_t)used, "/%llu", (unsigned long long)r->damaged_blocks);
        gp_recording_free(r);
    }
    end(file);
    return text;
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static struct recfile *with_head(const struct gp_format_head *head, size_t padding)
{
    static const uint8_t zeros[5000];
    struct recfile *file = malloc(sizeof(*file));
    recfile_begin(file);
    recfile_head(file, head);
    recfile_raw(file, zeros, padding);
    thread_block(file, 1, 5);
    thread_block(file, 2, 5);
    return file;
}

Test(recording_read, the_head_may_grow)
{
    struct gp_format_head head = recfile_head_of(321, 777);
    for (uint32_t more = 0; more < 4200; more += more < 4000 && more > 3 ? 498 : 1) {
        head.head_bytes = sizeof(head) + more;
        bool good = head.head_bytes < 4096;
        cr_expect_str_eq(found(with_head(&head, good ? more : 0)), "12/0", "%u", head.head_bytes);
    }
    for (uint32_t less = 1; less <= sizeof(head); less++) {
        head.head_bytes = (uint32_t)sizeof(head) - less;
        cr_expect_str_eq(found(with_head(&head, 0)), "12/0", "%u", head.head_bytes);
    }
}

Test(recording_read, the_head_says_which_process)
{
    struct recfile *file = begin();
    struct gp_recording *r;
    thread_block(file, 1, 5);
    cr_assert_eq(parse(file, &r), 0);
    cr_expect(r->pid == 321 && r->begin_unix_ns == 777 && r->damaged_blocks == 0);
    cr_expect_str_eq(r->allocator, "off");
    cr_expect_str_eq(r->comm, "");
    cr_expect(r->stream_count == 1 && r->streams[0] == 0 && r->string_bytes > 1);
    gp_recording_free(r);
    file->at[20] ^= 1; /* the pid: the checksum is wrong then, and the head is not used */
    cr_assert_eq(parse(file, &r), 0);
    cr_expect(r->pid == 0 && r->begin_unix_ns == 0 && r->damaged_blocks == 1);
    gp_recording_free(r);
    end(file);
}

Test(recording_read, heads_of_others)
{
    struct gp_recording *r;
    struct gp_format_head head = recfile_head_of(1, 1);
    static const char newer[] =
        "written by a newer gpuprof (format %u.%u, this one reads 1): open it with the newer one";
    char text[128];
    for (int way = 0; way < 2; way++) {
        head = recfile_head_of(1, 1);
        head.minor = 7;
        head.major = (uint16_t)(head.major + (way == 0));
        head.order += way == 1;
        struct recfile *file = with_head(&head, 0);
        cr_expect_eq(parse(file, &r), -EPROTO);
        snprintf(text, sizeof(text), newer, head.major, 7);
        cr_expect_str_eq(why, text);
        end(file);
    }
    head = recfile_head_of(1, 1);
    head.magic[7] = '\r';
    struct recfile *file = with_head(&head, 0);
    cr_expect_eq(parse(file, &r), -EPROTO);
    cr_expect(strstr(why, "not a recording") == why, "%s", why);
    file->size = sizeof(head) - 1;
    cr_expect_eq(parse(file, &r), -EPROTO);
    cr_expect(strstr(why, "not a recording") == why, "%s", why);
    end(file);
    file = begin();
    cr_expect_eq(parse(file, &r), -EPROTO);
    cr_expect_str_eq(why, "it has no readable block: it was cut at its start, or damaged");
    end(file);
}

/* ---- the limits of a block --------------------------------------------------------------------------------------- */

static uint8_t *large; /* more than the largest block, all zero: nothing in a block of an unknown type */

static const char *block_between(struct gp_format_block block, size_t payload)
{
    struct recfile *file = begin();
    if (!large)
        large = calloc(1, GP_FORMAT_BLOCK_BYTES + 64);
    thread_block(file, 1, 5);
    size_t at = file->size;
    recfile_block_as(file, &block, large);
    file->size = at + sizeof(block) + payload;
    thread_block(file, 2, 5);
    return found(file);
}

Test(recording_read, blocks_as_large_as_allowed)
{
    const uint32_t most = GP_FORMAT_BLOCK_BYTES;
    struct gp_format_block block = {.type = 999, .count = 1, .stored_bytes = most, .bytes = most};
    cr_expect_str_eq(block_between(block, most), "12/0");
    block.stored_bytes = block.bytes = most + 1;
    cr_expect_str_eq(block_between(block, most + 1), "12/1");
    block.stored_bytes = 100, block.bytes = 101;
    cr_expect_str_eq(block_between(block, 100), "12/1");
    block.bytes = 99;
    cr_expect_str_eq(block_between(block, 100), "12/1");
    block.bytes = 100, block.coding = 2;
    cr_expect_str_eq(block_between(block, 100), "12/1");
    block.coding = GP_CODING_ZSTD; /* zeros are no frame */
    cr_expect_str_eq(block_between(block, 100), "12/1");
    block.coding = GP_CODING_PLAIN, block.stored_bytes = block.bytes = 0;
    cr_expect_str_eq(block_between(block, 0), "12/0");
}

/* The last block of a cut file is not damage, whatever is left of it. */
Test(recording_read, blocks_that_end_with_the_file)
{
    struct recfile *whole = begin();
    thread_block(whole, 1, 5);
    size_t one = whole->size;
    thread_block(whole, 2, 5);
    size_t two = whole->size;
    end(whole);
    for (size_t size = one; size <= two; size++) {
        struct recfile *file = begin();
        thread_block(file, 1, 5);
        thread_block(file, 2, 5);
        file->size = size;
        cr_expect_str_eq(found(file), size < two ? "1/0" : "12/0", "%zu of %zu", size, two);
    }
}

static const char *packed(const void *frame, size_t stored, size_t bytes)
{
    struct recfile *file = begin();
    const struct gp_format_block block = {.type = GP_BLOCK_THREADS,
                                          .count = 1,
                                          .coding = GP_CODING_ZSTD,
                                          .stored_bytes = (uint32_t)stored,
                                          .bytes = (uint32_t)bytes};
    thread_block(file, 1, 5);
    recfile_block_as(file, &block, frame);
    thread_block(file, 3, 5);
    return found(file);
}

Test(recording_read, packed_blocks_have_the_size_that_they_say)
{
    static const uint8_t row[] = {2, 3, 'a', 'b', 'c'};
    uint8_t frame[100];
    size_t stored = ZSTD_compress(frame, sizeof(frame), row, sizeof(row), 1);
    cr_expect_str_eq(packed(frame, stored, sizeof(row)), "123/0");
    cr_expect_str_eq(packed(frame, stored, sizeof(row) + 1), "13/1");
    cr_expect_str_eq(packed(frame, stored, sizeof(row) - 1), "13/1");
    cr_expect_str_eq(packed(frame, stored - 1, sizeof(row)), "13/1");
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void rubbish(struct recfile *file, size_t bytes)
{
    static uint8_t text[300000];
    memset(text, 'G', sizeof(text)); /* the first byte of a mark */
    recfile_raw(file, text, bytes);
}

/* The reader looks through 64 KiB at a time: marks at every place around the ends of these pieces. */
Test(recording_read, blocks_behind_damage_of_any_length)
{
    for (size_t bytes = 1; bytes<2 * 65536 + 40; bytes += bytes % 65536> 40 && bytes % 65536 < 65490 ? 65450 : 1) {
        struct recfile *file = begin();
        thread_block(file, 1, 5);
        rubbish(file, bytes);
        thread_block(file, 2, 5);
        cr_expect_str_eq(found(file), "12/1", "%zu", bytes);
        file = begin(); /* at the end it is not counted */
        thread_block(file, 1, 5);
        rubbish(file, bytes);
        cr_expect_str_eq(found(file), "1/0", "%zu", bytes);
    }
}

Test(recording_read, each_damaged_stretch_counts_once)
{
    struct recfile *file = begin();
    for (uint32_t i = 1; i <= 4; i++) {
        rubbish(file, 10);
        recfile_raw(file, GP_FORMAT_MARK, 4); /* a mark without a block */
        rubbish(file, 10);
        thread_block(file, i, 5);
    }
    cr_expect_str_eq(found(file), "1234/4");
    file = begin();
    thread_block(file, 1, 5);
    rubbish(file, 10);
    thread_block(file, 2, 5);
    rubbish(file, 10);
    cr_expect_str_eq(found(file), "12/1");
}

/* Heads one behind the other, each of a block of 4 MiB with a wrong checksum, in a file of this size: the reader checks
 * all of that, but not more than four times the file and 64 MiB. */
static const char *nested(unsigned heads, size_t size)
{
    struct recfile *file = begin();
    const struct gp_format_block wrong = {.mark = {'G', 'P', 'b', '\x1a'},
                                          .type = GP_BLOCK_THREADS,
                                          .stored_bytes = GP_FORMAT_BLOCK_BYTES,
                                          .bytes = GP_FORMAT_BLOCK_BYTES};
    thread_block(file, 1, 5);
    for (unsigned i = 0; i < heads; i++)
        recfile_raw(file, &wrong, sizeof(wrong));
    size_t last = sizeof(struct gp_format_block) + 7; /* of the block below */
    if (!large)
        large = calloc(1, GP_FORMAT_BLOCK_BYTES + 64);
    while (file->size + last < size) {
        size_t left = size - last - file->size;
        recfile_raw(file, large, left < GP_FORMAT_BLOCK_BYTES ? left : GP_FORMAT_BLOCK_BYTES);
    }
    thread_block(file, 2, 5);
    cr_assert_eq(file->size, size);
    return found(file);
}

Test(recording_read, it_gives_up_on_heads_within_each_other)
{
    const size_t size = 5u << 20;
    cr_expect_str_eq(nested(20, size), "12/1");
    cr_expect_str_eq(nested(21, size), "12/1"); /* 84 MiB of 84 */
    cr_expect_str_eq(nested(22, size), "1/1");
    cr_expect_str_eq(nested(21, size - 1), "1/1");
}

/* ---- from a file ------------------------------------------------------------------------------------------------- */

static int file_of(const struct recfile *file, char path[64])
{
    int fd = memfd_create("gpuprof-test", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, file->at, file->size), (ssize_t)file->size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static struct said {
    unsigned parts[64], count;
} said;

static void say(void *arg, unsigned parts)
{
    struct said *to = arg;
    cr_assert_lt(to->count, GP_COUNT(to->parts));
    to->parts[to->count++] = parts;
}

static void expect_said(const struct recfile *file, const size_t *ends, unsigned count)
{
    struct gp_recording *r;
    char path[64];
    unsigned last = 0, wanted = 0;
    int fd = file_of(file, path);
    said.count = 0;
    cr_assert_eq(gp_recording_open(&r, path, why, sizeof(why), say, &said), 0, "%s", why);
    for (unsigned i = 0; i < count; i++) {
        unsigned parts = (unsigned)(ends[i] * 1000 / file->size);
        if (parts == last)
            continue;
        cr_assert_lt(wanted, said.count);
        cr_expect_eq(said.parts[wanted], parts, "block %u: %u", i, said.parts[wanted]);
        last = parts;
        wanted++;
    }
    cr_expect_eq(said.count, wanted);
    cr_expect_eq(last, 1000);
    gp_recording_free(r);
    close(fd);
}

/* Parts of 1000, each at most once, and none before the first. */
Test(recording_read, its_progress_is_that_of_the_blocks)
{
    static const size_t names[][4] = {{5, 20000, 5, 45000}, {5, 5, 5, 59000}, {40000, 5, 5, 5}};
    for (unsigned way = 0; way < GP_COUNT(names); way++) {
        struct recfile *file = begin();
        size_t ends[4];
        for (unsigned i = 0; i < 4; i++) {
            thread_block(file, i, names[way][i]);
            ends[i] = file->size;
        }
        expect_said(file, ends, 4);
        end(file);
    }
}

/* A pickle: 300 parts of 1000 for reading it, in pieces of 4 MiB. */
Test(recording_read, the_progress_of_a_snapshot)
{
    static const char tail[] = "NX\x0d\0\0\0device_traces]u.";
    const uint32_t key = 9u << 20;
    struct recfile *file = malloc(sizeof(*file));
    struct gp_recording *r;
    char path[64];
    recfile_begin(file);
    recfile_raw(file, "\x80\2}(X", 5);
    recfile_raw(file, &key, sizeof(key));
    uint8_t *text = malloc(key);
    memset(text, 'k', key);
    recfile_raw(file, text, key);
    recfile_raw(file, tail, sizeof(tail) - 1);
    free(text);
    int fd = file_of(file, path);
    said.count = 0;
    cr_assert_eq(gp_recording_open(&r, path, why, sizeof(why), say, &said), 0, "%s", why);
    cr_assert_gt(said.count, 2);
    for (unsigned i = 1; i < said.count; i++)
        cr_expect(said.parts[i] >= said.parts[i - 1] && said.parts[i] <= 300, "%u", said.parts[i]);
    cr_expect(r->from_torch && r->event_count == 0);
    gp_recording_free(r);
    close(fd);
    end(file);
}

Test(recording_read, a_snapshot_of_more_than_8_gigabytes)
{
    struct gp_recording *r = NULL;
    char path[64];
    int fd = memfd_create("gpuprof-test", MFD_CLOEXEC);
    cr_assert_eq(write(fd, "\x80\2}.", 4), 4);
    cr_assert_eq(ftruncate(fd, (off_t)(8ull << 30) + 1), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    cr_expect_eq(gp_recording_open(&r, path, why, sizeof(why), NULL, NULL), -EFBIG);
    cr_expect_str_eq(why, "more events or sites than this version opens (268435456 events)");
    close(fd);
}

static int lowest(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

Test(recording_read, what_cannot_be_opened)
{
    static const struct {
        const char *path, *why;
        int rc;
    } cases[] = {{"/nonexistent/file", "No such file or directory", -ENOENT},
                 {"/", "Is a directory", -EISDIR},
                 {"/dev/null", "the file is empty", -EPROTO}};
    struct gp_recording *r;
    int before = lowest();
    for (size_t i = 0; i < GP_COUNT(cases); i++) {
        cr_expect_eq(gp_recording_open(&r, cases[i].path, why, sizeof(why), NULL, NULL), cases[i].rc);
        cr_expect_str_eq(why, cases[i].why);
        cr_expect_eq(lowest(), before, "%s: a descriptor is left open", cases[i].path);
    }
    /* Also if it is number 0. */
    int standard = dup(0);
    close(0);
    cr_expect_eq(gp_recording_open(&r, "/", why, sizeof(why), NULL, NULL), -EISDIR);
    cr_expect_eq(fcntl(0, F_GETFD), -1);
    if (standard >= 0) {
        dup2(standard, 0);
        close(standard);
    }
}

/* ---- reads that fail --------------------------------------------------------------------------------------------- */

enum { READ_AGAIN, READ_LESS, READ_NOTHING, READ_FAILS, READ_WAYS };
static unsigned reads_until, read_way; /* the read with this number goes this way */
static bool read_wrong;                /* it did */

STANDIN(ssize_t, pread, int fd, void *into, size_t bytes, off_t offset)
{
    if (!reads_until || --reads_until)
        return __real_pread(fd, into, bytes, offset);
    read_wrong = true;
    switch (read_way) {
    case READ_LESS:
        return __real_pread(fd, into, bytes > 1 ? bytes / 2 : bytes, offset);
    case READ_NOTHING:
        return 0;
    default:
        errno = read_way == READ_AGAIN ? EINTR : EIO;
        return -1;
    }
}

static void expect_read(const char *path, unsigned number)
{
    struct gp_recording *r = NULL;
    memset(why, 'x', sizeof(why));
    int before = lowest(), rc = gp_recording_open(&r, path, why, sizeof(why), NULL, NULL);
    reads_until = 0;
    if (!read_wrong || read_way <= READ_LESS || number == 1) { /* the first looks whether it is a pickle */
        cr_assert_eq(rc, 0, "way %u, read %u: %s", read_way, number, why);
        cr_expect(r->thread_count == 3 && r->damaged_blocks == 1);
        gp_recording_free(r);
    } else if (read_way == READ_FAILS) {
        cr_expect_eq(rc, -EIO);
        cr_expect_str_eq(why, "Input/output error");
    } else {
        cr_expect_eq(rc, -EPROTO);
        cr_expect_str_eq(why, number == 2 ? "not a recording of gpuprof" : "the file changed while it was read");
    }
    cr_expect_eq(lowest(), before);
}

Test(recording_read, files_that_fail_while_they_are_read)
{
    struct recfile *file = begin();
    char path[64];
    thread_block(file, 1, 5000);
    rubbish(file, 70000);
    thread_block(file, 2, 5);
    thread_block(file, 3, 50);
    int fd = file_of(file, path);
    for (read_way = 0; read_way < READ_WAYS; read_way++) {
        unsigned number = 0;
        do {
            read_wrong = false;
            reads_until = ++number;
            expect_read(path, number);
        } while (read_wrong);
        cr_expect_gt(number, 9);
    }
    close(fd);
    end(file);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int open_once(void *arg)
{
    struct gp_recording *r = NULL;
    int rc = gp_recording_open(&r, arg, why, sizeof(why), NULL, NULL);
    if (rc == 0 && r->thread_count != 1)
        rc = -1;
    if (rc && strcmp(why, "Cannot allocate memory") != 0)
        rc = -2;
    gp_recording_free(r);
    return rc;
}

Test(recording_read, lack_of_memory_is_said)
{
    static const char snapshot[] = "\x80\2}X\x0d\0\0\0device_traces]s.";
    struct recfile *file = begin();
    char path[64];
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    thread_block(file, 1, 5);
    for (int way = 0; way < 2; way++) {
        int fd = file_of(file, path);
        struct memory_tried tried = memory_each(open_once, path);
        cr_expect_gt(tried.calls, 8, "%u", tried.calls);
        cr_expect_eq(tried.none, 0, "%u", tried.none);
        cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
        cr_expect_eq(tried.kept, 0, "%u", tried.kept);
        close(fd);
        file->size = 0;
        recfile_raw(file, snapshot, sizeof(snapshot) - 1);
    }
    end(file);
}
