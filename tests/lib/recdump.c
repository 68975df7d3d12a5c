/* SPDX-License-Identifier: MIT
 * recdump.c: see recdump.h. It shares only format.h and the checksum with the writer. */
#include <lib/recdump.h>

#include <inttypes.h>
#include <record/format.h>
#include <record/pack.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

static const char *const dump_names[] = {
    "NONE",    "PROCESS",     "STRINGS", "FRAMES", "SITES", "SITE_NUMBERS", "MODULES", "THREADS", "EVENTS", "BASELINE",
    "SAMPLES", "DEVICES_RAW", "OOM_RAW", "COUNTS", "END",   "INDEX",        "BEFORE",  "DEVICES", "OOM"};

struct dump {
    FILE *out;
    const uint8_t *file;
    size_t size;
    struct gp_unpack in;
};

static void dump_number(struct dump *dump)
{
    fprintf(dump->out, " %" PRIu64, gp_unpack_number(&dump->in));
}

static void dump_signed(struct dump *dump)
{
    fprintf(dump->out, " %" PRId64, gp_unpack_signed(&dump->in));
}

static void dump_bytes(struct dump *dump, uint64_t bytes)
{
    const uint8_t *text = gp_unpack_raw(&dump->in, bytes);
    fputs(" \"", dump->out);
    for (uint64_t i = 0; text && i < bytes; i++)
        if (text[i] >= ' ' && text[i] < 127)
            fputc(text[i], dump->out);
        else
            fprintf(dump->out, "\\%x", text[i]);
    fputc('"', dump->out);
}

static void dump_string(struct dump *dump)
{
    dump_bytes(dump, gp_unpack_number(&dump->in));
}

/* A number of rows, each an id and, with `listed`, a number of values; the values. */
static void dump_numbers(struct dump *dump, bool listed)
{
    fputs(" [", dump->out);
    for (uint64_t rows = gp_unpack_number(&dump->in); rows && !dump->in.bad; rows--) {
        fprintf(dump->out, " %" PRIu64 ":", gp_unpack_number(&dump->in));
        for (uint64_t count = listed ? gp_unpack_number(&dump->in) : 1; count && !dump->in.bad; count--)
            dump_signed(dump);
    }
    fputs(" ]", dump->out);
}

/* Of each row: n a number, s a signed one, t a text, r numbers by their ids with their values. */
static void dump_row(struct dump *dump, const char *form)
{
    fputs(" |", dump->out);
    for (; *form; form++) {
        if (*form == 'n')
            dump_number(dump);
        if (*form == 's')
            dump_signed(dump);
        if (*form == 't')
            dump_string(dump);
        if (*form == 'r')
            dump_numbers(dump, true);
    }
}

static void dump_counts(struct dump *dump)
{
    dump_row(dump, "nnnnn");
    for (unsigned list = 0; list < 2; list++) {
        uint64_t count = gp_unpack_number(&dump->in);
        fputs(" [", dump->out);
        for (uint64_t i = 0; i < count; i++)
            dump_number(dump);
        fputs(" ]", dump->out);
    }
    dump_row(dump, "nnn");
}

static void dump_frames(struct dump *dump, uint32_t count)
{
    dump_number(dump);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t type = gp_unpack_number(&dump->in);
        fprintf(dump->out, " | %" PRIu64, type);
        for (unsigned n = type == 2 ? 3 : 1; n; n--)
            dump_number(dump);
    }
}

static void dump_index(struct dump *dump, const struct gp_format_block *block, size_t at)
{
    size_t walk = sizeof(struct gp_format_head);
    struct gp_format_tail tail;
    for (uint32_t i = 0; i < block->count; i++) {
        struct gp_format_place place;
        struct gp_format_block other;
        const uint8_t *raw = gp_unpack_raw(&dump->in, sizeof(place));
        uint64_t first_ns = 0;
        if (!raw || walk >= at)
            break;
        memcpy(&place, raw, sizeof(place));
        memcpy(&other, dump->file + walk, sizeof(other));
        if (place.offset != walk || place.type != other.type || place.count != other.count || place.pad_)
            fprintf(dump->out, " bad place %u", i);
        fprintf(dump->out, place.first_ns != first_ns ? " %" PRIu64 : " -", place.first_ns);
        walk += sizeof(other) + other.stored_bytes;
    }
    const uint8_t *raw = gp_unpack_raw(&dump->in, sizeof(tail));
    if (raw)
        memcpy(&tail, raw, sizeof(tail));
    if (!raw || walk != at || tail.index_offset != at || memcmp(tail.magic, GP_FORMAT_END, 8) != 0)
        fputs(" bad index", dump->out);
}

