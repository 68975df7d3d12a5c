/* SPDX-License-Identifier: MIT
 * recimage.c: see recimage.h. */
#include <lib/recimage.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct recimage recimage;
unsigned recimage_fail, recimage_copies;
void (*recimage_copied)(uint64_t offset);

static char image_proc[64];
static uint64_t image_turn;
static uint32_t image_used;

static int image_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    recimage_copies++;
    if (arg != &recimage || bytes % 8 || offset % 8 || offset > sizeof(recimage) || bytes > sizeof(recimage) - offset)
        abort();
    if (recimage_fail && --recimage_fail == 0)
        return -EIO;
    memcpy(into, (char *)&recimage + offset, bytes);
    if (recimage_copied)
        recimage_copied(offset);
    return 0;
}

void recimage_new(void)
{
    struct gp_wire_header *h = &recimage.header;
    struct gp_wire_sites *sites = &recimage.sites.head;
    memset(&recimage, 0, sizeof(recimage));
    recimage_fail = recimage_copies = image_used = 0;
    recimage_copied = NULL;
    image_turn = 0;
    *h = (struct gp_wire_header){.magic = GP_WIRE_MAGIC,
                                 .abi = GP_WIRE_ABI,
                                 .header_bytes = sizeof(*h),
                                 .total_bytes = sizeof(recimage),
                                 .pid = 77,
                                 .start_ns = 5000000000ull,
                                 .devices_offset = offsetof(struct recimage, devices),
                                 .device_bytes = sizeof(struct gp_wire_device),
                                 .device_count = GP_WIRE_DEVICES,
                                 .ring_offset = offsetof(struct recimage, ring),
                                 .chunk_bytes = sizeof(struct gp_wire_chunk),
                                 .chunk_count = RECIMAGE_CHUNKS,
                                 .source = GP_SOURCE_CUPTI,
                                 .driver_version = 12080,
                                 .allocator = "caching",
                                 .oom_offset = offsetof(struct recimage, oom),
                                 .oom_bytes = sizeof(struct gp_wire_oom),
                                 .sites_offset = offsetof(struct recimage, sites),
                                 .sites_bytes = sizeof(recimage.sites)};
    for (uint8_t i = 0; i < 16; i++)
        h->session_id[i] = i;
    *sites = (struct gp_wire_sites){.row_bytes = sizeof(struct gp_wire_site),
                                    .frame_bytes = sizeof(struct gp_wire_frame),
                                    .rows_offset = offsetof(struct recimage_sites, rows),
                                    .frames_offset = offsetof(struct recimage_sites, frames),
                                    .strings_offset = offsetof(struct recimage_sites, strings),
                                    .rows = 1};
}

const char *recimage_folder(void)
{
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

struct gp_recorder_setup recimage_setup(void)
{
    snprintf(image_proc, sizeof(image_proc), "%s/gpuprof-test-image-XXXXXX", recimage_folder());
    if (!mkdtemp(image_proc))
        abort();
    return (struct gp_recorder_setup){.copy = image_copy,
                                      .copy_arg = &recimage,
                                      .header = recimage.header,
                                      .proc = image_proc,
                                      .rank = {-1, -1, -1},
                                      .from_start = true};
}

void recimage_proc(const char *name, const void *bytes, size_t count)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", image_proc, name);
    for (char *slash = path + strlen(image_proc) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count)
        abort();
    close(fd);
}

static int image_remove(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void recimage_end(void)
{
    nftw(image_proc, image_remove, 8, FTW_DEPTH | FTW_PHYS);
}

void recimage_device(unsigned index, int64_t bytes)
{
    struct gp_wire_device *device = &recimage.devices[index];
    device->flags = GP_DEVICE_PRESENT | GP_DEVICE_IDENTIFIED;
    device->ordinal = index == GP_WIRE_HOST ? -1 : (int32_t)index + 2;
    for (unsigned i = 0; i < 16; i++)
        device->uuid[i] = index == GP_WIRE_HOST ? 0 : (uint8_t)(index * 16 + i + 1);
    snprintf(device->name, sizeof(device->name), "GPU %u", index);
    device->total_bytes = bytes * 10;
    device->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current = bytes;
    device->stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current = bytes + 1;
    device->stats[GP_STAT_ACTIVE_BYTES][GP_POOL_ALL].current = bytes + 2;
    device->stats[GP_STAT_INACTIVE_SPLIT_BYTES][GP_POOL_ALL].current = bytes + 3;
}

void recimage_event(uint64_t time_ns, uint32_t tid, uint32_t site, uint8_t device)
{
    if (!image_turn || image_used == GP_RING_EVENTS) {
        struct gp_wire_chunk *taken = &recimage.ring[image_turn++ % recimage.header.chunk_count];
        taken->written_before += GP_CHUNK_COUNT(taken->state);
        taken->state = GP_CHUNK_STATE(image_turn, 0, image_used = 0);
    }
    struct gp_wire_chunk *chunk = &recimage.ring[(image_turn - 1) % recimage.header.chunk_count];
    uint64_t seq = (image_turn - 1) * GP_RING_EVENTS + image_used;
    chunk->events[image_used++] = (struct gp_wire_event){.seq = seq,
                                                         .time_ns = time_ns,
                                                         .address = 0x1000 * (seq + 1),
                                                         .bytes = 512,
                                                         .requested_bytes = 512,
                                                         .tid = tid,
                                                         .site = site,
                                                         .type = GP_EVENT_ALLOC,
                                                         .kind = GP_KIND_LINEAR,
                                                         .device = device};
    chunk->state = GP_CHUNK_STATE(image_turn, 0, image_used);
}

uint32_t recimage_string(const char *text)
{
    struct gp_wire_sites *sites = &recimage.sites.head;
    uint32_t at = sites->strings;
    strcpy(recimage.sites.strings + at, text);
    sites->strings += (uint32_t)strlen(text) + 1;
    return at;
}

uint32_t recimage_python(const char *function, const char *file, uint32_t line)
{
    struct gp_wire_frame *frame = &recimage.sites.frames[recimage.sites.head.frames];
    frame->function = recimage_string(function);
    frame->file = recimage_string(file);
    frame->line = line;
    frame->type = GP_FRAME_PYTHON;
    return recimage.sites.head.frames++;
}

uint32_t recimage_native(uint64_t pc)
{
    recimage.sites.frames[recimage.sites.head.frames] = (struct gp_wire_frame){.pc = pc, .type = GP_FRAME_NATIVE};
    return recimage.sites.head.frames++;
}

uint32_t recimage_site(uint32_t first_frame, uint32_t frames)
{
    uint32_t id = recimage.sites.head.rows;
    recimage.sites.rows[id] = (struct gp_wire_site){.first_frame = first_frame,
                                                    .frame_count = frames,
                                                    .kind = GP_KIND_LINEAR,
                                                    .truncated = id % 2,
                                                    .summed = 1,
                                                    .live_bytes = 100 + id,
                                                    .live_count = 200 + id,
                                                    .peak_bytes = 300 + id,
                                                    .at_peak_bytes = 400 + id,
                                                    .allocated_bytes = 500 + id,
                                                    .calls = 600 + id};
    return recimage.sites.head.rows++;
}
