/* SPDX-License-Identifier: MIT
 *
 * file.c: writes a recording; see file.h.
 */
#include "record/file.h"
#include "base/compiler.h"
#include "record/pack.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ==== checksums =================================================================================================== */
/* CRC-32C, eight bytes per step. */

/* Entry i of table k is the checksum of the byte i followed by k zeros. The checksum is linear, so
 * all entries follow from the eight single-bit entries: the compiler computes the tables, and
 * nothing is done at start. */
#define BIT(_i, _n, _v) (((_i) >> (_n)&1u) * (_v))
#define ENTRY(_i, a, b, c, d, e, f, g, h)                                                                              \
    (BIT(_i, 0, a) ^ BIT(_i, 1, b) ^ BIT(_i, 2, c) ^ BIT(_i, 3, d) ^ BIT(_i, 4, e) ^ BIT(_i, 5, f) ^ BIT(_i, 6, g) ^   \
     BIT(_i, 7, h))
#define FOUR(_i, ...)                                                                                                  \
    ENTRY(_i, __VA_ARGS__), ENTRY((_i) + 1, __VA_ARGS__), ENTRY((_i) + 2, __VA_ARGS__), ENTRY((_i) + 3, __VA_ARGS__)
#define SIXTEEN(_i, ...)                                                                                               \
    FOUR(_i, __VA_ARGS__), FOUR((_i) + 4, __VA_ARGS__), FOUR((_i) + 8, __VA_ARGS__), FOUR((_i) + 12, __VA_ARGS__)
#define QUARTER(_i, ...)                                                                                               \
    SIXTEEN(_i, __VA_ARGS__), SIXTEEN((_i) + 16, __VA_ARGS__), SIXTEEN((_i) + 32, __VA_ARGS__),                        \
        SIXTEEN((_i) + 48, __VA_ARGS__)
#define ROW(...)                                                                                                       \
    {                                                                                                                  \
        QUARTER(0u, __VA_ARGS__), QUARTER(64u, __VA_ARGS__), QUARTER(128u, __VA_ARGS__), QUARTER(192u, __VA_ARGS__)    \
    }

static const uint32_t crc_table[8][256] = {
    ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

uint32_t gp_file_crc32c(uint32_t before, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint32_t crc = ~before;
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        word ^= crc;
        crc = crc_table[7][word & 255] ^ crc_table[6][word >> 8 & 255] ^ crc_table[5][word >> 16 & 255] ^
              crc_table[4][word >> 24 & 255] ^ crc_table[3][word >> 32 & 255] ^ crc_table[2][word >> 40 & 255] ^
              crc_table[1][word >> 48 & 255] ^ crc_table[0][word >> 56];
    }
    for (; count; count--, at++)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 255];
    return ~crc;
}

/* ==== the file ==================================================================================================== */

#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_initStaticCCtx */
#include <zstd.h>

/* On the generated traces (bench_record) level 3 makes events 4 % smaller and takes a third more
 * time per event. */
#define GP_FILE_LEVEL 1
/* A block per second for a day is 86 400. A file with more blocks has no index, which only makes
 * opening it slower. */
#define GP_FILE_PLACES (1u << 17)
/* Disk space that is kept allocated beyond the end, so that the final blocks fit on a full disk. */
#define GP_FILE_KEPT (64u << 10)
#define GP_FILE_STEP (256u << 10)
/* The part of it that only the end block and the index may use. */
#define GP_FILE_FINAL (8u << 10)
_Static_assert(GP_FILE_BEGIN_BYTES == GP_FILE_KEPT + GP_FILE_STEP, "what file_keep allocates first");

struct gp_file {
    int fd;
    bool seekable, keeps; /* keeps: the file system can preallocate */
    bool full;            /* the last allocation failed */
    bool (*confined)(void *arg);
    void *confined_arg;
    uint64_t kept_to;
    uint32_t sequence;
    uint32_t places; /* if above GP_FILE_PLACES, no index is written */
    struct gp_file_stats stats;
    struct gp_pack pack;
    ZSTD_CCtx *zstd;
    size_t packed_room;
    uint8_t *packed; /* one encoded block: gp_format_block, payload */
    struct gp_format_place *place;
    size_t arena_bytes;
    struct gp_columns columns;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int file_lock(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS)
        return 0; /* on a file system without locks, go on without one */
    return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

/* Only an empty file of this user is taken: what another one holds would be lost. */
static int file_empty(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return -EEXIST;
    int error = file_lock(fd);
    if (!error && fstat(fd, &status) != 0) /* again: the one that had the lock may have written */
        error = -errno;
    return error ? error : status.st_size ? -EEXIST : 0;
}

static int file_fifo(const char *path)
{
    struct stat status;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_uid == geteuid() && fcntl(fd, F_SETFL, 0) == 0)
        return fd;
    close(fd);
    return -EEXIST;
}

