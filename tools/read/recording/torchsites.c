/* SPDX-License-Identifier: MIT
 * torchsites.c: call sites from the frames of a snapshot; see fromtorch.h.  A pickle names a list of
 * frames once and refers to it later, so most lists are known by their place in memory; lists with
 * the same contents are one site. */
#include <read/common/hash.h>
#include <read/recording/fromtorch.h>
#include <read/recording/internal.h>
#include <read/recording/pickleread.h>
#include <read/recording/recording.h>
#include <string.h>

#include <errno.h>
#include <stdlib.h>

/* PyTorch takes at most some hundred frames. */
#define GP_TORCH_FRAMES 1024u
#define GP_TORCH_TEXT   4096u

static uint64_t sites_place(const void *place)
{
    return gp_hash_of_number((uint64_t)(uintptr_t)place);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

struct gp_torch_key { /* what the functions below compare with */
    const struct gp_read *read;
    const struct gp_torch_sites *sites;
    const char *text;
    uint32_t length;
    struct gp_torch_frame frame;
    const uint32_t *stack;
};

static bool sites_text_same(const void *key, uint32_t offset)
{
    const struct gp_torch_key *wanted = key;
    const char *text = wanted->read->site_strings + offset;
    return strncmp(text, wanted->text, wanted->length) == 0 && text[wanted->length] == '\0';
}

static uint32_t sites_text(struct gp_read *read, struct gp_torch_sites *sites, const char *text, uint32_t length)
{
    bool added;
    length = length < GP_TORCH_TEXT ? length : GP_TORCH_TEXT - 1;
    length = (uint32_t)strnlen(text, length);
    if (!length || read->error)
        return 0;
    size_t at = read->site_string_bytes ? read->site_string_bytes : 1; /* 0 is "" */
    if (!GP_READ_ROOM(read, read->site_strings, read->site_strings_room, at + length + 1, GP_READ_STRINGS))
        return 0;
    const struct gp_torch_key key = {.read = read, .text = text, .length = length};
    const uint32_t *offset =
        gp_hash_add(&sites->texts, gp_hash_of_bytes(text, length), sites_text_same, &key, (uint32_t)at, &added);
    if (!offset)
        read->error = -ENOMEM;
    if (!offset || !added)
        return offset ? *offset : 0;
    memcpy(read->site_strings + at, text, length);
    read->site_strings[at + length] = '\0';
    read->site_string_bytes = at + length + 1;
    return *offset;
}

static uint32_t sites_value(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_pickle *frame,
                            const char *name)
{
    const struct gp_pickle *value = gp_pickle_get(frame, name);
    return value && value->type == GP_PICKLE_TEXT ? sites_text(read, sites, value->text, value->length) : 0;
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static bool sites_frame_same(const void *key, uint32_t number)
{
    const struct gp_torch_key *wanted = key;
    const struct gp_torch_frame *frame = &wanted->sites->frames[number];
    return frame->function == wanted->frame.function && frame->file == wanted->frame.file &&
           frame->line == wanted->frame.line && frame->native == wanted->frame.native;
}

static uint32_t sites_frame_number(struct gp_read *read, struct gp_torch_sites *sites, struct gp_torch_frame frame)
{
    bool added;
    const struct gp_torch_key key = {.sites = sites, .frame = frame};
    if (!GP_READ_ROOM(read, sites->frames, sites->frame_room, sites->frame_count + 1ul, GP_READ_ROWS))
        return 0;
    const uint32_t *number = gp_hash_add(&sites->by_name, gp_hash_of_bytes(&frame, sizeof(frame)), sites_frame_same,
                                         &key, sites->frame_count, &added);
    if (!number)
        read->error = -ENOMEM;
    else if (added)
        sites->frames[sites->frame_count++] = frame;
    return number ? *number : 0;
}

/* Newer PyTorch names the object instead of the source, and the place in it instead of the line: a library, or the
 * interpreter's program. */
static bool sites_is_object(const char *file)
{
    const char *base = strrchr(file, '/'), *end = base ? strstr(base, ".so") : NULL;
    return base && ((end && (end[3] == '\0' || (end[3] == '.' && strspn(end + 3, "0123456789.") == strlen(end + 3)))) ||
                    (strncmp(base, "/python", 7) == 0 && strspn(base + 7, "0123456789.") == strlen(base + 7)));
}

/* A C++ frame, which torch takes by default (stacks="all"). It names the source as its compiler did, "??" or
 * not at all; every Python frame has a file. */
static bool sites_is_native(const char *file)
{
    static const char *const ends[] = {".c",   ".cc", ".cpp", ".cxx", ".cu",  ".cuh", ".h",
                                       ".hpp", ".hh", ".hxx", ".inl", ".tcc", ".rs",  ".S"};
    const char *dot = strrchr(file, '.');
    if (!file[0] || strcmp(file, "??") == 0)
        return true;
    for (size_t i = 0; dot && i < sizeof(ends) / sizeof(ends[0]); i++)
        if (strcmp(dot, ends[i]) == 0)
            return true;
    return false;
}

static uint32_t sites_frame(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_pickle *frame)
{
    const uint32_t *known = gp_hash_find(&sites->by_frame, sites_place(frame->items), NULL, NULL);
    if (known)
        return *known;
    int64_t line = gp_pickle_number(gp_pickle_get(frame, "line"), 0);
    struct gp_torch_frame made = {.function = sites_value(read, sites, frame, "name"),
                                  .file = sites_value(read, sites, frame, "filename"),
                                  .line = line > 0 && line <= INT32_MAX ? (uint32_t)line : 0};
    const char *file = read->error || !made.file ? "" : read->site_strings + made.file;
    bool object = sites_is_object(file);
    made.native = object || sites_is_native(file);
    if (object)
        made.line = 0;
    if (strcmp(file, "??") == 0)
        made.file = 0;
    uint32_t number = sites_frame_number(read, sites, made);
    bool added;
    if (!read->error && !gp_hash_add(&sites->by_frame, sites_place(frame->items), NULL, NULL, number, &added))
        read->error = -ENOMEM;
    return number;
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static bool sites_stack_same(const void *key, uint32_t site)
{
    const struct gp_torch_key *wanted = key;
    const struct gp_rec_site *row = &wanted->read->recording->sites[site];
    return row->frame_count == wanted->length &&
           memcmp(wanted->sites->stacks + row->first_frame, wanted->stack, wanted->length * sizeof(uint32_t)) == 0;
}

/* The site of the `count` numbers behind the last frame's; they stay there if it is new. */
static uint32_t sites_stack(struct gp_read *read, struct gp_torch_sites *sites, uint32_t count)
{
    struct gp_recording *r = read->recording;
    const uint32_t *stack = sites->stacks + r->frame_count;
    const struct gp_torch_key key = {.read = read, .sites = sites, .stack = stack, .length = count};
    bool added;
    if (!GP_READ_ROOM(read, r->sites, read->sites_room, r->site_count + 1ul, GP_READ_ROWS) ||
        !GP_READ_ROOM(read, r->frames, read->frames_room, r->frame_count + (size_t)count, GP_READ_ROWS))
        return 0;
    const uint32_t *site = gp_hash_add(&sites->by_stack, gp_hash_of_bytes(stack, count * sizeof(uint32_t)),
                                       sites_stack_same, &key, r->site_count, &added);
    if (!site)
        read->error = -ENOMEM;
    if (!site || !added)
        return site ? *site : 0;
    r->sites[r->site_count++] =
        (struct gp_rec_site){.first_frame = r->frame_count, .frame_count = count, .kind = GP_KIND_LINEAR};
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_torch_frame *frame = &sites->frames[stack[i]];
        r->frames[r->frame_count++] = (struct gp_rec_frame){.function = frame->function,
                                                            .file = frame->file,
                                                            .line = frame->line,
                                                            .module = GP_REC_NONE,
                                                            .named = frame->native};
    }
    return *site;
}

static bool sites_room(struct gp_read *read, struct gp_torch_sites *sites, uint32_t count)
{
    return GP_READ_ROOM(read, sites->stacks, sites->stack_room, read->recording->frame_count + (size_t)count,
                        2 * (size_t)GP_READ_ROWS);
}

uint32_t gp_torch_site(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_pickle *frames,
                       const struct gp_pickle *label)
{
    uint32_t count = gp_pickle_count(frames), kept = 0;
    bool added, labelled = label && label->type == GP_PICKLE_TEXT && label->length;
    if ((!count && !labelled) || read->error)
        return 0;
    uint64_t place = count ? sites_place(frames->items) : 0;
    uint32_t length = labelled && label->length < GP_TORCH_TEXT ? label->length : labelled ? GP_TORCH_TEXT - 1 : 0;
    uint64_t hash = labelled ? place ^ gp_hash_of_bytes(label->text, length) : place;
    uint32_t *known = gp_hash_add(&sites->by_list, hash, NULL, NULL, 0, &added);
    if (known && !added)
        return *known;
    count = count < GP_TORCH_FRAMES ? count : GP_TORCH_FRAMES;
    if (!known)
        read->error = -ENOMEM;
    if (!known || !sites_room(read, sites, count + 1))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_pickle *frame = gp_pickle_at(frames, i);
        if (frame->type == GP_PICKLE_DICT)
            sites->stacks[read->recording->frame_count + kept++] = sites_frame(read, sites, frame);
    }
    if (labelled) {
        struct gp_torch_frame frame = {.function = sites_text(read, sites, label->text, length)};
        sites->stacks[read->recording->frame_count + kept++] = sites_frame_number(read, sites, frame);
    }
    uint32_t site = kept && !read->error ? sites_stack(read, sites, kept) : 0;
    if (site && gp_pickle_count(frames) > count)
        read->recording->sites[site].truncated = true;
    return *known = site;
}

uint32_t gp_torch_site_named(struct gp_read *read, struct gp_torch_sites *sites, const char *name)
{
    struct gp_torch_frame frame = {.function = sites_text(read, sites, name, (uint32_t)strlen(name))};
    uint32_t number = sites_frame_number(read, sites, frame);
    if (read->error || !sites_room(read, sites, 1))
        return 0;
    sites->stacks[read->recording->frame_count] = number;
    return sites_stack(read, sites, 1);
}

uint32_t gp_torch_frame(struct gp_read *read, struct gp_torch_sites *sites, const struct gp_torch_text *function,
                        const struct gp_torch_text *file, uint32_t line, bool native)
{
    struct gp_torch_frame frame = {.function = sites_text(read, sites, function->at, function->length),
                                   .file = sites_text(read, sites, file->at, file->length),
                                   .line = line,
                                   .native = native};
    return read->error ? 0 : sites_frame_number(read, sites, frame);
}

uint32_t gp_torch_stack(struct gp_read *read, struct gp_torch_sites *sites, const uint32_t *frames, uint32_t count)
{
    if (!count || read->error || !sites_room(read, sites, count))
        return 0;
    memcpy(sites->stacks + read->recording->frame_count, frames, count * sizeof(*frames));
    return sites_stack(read, sites, count);
}

void gp_torch_sites_free(struct gp_torch_sites *sites)
{
    struct gp_hash *maps[] = {&sites->by_list, &sites->by_frame, &sites->by_name, &sites->by_stack, &sites->texts};
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
        gp_hash_free(maps[i]);
    free(sites->frames);
    free(sites->stacks);
}
