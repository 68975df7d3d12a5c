/* SPDX-License-Identifier: MIT
 * frompprof.c: makes a recording of a heap profile of pprof (protobuf), as JAX's save_device_memory_profile, Go's heap
 * profiles and gpuprof's own export are; see internal.h.  A sample is the memory that one stack held at the time of the
 * profile: it was there, and nothing is known of when and in which blocks.
 *
 * Bounds: the library for protobuf gets at most GP_PPROF_MEMORY; a sample has as many locations as its bytes, and becomes
 * at most as many blocks as the file has bytes, all samples together. */
#include <errno.h>
#include <profile.pb-c.h>
#include <read/common/hash.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/text.h>

#define GP_PPROF_MEMORY(_bytes) ((32ull << 20) + 64ull * (_bytes))
#define GP_PPROF_DEPTH          256u
#define GP_PPROF_LINES          64u /* of one location */

struct gp_pprof_memory { /* each piece has its size in front of it */
    uint64_t left;
    bool full;
};

struct gp_pprof_file {
    struct gp_read *read;
    struct gp_torch_sites sites;
    const Perftools__Profiles__Profile *profile;
    struct gp_hash locations, functions; /* id -> index */
    uint32_t bytes_column, count_column; /* of a sample's values; UINT32_MAX: none */
    uint64_t blocks_left, next_address;
    uint64_t negative; /* samples that are below 0, of a difference */
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define GP_PPROF_FRONT 16u /* keeps the alignment */

static void *pprof_take(void *data, size_t bytes)
{
    struct gp_pprof_memory *memory = data;
    uint64_t wanted = (uint64_t)bytes + GP_PPROF_FRONT;
    if (wanted > memory->left) {
        memory->full = true;
        return NULL;
    }
    char *piece = malloc(bytes + GP_PPROF_FRONT);
    if (!piece)
        return NULL;
    memory->left -= wanted;
    memcpy(piece, &wanted, sizeof(wanted));
    return piece + GP_PPROF_FRONT;
}

static void pprof_give(void *data, void *piece)
{
    struct gp_pprof_memory *memory = data;
    uint64_t bytes;
    if (!piece)
        return;
    char *front = (char *)piece - GP_PPROF_FRONT;
    memcpy(&bytes, front, sizeof(bytes));
    memory->left += bytes;
    free(front);
}

/* ---- texts and stacks -------------------------------------------------------------------------------------------- */

static const char *pprof_text(const struct gp_pprof_file *file, int64_t index)
{
    const Perftools__Profiles__Profile *profile = file->profile;
    return index > 0 && (uint64_t)index < profile->n_string_table ? profile->string_table[index] : "";
}

static struct gp_torch_text pprof_span(const char *text)
{
    size_t length = strlen(text);
    return (struct gp_torch_text){text, length < UINT32_MAX ? (uint32_t)length : UINT32_MAX};
}

static bool pprof_is_python(const char *file)
{
    size_t length = strlen(file);
    return file[0] == '<' || (length > 3 && strcmp(file + length - 3, ".py") == 0);
}

static uint32_t pprof_line(struct gp_pprof_file *file, const Perftools__Profiles__Line *line)
{
    uint32_t at;
    const Perftools__Profiles__Function *function =
        gp_hash_get(&file->functions, line->function_id, &at) ? file->profile->function[at] : NULL;
    const char *name = function ? pprof_text(file, function->name) : "";
    const char *source = function ? pprof_text(file, function->filename) : "";
    if (function && !name[0])
        name = pprof_text(file, function->system_name);
    const struct gp_torch_text called = pprof_span(name), where = pprof_span(source);
    return gp_torch_frame(file->read, &file->sites, &called, &where,
                          line->line > 0 && line->line <= INT32_MAX ? (uint32_t)line->line : 0,
                          !pprof_is_python(source));
}

/* A location without lines was not looked up: its address, and the file that is mapped there. */
static uint32_t pprof_address(struct gp_pprof_file *file, const Perftools__Profiles__Location *location)
{
    char address[24];
    const char *mapped = "";
    for (size_t i = 0; i < file->profile->n_mapping && i < 256; i++)
        if (file->profile->mapping[i]->id == location->mapping_id)
            mapped = pprof_text(file, file->profile->mapping[i]->filename);
    snprintf(address, sizeof(address), "0x%llx", (unsigned long long)location->address);
    const struct gp_torch_text called = pprof_span(address), where = pprof_span(mapped);
    return gp_torch_frame(file->read, &file->sites, &called, &where, 0, true);
}

static uint32_t pprof_site(struct gp_pprof_file *file, const Perftools__Profiles__Sample *sample, const char *label)
{
    uint32_t frames[GP_PPROF_DEPTH], count = 0, at;
    const struct gp_torch_text none = {"", 0}, outermost = pprof_span(label);
    for (size_t i = 0; i < sample->n_location_id && count < GP_PPROF_DEPTH - 1; i++) {
        if (!gp_hash_get(&file->locations, sample->location_id[i], &at))
            continue;
        const Perftools__Profiles__Location *location = file->profile->location[at];
        for (size_t k = 0; k < location->n_line && k < GP_PPROF_LINES && count < GP_PPROF_DEPTH - 1; k++)
            frames[count++] = pprof_line(file, location->line[k]);
        if (!location->n_line)
            frames[count++] = pprof_address(file, location);
    }
    if (label[0])
        frames[count++] = gp_torch_frame(file->read, &file->sites, &outermost, &none, 0, true);
    return gp_torch_stack(file->read, &file->sites, frames, count);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static const char *pprof_label(const struct gp_pprof_file *file, const Perftools__Profiles__Sample *sample,
                               const char *key)
{
    for (size_t i = 0; i < sample->n_label && i < 64; i++)
        if (strcmp(pprof_text(file, sample->label[i]->key), key) == 0)
            return pprof_text(file, sample->label[i]->str);
    return "";
}

/* "cuda:1" of JAX, or "1" of gpuprof.  Memory of another place, and of none, is the host's. */
static uint32_t pprof_device(const char *label)
{
    const char *number = strrchr(label, ':');
    number = number ? number + 1 : label;
    char *end;
    unsigned long gpu = strtoul(number, &end, 10);
    bool host = strncasecmp(label, "cpu", 3) == 0 || number[0] < '0' || number[0] > '9' || *end || gpu >= GP_WIRE_GPUS;
    return host ? GP_WIRE_HOST : (uint32_t)gpu;
}

static void pprof_sample(struct gp_pprof_file *file, const Perftools__Profiles__Sample *sample)
{
    struct gp_read *read = file->read;
    struct gp_recording *r = read->recording;
    int64_t bytes = file->bytes_column < sample->n_value ? sample->value[file->bytes_column] : 0;
    int64_t count = file->count_column < sample->n_value ? sample->value[file->count_column] : 1;
    if (bytes <= 0 || bytes > (int64_t)GP_READ_ALLOCATION_LIMIT) {
        file->negative += bytes != 0;
        return;
    }
    bool code = strcmp(pprof_label(file, sample, "kind"), "executable") == 0;
    uint32_t site = pprof_site(file, sample, code ? "executable" : "");
    uint8_t device = gp_read_device(read, pprof_device(pprof_label(file, sample, "device")));
    if (count < 1 || (uint64_t)count > file->blocks_left || count > bytes)
        count = 1;
    file->blocks_left -= file->blocks_left ? (uint64_t)count : 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t part = (uint64_t)(bytes / count + (i < bytes % count));
        if (!GP_READ_ROOM(read, r->baseline, read->baseline_room, r->baseline_count + 1, GP_READ_EVENTS))
            return;
        r->baseline[r->baseline_count++] = (struct gp_rec_event){.type = GP_EVENT_ALLOC,
                                                                 .kind = GP_KIND_POOL,
                                                                 .device = device,
                                                                 .address = 4096 * ++file->next_address,
                                                                 .bytes = part,
                                                                 .site = site};
    }
}

/* What lived at one time: Go's and our inuse_space, space of JAX and tcmalloc.  UINT32_MAX: no such values. */
static uint32_t pprof_column(const struct gp_pprof_file *file, const char *const *names)
{
    const Perftools__Profiles__Profile *profile = file->profile;
    for (; *names; names++)
        for (size_t i = 0; i < profile->n_sample_type && i < 64; i++)
            if (strcmp(pprof_text(file, profile->sample_type[i]->type), *names) == 0)
                return (uint32_t)i;
    return UINT32_MAX;
}

static void pprof_ids(struct gp_pprof_file *file)
{
    const Perftools__Profiles__Profile *profile = file->profile;
    bool ok = true;
    for (size_t i = 0; i < profile->n_location && i < GP_READ_ROWS && ok; i++)
        ok = gp_hash_set(&file->locations, profile->location[i]->id, (uint32_t)i) == 0;
    for (size_t i = 0; i < profile->n_function && i < GP_READ_ROWS && ok; i++)
        ok = gp_hash_set(&file->functions, profile->function[i]->id, (uint32_t)i) == 0;
    if (!ok)
        file->read->error = -ENOMEM;
}

static int pprof_build(struct gp_pprof_file *file, char *why, size_t why_bytes)
{
    static const char *const bytes[] = {"inuse_space", "space", NULL};
    static const char *const counts[] = {"inuse_objects", "allocations", "objects", NULL};
    struct gp_read *read = file->read;
    struct gp_recording *r = read->recording;
    file->bytes_column = pprof_column(file, bytes);
    file->count_column = pprof_column(file, counts);
    if (file->bytes_column == UINT32_MAX) {
        snprintf(why, why_bytes,
                 "a profile of pprof, but not one of memory that is held: it has no values 'space' or "
                 "'inuse_space'. 'go tool pprof' shows it");
        return -EPROTO;
    }
    if (!GP_READ_ROOM(read, r->sites, read->sites_room, 1, GP_READ_ROWS))
        return read->error;
    r->site_count = 1;
    gp_read_thread(read, 0);
    gp_read_stream(read, 0);
    pprof_ids(file);
    for (size_t i = 0; i < file->profile->n_sample && !read->error; i++)
        pprof_sample(file, file->profile->sample[i]);
    if (file->negative) {
        snprintf(why, why_bytes,
                 "a profile of pprof with values below 0, the difference of two profiles: name both to "
                 "'gpuprof diff'");
        return -EPROTO;
    }
    if (!r->device_count)
        gp_read_device(read, GP_WIRE_HOST);
    for (uint32_t i = 0; i < r->device_count; i++)
        r->devices[i].bound = GP_REC_AT_LEAST; /* at another time it was more, or not */
    for (uint32_t i = 1; i < r->site_count; i++)
        r->sites[i].kind = GP_KIND_POOL;
    r->begin_unix_ns = file->profile->time_nanos > 0 ? (uint64_t)file->profile->time_nanos : 0;
    r->from_pprof = r->complete = r->polled = true;
    read->comm = gp_read_string(read, "heap profile", strlen("heap profile"));
    read->has_process = read->has_counts = true;
    return read->error;
}

int gp_read_pprof(struct gp_read *read, const struct gp_input *input, char *why, size_t why_bytes)
{
    struct gp_pprof_memory memory = {.left = GP_PPROF_MEMORY(input->bytes)};
    ProtobufCAllocator allocator = {.alloc = pprof_take, .free = pprof_give, .allocator_data = &memory};
    Perftools__Profiles__Profile *profile = perftools__profiles__profile__unpack(&allocator, input->bytes, input->data);
    if (!profile) {
        snprintf(why, why_bytes, "a profile of pprof, but %s",
                 memory.full ? "it needs more memory than one of its size ever does" : "it is damaged or cut");
        return -EPROTO;
    }
    struct gp_pprof_file file = {.read = read, .profile = profile, .blocks_left = input->bytes};
    int rc = pprof_build(&file, why, why_bytes);
    gp_torch_sites_free(&file.sites);
    gp_hash_free(&file.locations);
    gp_hash_free(&file.functions);
    perftools__profiles__profile__free_unpacked(profile, &allocator);
    return rc;
}