static int file_null(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

int gp_file_open(const char *path, bool empty)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = fd < 0 ? -errno : file_lock(fd);
    if (error == -EEXIST && lstat(path, &status) == 0) {
        if (S_ISFIFO(status.st_mode))
            return file_fifo(path);
        if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3)) /* /dev/null: nobody wants the file */
            return file_null(path);
        fd = empty ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY) : -1;
        error = fd >= 0 ? file_empty(fd) : empty ? -errno : -EEXIST;
    }
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

void gp_file_drop(const char *path)
{
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0)
        unlink(path);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Errors after which a later write can succeed; any other error ends the recording. */
static bool file_passes(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

void gp_file_confine(struct gp_file *file, bool (*confined)(void *arg), void *arg)
{
    file->confined = confined;
    file->confined_arg = arg;
}

/* Space beyond the end is then neither kept nor given back. */
static bool file_confined(struct gp_file *file)
{
    bool confined = file->confined && file->confined(file->confined_arg);
    file->keeps &= !confined;
    return confined;
}

static bool file_reserve(struct gp_file *file, uint64_t to)
{
    if (fallocate(file->fd, FALLOC_FL_KEEP_SIZE, (off_t)file->stats.bytes, (off_t)(to - file->stats.bytes)) != 0)
        return false;
    file->kept_to = to;
    file->full = false;
    return true;
}

/* Keeps the space for the final blocks allocated beyond the bytes to be written.  Once the disk was
 * full, nothing is written until there is room for a whole step: small blocks that still fit would
 * leave gaps between them. */
static int file_keep(struct gp_file *file, size_t bytes)
{
    uint64_t need = file->stats.bytes + bytes + GP_FILE_KEPT;
    if (!file->keeps || (need <= file->kept_to && !file->full) || file_confined(file) ||
        file_reserve(file, need + GP_FILE_STEP))
        return 0;
    int error = errno;
    if (!file_passes(error)) {
        file->keeps = false;
        return 0;
    }
    if (!file->full && file_reserve(file, need)) /* the last bytes of the disk */
        return 0;
    file->full = true;
    return -error;
}

/* Whether a block that needs no more space than is kept may be written. */
static bool file_fits(const struct gp_file *file, enum gp_format_type type, size_t bytes)
{
    uint64_t final = type == GP_BLOCK_END || type == GP_BLOCK_INDEX ? 0 : GP_FILE_FINAL;
    return !file->keeps || file->stats.bytes + bytes + final <= file->kept_to;
}

static int file_write(struct gp_file *file, const void *bytes, size_t count)
{
    const char *at = bytes;
    size_t left = count;
    while (left) {
        ssize_t put = write(file->fd, at, left);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            int error = errno;
            /* A reader would skip a torn block, but removing it makes the next block easier to
             * find. */
            bool whole = left == count || (file->seekable && !file_confined(file) &&
                                           ftruncate(file->fd, (off_t)file->stats.bytes) == 0 &&
                                           lseek(file->fd, (off_t)file->stats.bytes, SEEK_SET) >= 0);
            file->stats.dead |= !whole || !file_passes(error);
            return -error;
        }
        at += put;
        left -= (size_t)put;
    }
    file->stats.bytes += count;
    return 0;
}

static void file_place(struct gp_file *file, enum gp_format_type type, uint32_t count, uint64_t first_ns,
                       uint64_t offset)
{
    if (file->places < GP_FILE_PLACES)
        file->place[file->places] =
            (struct gp_format_place){.offset = offset, .first_ns = first_ns, .count = count, .type = (uint16_t)type};
    file->places += file->places <= GP_FILE_PLACES;
}

