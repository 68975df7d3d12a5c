/* SPDX-License-Identifier: MIT
 *
 * blocks.c: writes every block of a recording except events (blocks.h).
 * tools/read/recording/payload.c reads these payloads.
 */
#include "record/blocks.h"
#include "base/numbers.h"
#include "record/format.h"
#include "record/pack.h"
#include <gpuprof/wire.h>

static void block_text(struct gp_pack *pack, const char *text)
{
    gp_pack_string(pack, text, strlen(text));
}

void gp_block_process(struct gp_pack *pack, const struct gp_block_process *process)
{
    gp_pack_number(pack, process->pid);
    gp_pack_number(pack, process->source);
    gp_pack_number(pack, process->driver_version);
    gp_pack_number(pack, process->from_start);
    gp_pack_number(pack, process->begin_ns);
    gp_pack_number(pack, process->begin_unix_ns);
    block_text(pack, process->comm);
    block_text(pack, process->command_line);
    block_text(pack, process->host);
    block_text(pack, process->allocator);
    gp_pack_signed(pack, process->rank.rank);
    gp_pack_signed(pack, process->rank.local);
    gp_pack_signed(pack, process->rank.world);
    gp_pack_number(pack, process->attached);
}

void gp_block_first(struct gp_pack *pack, uint64_t first)
{
    gp_pack_number(pack, first);
}

void gp_block_frame(struct gp_pack *pack, const struct gp_wire_frame *frame)
{
    gp_pack_number(pack, frame->type);
    if (frame->type == GP_FRAME_PYTHON) {
        gp_pack_number(pack, frame->function);
        gp_pack_number(pack, frame->file);
        gp_pack_number(pack, frame->line);
    } else {
        gp_pack_number(pack, frame->pc);
    }
}

void gp_block_site(struct gp_pack *pack, const struct gp_wire_site *site)
{
    gp_pack_number(pack, site->first_frame);
    gp_pack_number(pack, site->frame_count);
    gp_pack_number(pack, site->kind);
    gp_pack_number(pack, site->device);
    gp_pack_number(pack, site->truncated != 0);
}

void gp_block_site_numbers(struct gp_pack *pack, const struct gp_wire_site *site)
{
    gp_pack_signed(pack, site->live_bytes);
    gp_pack_signed(pack, site->live_count);
    gp_pack_signed(pack, site->peak_bytes);
    gp_pack_signed(pack, site->at_peak_bytes);
    gp_pack_signed(pack, site->allocated_bytes);
    gp_pack_signed(pack, site->calls);
}

void gp_block_module(struct gp_pack *pack, uint64_t start, uint64_t end, uint64_t offset, const char *path,
                     const uint8_t *build_id, size_t build_id_bytes)
{
    gp_pack_number(pack, start);
    gp_pack_number(pack, end - start);
    gp_pack_number(pack, offset);
    block_text(pack, path);
    gp_pack_number(pack, build_id_bytes);
    gp_pack_raw(pack, build_id, build_id_bytes);
}

void gp_block_thread(struct gp_pack *pack, uint32_t tid, const char *name)
{
    gp_pack_number(pack, tid);
    block_text(pack, name);
}

void gp_block_sample(struct gp_pack *pack, const struct gp_block_sample *sample)
{
    gp_pack_number(pack, sample->time_ns);
    gp_pack_number(pack, sample->device);
    gp_pack_signed(pack, sample->allocated_bytes);
    gp_pack_signed(pack, sample->reserved_bytes);
    gp_pack_signed(pack, sample->active_bytes);
    gp_pack_signed(pack, sample->inactive_split_bytes);
    gp_pack_signed(pack, sample->used_bytes);
    gp_pack_signed(pack, sample->process_bytes);
}

static void block_values(struct gp_pack *pack, const struct gp_number_row *row, const struct gp_wire_device *numbers)
{
    gp_pack_number(pack, row->id);
    gp_pack_number(pack, row->count);
    for (unsigned i = 0; i < row->count; i++) {
        int64_t value;
        memcpy(&value, (const char *)numbers + row->offset + i * sizeof(value), sizeof(value));
        gp_pack_signed(pack, value);
    }
}

