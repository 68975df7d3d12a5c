/* SPDX-License-Identifier: MIT
 * recordnames.c: adds to a recording what was called at its native frames, so that it can be read where
 * the program's files are not.  Called by record.c and run.c, when the recording has ended.
 *
 * The names are blocks behind the index: until they are written, the file is the recording that it was.
 */
#include <common/messages.h>
#include <record/file.h>
#include <run/recorded.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A full payload of text packs no better than this much of it. */
#define GP_NAMES_BYTES (1u << 20)

struct gp_name_writer {
    struct gp_file *file;
    struct gp_pack *pack;
    uint32_t rows; /* in the pack */
    uint64_t all;
    int error;
};

static int names_compare(const void *one, const void *other, void *arg)
{
    const struct gp_rec_frame *frames = arg, *a = &frames[*(const uint32_t *)one],
                              *b = &frames[*(const uint32_t *)other];
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    return a->pc < b->pc ? -1 : a->pc > b->pc;
}

/* One frame of each address of a module; from malloc.  NULL: out of memory. */
static uint32_t *names_frames(const struct gp_recording *recording, uint32_t *count)
{
    uint32_t *frames = malloc((recording->frame_count + 1ul) * sizeof(*frames)), all = 0, kept = 0;
    for (uint32_t i = 0; frames && i < recording->frame_count; i++)
        if (recording->frames[i].pc)
            frames[all++] = i;
    if (all)
        qsort_r(frames, all, sizeof(*frames), names_compare, recording->frames);
    for (uint32_t i = 0; i < all; i++)
        if (!kept || names_compare(&frames[kept - 1], &frames[i], recording->frames) != 0)
            frames[kept++] = frames[i];
    *count = kept;
    return frames;
}

static void names_flush(struct gp_name_writer *names)
{
    if (names->rows && !names->error)
        names->error = gp_file_block(names->file, GP_BLOCK_NAMES, names->rows, false);
    names->all += names->rows;
    names->rows = 0;
    names->pack = gp_file_pack(names->file);
}

static void names_add(struct gp_name_writer *names, uint32_t frame, const struct gp_frame_text *calls, uint32_t count)
{
    gp_pack_number(names->pack, frame);
    gp_pack_number(names->pack, count);
    for (uint32_t i = 0; i < count; i++) {
        gp_pack_string(names->pack, calls[i].function, strlen(calls[i].function));
        gp_pack_string(names->pack, calls[i].file, strlen(calls[i].file));
        gp_pack_number(names->pack, calls[i].line);
    }
    names->rows++;
    if (gp_pack_bytes(names->pack) > GP_NAMES_BYTES)
        names_flush(names);
}

static int names_write(struct gp_name_writer *names, const struct gp_recording *recording, struct gp_symbols *symbols)
{
    const struct gp_frame_text *calls;
    uint32_t count, *frames = names_frames(recording, &count);
    if (!frames)
        return -ENOMEM;
    names->pack = gp_file_pack(names->file);
    for (uint32_t i = 0; i < count && !names->error; i++) {
        uint32_t found = gp_symbols_calls(symbols, &recording->frames[frames[i]], &calls);
        if (found)
            names_add(names, frames[i], calls, found);
    }
    names_flush(names);
    free(frames);
    return names->error;
}

/* Takes over the descriptor. */
static int names_append(const char *command, int fd, const struct gp_recording *recording, const char *root,
                        struct gp_name_writer *names)
{
    const struct gp_symbol_source source = gp_symbol_source_of(recording, root);
    struct gp_symbols *symbols;
    const char *note;
    int rc = gp_symbols_new(&symbols, &source);
    if (rc) {
        close(fd);
        return rc;
    }
    rc = gp_file_resume(&names->file, fd);
    if (!rc) {
        rc = names_write(names, recording, symbols);
        int end = gp_file_end(names->file);
        rc = rc ? rc : end;
    }
    for (uint32_t i = 0; (note = gp_symbols_note(symbols, i)); i++)
        gp_error(command, "%s", note);
    gp_symbols_free(symbols);
    return rc;
}

int gp_recorded_names(const char *command, const char *path, const char *root)
{
    struct gp_recording *recording = NULL;
    struct gp_name_writer names = {0};
    struct stat there;
    char why[256] = "", opened[32];
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    int rc = fd < 0 || fstat(fd, &there) != 0 ? -errno : S_ISREG(there.st_mode) ? 0 : -EINVAL;
    if (!rc) { /* the file that was opened, whatever has its name by now */
        snprintf(opened, sizeof(opened), "/proc/self/fd/%d", fd);
        rc = gp_recording_open(&recording, opened, why, sizeof(why), NULL, NULL);
    }
    if (!rc && (recording->from_torch || recording->from_rmm))
        rc = -EINVAL;
    if (!rc)
        rc = names_append(command, fd, recording, root, &names);
    else if (fd >= 0)
        close(fd);
    gp_recording_free(recording);
    if (rc) {
        gp_error(command, "--symbols: %s: has no names of native functions: %s", path, why[0] ? why : strerror(-rc));
        return GP_EXIT_FAILED;
    }
    fprintf(stderr, "gpuprof: %s: %s: has the names of %" PRIu64 " addresses: it can be read on any machine\n", command,
            path, names.all);
    return GP_EXIT_OK;
}