static int file_put(struct gp_file *file, enum gp_format_type type, uint32_t count, uint64_t first_ns, bool last)
{
    struct gp_format_block block = {.type = (uint16_t)type, .count = count, .sequence = file->sequence};
    size_t bytes = gp_pack_bytes(&file->pack);
    uint8_t *payload = file->packed + sizeof(block);
    size_t stored = type == GP_BLOCK_INDEX ? 0
                                           : ZSTD_compressCCtx(file->zstd, payload, file->packed_room - sizeof(block),
                                                               file->pack.start, bytes, GP_FILE_LEVEL);
    if (type == GP_BLOCK_INDEX || ZSTD_isError(stored) || stored >= bytes) {
        memcpy(payload, file->pack.start, bytes);
        stored = bytes;
    } else {
        block.coding = GP_CODING_ZSTD;
    }
    memcpy(block.mark, GP_FORMAT_MARK, sizeof(block.mark));
    block.stored_bytes = (uint32_t)stored;
    block.bytes = (uint32_t)bytes;
    block.crc = gp_file_crc32c(gp_file_crc32c(0, &block, offsetof(struct gp_format_block, crc)), payload, stored);
    memcpy(file->packed, &block, sizeof(block));
    uint64_t offset = file->stats.bytes;
    int error = file_keep(file, sizeof(block) + stored);
    if (error && last && file_fits(file, type, sizeof(block) + stored))
        error = 0;
    if (!error)
        error = file_write(file, file->packed, sizeof(block) + stored);
    file->stats.error = -error;
    if (error)
        return error;
    file_place(file, type, count, first_ns, offset);
    file->stats.packed_of += bytes;
    file->sequence++;
    return 0;
}

struct gp_pack *gp_file_pack(struct gp_file *file)
{
    file->pack.at = file->pack.start;
    file->pack.full = false;
    return &file->pack;
}

