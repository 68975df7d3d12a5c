/* SPDX-License-Identifier: MIT
 * recfile.c: see recfile.h. */
#include "lib/recfile.h"

#include <record/pack.h>
#include <stdlib.h>

void recfile_begin(struct recfile *file)
{
    file->at = NULL;
    file->size = file->room = 0;
    file->sequence = 0;
}

void recfile_raw(struct recfile *file, const void *bytes, size_t count)
{
    if (file->size + count > file->room) {
        file->room = 2 * (file->size + count) + 4096;
        file->at = realloc(file->at, file->room);
        if (!file->at)
            abort();
    }
    memcpy(file->at + file->size, bytes, count);
    file->size += count;
}

struct gp_format_head recfile_head_of(uint32_t pid, uint64_t begin_unix_ns)
{
    return (struct gp_format_head){.magic = {'\x89', 'G', 'P', 'R', 'E', 'C', '\r', '\n'},
                                   .order = GP_FORMAT_ORDER,
                                   .major = GP_FORMAT_MAJOR,
                                   .minor = GP_FORMAT_MINOR,
                                   .head_bytes = sizeof(struct gp_format_head),
                                   .pid = pid,
                                   .begin_unix_ns = begin_unix_ns};
}

void recfile_head(struct recfile *file, const struct gp_format_head *head)
{
    struct gp_format_head copy = *head;
    copy.crc = gp_file_crc32c(0, &copy, offsetof(struct gp_format_head, crc));
    recfile_raw(file, &copy, sizeof(copy));
}

void recfile_block_as(struct recfile *file, const struct gp_format_block *block, const void *payload)
{
    struct gp_format_block copy = *block;
    memcpy(copy.mark, GP_FORMAT_MARK, sizeof(copy.mark));
    copy.sequence = file->sequence++;
    copy.crc =
        gp_file_crc32c(gp_file_crc32c(0, &copy, offsetof(struct gp_format_block, crc)), payload, copy.stored_bytes);
    recfile_raw(file, &copy, sizeof(copy));
    recfile_raw(file, payload, copy.stored_bytes);
}

void recfile_block(struct recfile *file, enum gp_format_type type, uint32_t count, const void *payload, size_t bytes)
{
    const struct gp_format_block block = {
        .type = (uint16_t)type, .count = count, .stored_bytes = (uint32_t)bytes, .bytes = (uint32_t)bytes};
    recfile_block_as(file, &block, payload);
}

struct gp_pack *recfile_rows(struct recfile *file)
{
    file->row = (struct gp_pack){.at = file->rows, .start = file->rows, .end = file->rows + sizeof(file->rows)};
    return &file->row;
}

void recfile_block_rows(struct recfile *file, enum gp_format_type type, uint32_t count)
{
    if (file->row.full)
        abort();
    recfile_block(file, type, count, file->rows, gp_pack_bytes(&file->row));
}