void gp_block_device(struct gp_pack *pack, uint32_t index, int32_t ordinal, const char *uuid, const char *name,
                     int64_t total_bytes, const struct gp_wire_device *numbers, bool final)
{
    gp_pack_number(pack, index);
    gp_pack_signed(pack, ordinal);
    block_text(pack, uuid);
    block_text(pack, name);
    gp_pack_signed(pack, total_bytes);
    gp_pack_number(pack, final);
    gp_pack_number(pack, numbers ? numbers->flags : 0);
    gp_pack_number(pack, numbers ? GP_NUMBER_ROWS : 0);
    for (unsigned i = 0; numbers && i < GP_NUMBER_ROWS; i++)
        block_values(pack, &gp_number_rows[i], numbers);
}

void gp_block_before(struct gp_pack *pack, uint64_t time_ns, uint32_t index, const struct gp_wire_before_device *before)
{
    gp_pack_number(pack, time_ns);
    gp_pack_number(pack, index);
    gp_pack_number(pack, before->source);
    gp_pack_signed(pack, before->bytes);
    gp_pack_signed(pack, before->at_attach_bytes);
    gp_pack_signed(pack, before->count);
    gp_pack_number(pack, before->freed);
    gp_pack_signed(pack, before->framework_allocated_bytes);
    gp_pack_signed(pack, before->framework_reserved_bytes);
}

void gp_block_oom(struct gp_pack *pack, const struct gp_wire_oom *oom)
{
    static const uint8_t ids[] = {
#define GP_OOM_NUMBER(_id, _field) _id,
#include "record/oom.def"
    };
    const int64_t values[] = {
#define GP_OOM_NUMBER(_id, _field) (int64_t) oom->_field,
#include "record/oom.def"
    };
    gp_pack_number(pack, sizeof(ids));
    for (unsigned i = 0; i < sizeof(ids); i++) {
        gp_pack_number(pack, ids[i]);
        gp_pack_signed(pack, values[i]);
    }
    gp_pack_number(pack, GP_KINDS);
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        gp_pack_signed(pack, oom->kinds[kind]);
    gp_pack_string(pack, oom->api, strnlen(oom->api, sizeof(oom->api)));
    gp_pack_string(pack, oom->policy, strnlen(oom->policy, sizeof(oom->policy)));
    gp_pack_string(pack, oom->conf, strnlen(oom->conf, sizeof(oom->conf)));
    uint32_t holders = oom->holder_count < GP_OOM_HOLDERS ? oom->holder_count : GP_OOM_HOLDERS;
    gp_pack_number(pack, holders);
    for (uint32_t i = 0; i < holders; i++) {
        gp_pack_number(pack, oom->holders[i].block_bytes);
        gp_pack_number(pack, oom->holders[i].count);
        gp_pack_number(pack, oom->holders[i].site);
        gp_pack_number(pack, oom->holders[i].kind);
    }
}

void gp_block_counts(struct gp_pack *pack, const struct gp_block_counts *counts)
{
    gp_pack_number(pack, counts->why);
    gp_pack_number(pack, (unsigned)counts->error);
    gp_pack_number(pack, counts->time_ns);
    gp_pack_number(pack, counts->tried);
    gp_pack_number(pack, counts->delivered);
    gp_pack_number(pack, GP_DROPS);
    for (unsigned i = 0; i < GP_DROPS; i++)
        gp_pack_number(pack, counts->dropped[i]);
    gp_pack_number(pack, GP_LOSTS);
    for (unsigned i = 0; i < GP_LOSTS; i++)
        gp_pack_number(pack, counts->lost[i]);
    gp_pack_number(pack, (unsigned)counts->lost_error);
    gp_pack_number(pack, counts->lost_ns);
    gp_pack_number(pack, counts->lost_after);
}