static void dump_rows(struct dump *dump, const struct gp_format_block *block, size_t at)
{
    static const char *const forms[] = {
        [GP_BLOCK_PROCESS] = "nnnnnnttttsssn", [GP_BLOCK_SITES] = "nnnnn",     [GP_BLOCK_SITE_NUMBERS] = "ssssss",
        [GP_BLOCK_MODULES] = "nnntt",          [GP_BLOCK_THREADS] = "nt",      [GP_BLOCK_SAMPLES] = "nnssssss",
        [GP_BLOCK_DEVICES] = "nsttsnnr",       [GP_BLOCK_BEFORE] = "nnnsssnss"};
    uint64_t times[3];
    const uint8_t *raw;
    switch (block->type) {
    case GP_BLOCK_STRINGS:
        dump_number(dump);
        dump_bytes(dump, block->count);
        return;
    case GP_BLOCK_FRAMES:
        dump_frames(dump, block->count);
        return;
    case GP_BLOCK_EVENTS:
    case GP_BLOCK_BASELINE:
        if ((raw = gp_unpack_raw(&dump->in, sizeof(times)))) {
            memcpy(times, raw, sizeof(times));
            fprintf(dump->out, " %" PRIu64 " %" PRIu64 " %" PRIu64, times[0], times[1], times[2]);
        }
        dump->in.at = dump->in.end;
        return;
    case GP_BLOCK_OOM:
        dump_numbers(dump, false);
        for (uint64_t kinds = gp_unpack_number(&dump->in); kinds && !dump->in.bad; kinds--)
            dump_signed(dump);
        dump_row(dump, "ttt");
        for (uint64_t holders = gp_unpack_number(&dump->in); holders && !dump->in.bad; holders--)
            dump_row(dump, "nnnn");
        return;
    case GP_BLOCK_COUNTS:
    case GP_BLOCK_END:
        dump_counts(dump);
        return;
    case GP_BLOCK_INDEX:
        dump_index(dump, block, at);
        return;
    default:
        if (block->type == GP_BLOCK_SITES || block->type == GP_BLOCK_SITE_NUMBERS)
            dump_number(dump);
        for (uint32_t i = 0; i < block->count; i++)
            dump_row(dump, forms[block->type]);
    }
}

/* The bytes of the block at `at`; 0: it is none. */
static size_t dump_block(struct dump *dump, size_t at, uint32_t sequence)
{
    struct gp_format_block block;
    if (dump->size - at < sizeof(block))
        return 0;
    memcpy(&block, dump->file + at, sizeof(block));
    const uint8_t *payload = dump->file + at + sizeof(block);
    if (memcmp(block.mark, GP_FORMAT_MARK, 4) != 0 || block.stored_bytes > dump->size - at - sizeof(block) ||
        block.type > GP_BLOCK_OOM || block.bytes > GP_FORMAT_BLOCK_BYTES)
        return 0;
    fprintf(dump->out, "%s x%u", dump_names[block.type], block.count);
    if (block.sequence != sequence || block.reserved_)
        fprintf(dump->out, " bad sequence %u", block.sequence);
    if (block.crc != gp_file_crc32c(gp_file_crc32c(0, &block, sizeof(block) - 4), payload, block.stored_bytes))
        fputs(" bad checksum", dump->out);
    uint8_t *plain = malloc(block.bytes + 1);
    if (block.coding == GP_CODING_ZSTD) {
        if (block.stored_bytes >= block.bytes ||
            ZSTD_decompress(plain, block.bytes, payload, block.stored_bytes) != block.bytes)
            fputs(" bad coding", dump->out);
    } else {
        if (block.coding != GP_CODING_PLAIN || block.stored_bytes != block.bytes)
            fputs(" bad coding", dump->out);
        memcpy(plain, payload, block.stored_bytes < block.bytes ? block.stored_bytes : block.bytes);
    }
    dump->in = (struct gp_unpack){plain, plain + block.bytes, false};
    dump_rows(dump, &block, at);
    if (dump->in.bad || dump->in.at != dump->in.end)
        fputs(" bad length", dump->out);
    fputc('\n', dump->out);
    free(plain);
    return sizeof(block) + block.stored_bytes;
}

static uint8_t *dump_load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    size_t got = fread(bytes, 1, *size, file);
    fclose(file);
    *size = got;
    return bytes;
}

static void dump_head(struct dump *dump)
{
    struct gp_format_head head;
    memcpy(&head, dump->file, sizeof(head));
    fprintf(dump->out, "head %u.%u pid %u at %" PRIu64 " session ", head.major, head.minor, head.pid,
            head.begin_unix_ns);
    for (unsigned i = 0; i < 16; i++)
        fprintf(dump->out, "%02x", head.session_id[i]);
    if (memcmp(head.magic, GP_RECORD_MAGIC, 8) != 0 || head.order != GP_FORMAT_ORDER ||
        head.head_bytes != sizeof(head) || head.crc != gp_file_crc32c(0, &head, sizeof(head) - 4))
        fputs(" bad head", dump->out);
    fputc('\n', dump->out);
}

char *recdump(const char *path)
{
    char *text = NULL;
    size_t bytes = 0, at = sizeof(struct gp_format_head), size = 0;
    uint8_t *file = dump_load(path, &size);
    struct dump dump = {.out = open_memstream(&text, &bytes), .file = file, .size = size};
    if (!file || size < at) {
        fputs("bad file\n", dump.out);
    } else {
        dump_head(&dump);
        uint32_t sequence = 0;
        for (size_t length; at < size && (length = dump_block(&dump, at, sequence)) != 0; sequence++)
            at += length;
        if (at != size)
            fprintf(dump.out, "bad bytes at %zu of %zu\n", at, size);
    }
    fclose(dump.out);
    free(file);
    return text;
}

char *recdump_of(const char *path, const char *word)
{
    char *all = recdump(path), *to = all;
    size_t length = strlen(word);
    for (char *line = all, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (strncmp(line, word, length) == 0 && line[length] == ' ') {
            memmove(to, line, (size_t)(next - line));
            to += next - line;
        }
    }
    *to = '\0';
    return all;
}
