/* SPDX-License-Identifier: MIT
 *
 * loaded.c: reads a recording for analysis; see loaded.h.
 */
#include <common/loaded.h>
#include <common/messages.h>
#include <common/progress.h>
#include <common/values.h>

#include <errno.h>
#include <inttypes.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int gp_load_refused(const char *command, const char *path, int rc, const char *why)
{
    gp_error(command, "%s: %s", path, why[0] ? why : strerror(-rc));
    return GP_EXIT_FAILED;
}

void gp_load_warn(const char *command, const char *path, const struct gp_recording *recording)
{
    if (!recording->complete)
        gp_error(command, "%s: the recording is incomplete: it ends where its writer was killed", path);
    if (recording->ended_early)
        gp_error(command, "%s: the recording ends early, with %" PRIu64 " events missing: it could not be written: %s",
                 path, recording->unwritten, strerror(recording->write_error));
    if (gp_rec_missing(recording) || recording->damaged_blocks)
        gp_error(command,
                 "%s: %" PRIu64 " of %" PRIu64 " events were lost while it was recorded, and %" PRIu64
                 " of its blocks are damaged: sums of events are lower bounds, and blocks may be missing or appear to "
                 "live too long",
                 path, gp_rec_missing(recording), recording->tried, recording->damaged_blocks);
    if (recording->unseen_blocks || recording->unfreed_blocks)
        gp_error(command,
                 "%s: the trace lacks the allocation of %" PRIu64 " blocks and the free of %" PRIu64
                 ": each counts only where it is certain, so sums over time are lower bounds",
                 path, recording->unseen_blocks, recording->unfreed_blocks);
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

/* The paths that a process in a container reports are valid in its own mount namespace.  A
 * process in ours needs no prefix, and /proc/PID/root would be gone when it ends. */
void gp_load_root(char *root, size_t bytes, pid_t pid)
{
    char path[64], folder[GP_PROC_FOLDER];
    struct stat theirs, ours;
    snprintf(path, sizeof(path), "%s/ns/mnt", gp_proc_folder(pid, folder));
    if (stat(path, &theirs) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 && theirs.st_ino != ours.st_ino)
        snprintf(root, bytes, "%s/root", folder);
}

bool gp_load_join(struct gp_loaded *loaded)
{
    uint32_t count = loaded->recording->site_count, *to = calloc(count + 1ul, sizeof(*to));
    for (uint32_t i = 0; to && i < count; i++)
        to[i] = gp_symbols_twin(loaded->symbols, i);
    if (!to)
        return false;
    gp_recording_join(loaded->recording, to);
    free(to);
    return true;
}

static int load_moment(const char *command, const struct gp_recording *recording, const char *option, const char *text,
                       uint64_t *time_ns)
{
    char size[GP_SIZE_TEXT];
    int rc = text ? gp_recording_moment(recording, text, time_ns) : 0;
    if (rc == -ERANGE)
        gp_error(command, "--%s=%s: the recording is %s long", option, text,
                 gp_seconds_text(size, (double)(recording->end_ns - recording->begin_ns) / 1e9));
    else if (rc)
        gp_error(command, "--%s=%s: neither a time such as 2.5s or 350ms nor the name of a mark", option, text);
    return rc ? GP_EXIT_USAGE : GP_EXIT_OK;
}

int gp_load_cut(const char *command, struct gp_recording *recording, const struct gp_load_part *part)
{
    uint64_t from_ns = recording->begin_ns, to_ns = recording->end_ns;
    if (!part->from && !part->to)
        return GP_EXIT_OK;
    int rc = load_moment(command, recording, "from", part->from, &from_ns);
    if (!rc)
        rc = load_moment(command, recording, "to", part->to, &to_ns);
    if (rc)
        return rc;
    if (from_ns >= to_ns) {
        gp_error(command, "--from=%s is not before --to=%s", part->from ? part->from : "0s",
                 part->to ? part->to : "the end");
        return GP_EXIT_USAGE;
    }
    return gp_recording_cut(recording, from_ns, to_ns) ? gp_memory_error(command) : GP_EXIT_OK;
}

/* Lists the names that --step can take: those that repeat. */
static void load_names(const struct gp_recording *recording, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; used < bytes; i++) {
        struct gp_step_name name;
        if (!gp_steps_name(recording, i, &name))
            break;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s '%s' (%u times)", i ? ", " : "",
                                 name.nvtx ? "NVTX range" : "mark", name.name, name.count);
    }
}