int gp_file_block(struct gp_file *file, enum gp_format_type type, uint32_t count, bool last)
{
    if (file->stats.dead)
        return -(file->stats.error ? file->stats.error : EIO);
    return file->pack.full ? -E2BIG : file_put(file, type, count, 0, last);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void gp_file_flush(struct gp_file *file, enum gp_format_type type)
{
    uint32_t count = file->columns.count;
    if (!count)
        return;
    int error = -EIO;
    if (!file->stats.dead) {
        gp_columns_payload(&file->columns, gp_file_pack(file));
        error = file->pack.full ? -E2BIG : file_put(file, type, count, file->columns.first_ns, false);
    }
    if (error && !file->stats.given_up) {
        file->stats.lost_error = -error;
        file->stats.lost_ns = file->columns.first_ns;
        file->stats.lost_after = file->stats.events;
    }
    if (error)
        file->stats.given_up += count;
    else if (type == GP_BLOCK_BASELINE)
        file->stats.baseline += count;
    else
        file->stats.events += count;
    gp_columns_clear(&file->columns);
}

void gp_file_add(struct gp_file *file, const struct gp_wire_event *event, enum gp_format_type type)
{
    if (GP_LIKELY(gp_columns_add(&file->columns, event)))
        return;
    gp_file_flush(file, type);
    gp_columns_add(&file->columns, event);
}

/* ---- start and end ----------------------------------------------------------------------------------------------- */

/* The library binds zstd's references to malloc, calloc, free and its trace hooks to these
 * functions (Makefile): with a preallocated context zstd needs none of them, and inside a profiled
 * program it must not call them. */
void *gp_file_no_memory(void);
void gp_file_no_free(void);

void *gp_file_no_memory(void)
{
    return NULL;
}

void gp_file_no_free(void)
{
}

static size_t file_round(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static struct gp_file *file_arena(void)
{
    size_t zstd = file_round(ZSTD_estimateCCtxSize(GP_FILE_LEVEL));
    size_t self = file_round(sizeof(struct gp_file)), columns = file_round(gp_columns_bytes());
    size_t packed = file_round(sizeof(struct gp_format_block) + ZSTD_compressBound(GP_FORMAT_BLOCK_BYTES));
    size_t places = file_round(GP_FILE_PLACES * sizeof(struct gp_format_place));
    size_t all = self + zstd + columns + packed + places + GP_FORMAT_BLOCK_BYTES;
    uint8_t *at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    /* A forked child has no recorder thread and needs no copy. */
    madvise(at, all, MADV_DONTFORK);
    struct gp_file *file = (struct gp_file *)(void *)at;
    file->arena_bytes = all;
    at += self;
    file->zstd = ZSTD_initStaticCCtx(at, zstd);
    at += zstd;
    gp_columns_init(&file->columns, at);
    at += columns;
    file->packed = at;
    file->packed_room = packed;
    at += packed;
    file->place = (struct gp_format_place *)(void *)at;
    at += places;
    file->pack = (struct gp_pack){.at = at, .start = at, .end = at + GP_FORMAT_BLOCK_BYTES};
    return file;
}

/* Ends gp_file_new and gp_file_resume: gives the file, or undoes what was begun. */
static int file_begun(struct gp_file **out, struct gp_file *file, int fd, int error)
{
    if (!error) {
        *out = file;
        return 0;
    }
    close(fd);
    if (file)
        munmap(file, file->arena_bytes);
    return error;
}

int gp_file_new(struct gp_file **out, int fd, const struct gp_file_who *who)
{
    struct stat status;
    struct gp_format_head head = {.order = GP_FORMAT_ORDER,
                                  .major = GP_FORMAT_MAJOR,
                                  .minor = GP_FORMAT_MINOR,
                                  .head_bytes = sizeof(head),
                                  .pid = who->pid,
                                  .begin_unix_ns = who->begin_unix_ns,
                                  .run_unix_ns = who->run_unix_ns};
    struct gp_file *file = file_arena();
    int error = file && file->zstd ? 0 : -ENOMEM;
    if (!error) {
        memcpy(head.magic, GP_RECORD_MAGIC, sizeof(head.magic));
        memcpy(head.session_id, who->session_id, sizeof(head.session_id));
        head.crc = gp_file_crc32c(0, &head, offsetof(struct gp_format_head, crc));
        file->fd = fd;
        file->seekable = file->keeps = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
        error = file_keep(file, sizeof(head));
        if (!error)
            error = file_write(file, &head, sizeof(head));
    }
    return file_begun(out, file, fd, error);
}

/* The bytes of the block at `at`; 0: there is no sound one. */
static uint64_t file_sound(struct gp_file *file, uint64_t at)
{
    struct gp_format_block block;
    uint8_t *payload = file->packed;
    if (pread(file->fd, &block, sizeof(block), (off_t)at) != (ssize_t)sizeof(block) ||
        memcmp(block.mark, GP_FORMAT_MARK, sizeof(block.mark)) != 0 || block.stored_bytes > file->packed_room ||
        pread(file->fd, payload, block.stored_bytes, (off_t)(at + sizeof(block))) != (ssize_t)block.stored_bytes)
        return 0;
    uint32_t crc =
        gp_file_crc32c(gp_file_crc32c(0, &block, offsetof(struct gp_format_block, crc)), payload, block.stored_bytes);
    return crc == block.crc ? sizeof(block) + block.stored_bytes : 0;
}

static int file_find_end(struct gp_file *file)
{
    struct gp_format_head head;
    uint64_t at = sizeof(head), bytes;
    if (pread(file->fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.magic, GP_RECORD_MAGIC, sizeof(head.magic)) != 0 || head.major != GP_FORMAT_MAJOR ||
        head.minor != GP_FORMAT_MINOR || head.head_bytes != sizeof(head))
        return -EPROTO;
    for (; (bytes = file_sound(file, at)) != 0; at += bytes)
        file->sequence++;
    file->stats.bytes = at;
    return ftruncate(file->fd, (off_t)at) != 0 || lseek(file->fd, (off_t)at, SEEK_SET) < 0 ? -errno : 0;
}

int gp_file_resume(struct gp_file **out, int fd)
{
    struct gp_file *file = file_arena();
    int error = file && file->zstd ? 0 : -ENOMEM;
    if (!error) {
        file->fd = fd;
        file->seekable = file->keeps = true;
        file->places = GP_FILE_PLACES + 1; /* the places of the blocks so far are not known */
        error = file_lock(fd);
    }
    if (!error)
        error = file_find_end(file);
    return file_begun(out, file, fd, error);
}

void gp_file_stats(const struct gp_file *file, struct gp_file_stats *out)
{
    *out = file->stats;
}

static int file_index(struct gp_file *file)
{
    struct gp_format_tail tail = {.index_offset = file->stats.bytes};
    struct gp_pack *pack = gp_file_pack(file);
    if (file->places > GP_FILE_PLACES)
        return 0;
    gp_pack_raw(pack, file->place, file->places * sizeof(*file->place));
    memcpy(tail.magic, GP_FORMAT_END, sizeof(tail.magic));
    gp_pack_raw(pack, &tail, sizeof(tail));
    return gp_file_block(file, GP_BLOCK_INDEX, file->places, true);
}

int gp_file_end(struct gp_file *file)
{
    int error = file_index(file);
    error = file_passes(-error) ? 0 : error; /* a file without an index is complete */
    if (file->kept_to > file->stats.bytes && !file_confined(file) &&
        ftruncate(file->fd, (off_t)file->stats.bytes) != 0 && !error)
        error = -errno;
    if (close(file->fd) != 0 && !error && errno != EINTR)
        error = -errno;
    munmap(file, file->arena_bytes);
    return error;
}