int gp_load_steps(const char *command, const struct gp_recording *recording, const char *step, struct gp_steps **steps)
{
    char names[512];
    int rc = gp_steps_choose(recording, step, steps);
    if (rc == 0)
        return GP_EXIT_OK;
    if (rc == -ENOMEM)
        return gp_memory_error(command);
    load_names(recording, names, sizeof(names));
    if (rc == -ERANGE)
        gp_error(command, "--step=%s: this would be more than a million steps", step);
    else
        gp_error(command,
                 "--step=%s: no mark and no NVTX range of that name occurs twice, and it is no duration such as 350ms; "
                 "the recording has %s",
                 step, names[0] ? names : "no mark or range that repeats");
    return GP_EXIT_USAGE;
}

static int load_step(struct gp_loaded *loaded, const char *step)
{
    struct gp_steps *steps = NULL;
    int rc = gp_load_steps(loaded->command, loaded->recording, step, &steps);
    if (rc)
        return rc;
    free(loaded->report.steps);
    loaded->report.steps = steps;
    return GP_EXIT_OK;
}

int gp_load_recording(struct gp_loaded *loaded, struct gp_recording *recording, const char *path,
                      const struct gp_load_view *view)
{
    int rc = gp_load_cut(loaded->command, recording, &view->part);
    if (rc) {
        gp_recording_free(recording);
        return rc;
    }
    loaded->recording = recording;
    const struct gp_symbol_source source = gp_symbol_source_of(recording, loaded->root);
    int made = gp_symbols_new(&loaded->symbols, &source);
    if (!made)
        gp_symbols_look_below(loaded->symbols, view->symfs);
    if (made == 0 &&
        (view->plain ? gp_report_init_plain : gp_report_init)(&loaded->report, recording, loaded->symbols, path) == 0 &&
        (view->nameless || view->plain || gp_load_join(loaded))) {
        rc = view->step ? load_step(loaded, view->step) : GP_EXIT_OK;
        if (rc)
            gp_load_free(loaded);
        return rc;
    }
    gp_load_free(loaded);
    return gp_memory_error(loaded->command);
}

int gp_load_file(struct gp_loaded *loaded, const char *command, const char *path, const struct gp_load_view *view)
{
    struct gp_recording *recording = NULL;
    char why[256] = "";
    *loaded = (struct gp_loaded){.command = command};
    gp_progress_begin("reading the recording");
    int rc = gp_recording_open_as(&recording, path, view->listed, why, sizeof(why), gp_progress_listener, NULL);
    gp_progress_end();
    return rc ? gp_load_refused(command, path, rc, why) : gp_load_recording(loaded, recording, path, view);
}

bool gp_load_uses(struct gp_loaded *loaded)
{
    loaded->hints = gp_report_hints(&loaded->report);
    loaded->report.hints = loaded->hints;
    return loaded->hints;
}

void gp_load_free(struct gp_loaded *loaded)
{
    gp_load_unload(loaded, true);
}

void gp_load_unload(struct gp_loaded *loaded, bool notes)
{
    const char *note;
    for (uint32_t i = 0; notes && loaded->symbols && (note = gp_symbols_note(loaded->symbols, i)); i++)
        gp_error(loaded->command, "%s", note);
    gp_report_fini(&loaded->report);
    free(loaded->hints);
    gp_symbols_free(loaded->symbols);
    gp_recording_free(loaded->recording);
}
