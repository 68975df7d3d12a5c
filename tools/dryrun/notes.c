/* SPDX-License-Identifier: MIT
 *
 * notes.c: what the libraries that stand in for NVIDIA's say of a run; see job.h. What they write
 * is checked like any other input.
 */
#include <base/text.h>
#include <common/messages.h>
#include <dryrun/dryrun.h>
#include <dryrun/job.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/intern.h>

#define GP_JOB_MESSAGES 64u
#define GP_JOB_NOTES    256u       /* different ones */
#define GP_JOB_NOTE_MAX (1u << 20) /* bytes of the file that are read */

/* "TOKENS REQUEST HUNDREDTHS".  A server that starts names its cache once for each worker, and takes the smallest. */
static void note_cache(struct gp_dryrun_run *run, const char *pid, const char *server, char *text)
{
    struct gp_dryrun_cache cache = {.pid = (uint32_t)strtoul(pid, NULL, 10), .count = 1};
    int64_t *numbers[] = {&cache.tokens, &cache.request_tokens, &cache.hundredths};
    for (size_t i = 0; i < GP_COUNT(numbers); i++) {
        const char *word = strsep(&text, " ");
        if (!word || !word[0] || strlen(word) > 15 || word[strspn(word, "0123456789")])
            return;
        *numbers[i] = strtoll(word, NULL, 10);
    }
    if (text || !cache.tokens || !cache.request_tokens)
        return;
    gp_text_clean(cache.server, sizeof(cache.server), server, strlen(server));
    for (uint32_t i = 0; i < run->cache_count; i++)
        if (run->caches[i].pid == cache.pid && run->caches[i].request_tokens == cache.request_tokens) {
            if (cache.tokens < run->caches[i].tokens)
                run->caches[i] = cache;
            return;
        }
    if (run->cache_count < GP_JOB_NOTES)
        run->caches[run->cache_count++] = cache;
}

/* Servers that say the same are one row. */
static bool note_caches(struct gp_dryrun_run *run)
{
    struct gp_dryrun_cache *all = run->caches;
    const uint32_t count = run->cache_count;
    bool ok = true;
    run->caches = NULL;
    run->cache_count = 0;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = gp_dryrun_cache_add(run, &all[i]);
    free(all);
    return ok;
}

/* A text that ends with the name of a kernel in C++ gets the name of its source. */
static void note_kernel(char *text, size_t bytes)
{
    char name[64];
    char *mangled = strstr(text, " _Z");
    const size_t at = mangled ? (size_t)(mangled - text) : 0;
    if (mangled && gp_demangle(mangled + 1, name, sizeof(name)))
        snprintf(text + at, bytes - at, " %s%s", name, strlen(name) == sizeof(name) - 1 ? "..." : "");
}

/* A line "PID<TAB>LIBRARY<TAB>KIND<TAB>TEXT". */
static void note_line(struct gp_dryrun_run *run, char *line)
{
    static const char *const kinds[] = {"loaded", "assumed", "unsupported"};
    struct gp_dryrun_note note = {.count = 1};
    char *fields[4];
    bool known = false;
    for (unsigned i = 0; i < 4; i++)
        if (!(fields[i] = strsep(&line, "\t")) || !fields[i][0])
            return;
    for (size_t i = 0; i < GP_COUNT(kinds); i++)
        known |= strcmp(fields[2], kinds[i]) == 0;
    if (line || fields[0][strspn(fields[0], "0123456789")])
        return;
    if (strcmp(fields[2], "cache") == 0)
        note_cache(run, fields[0], fields[1], fields[3]);
    if (!known)
        return;
    gp_text_clean(note.library, sizeof(note.library), fields[1], strlen(fields[1]));
    gp_text_clean(note.kind, sizeof(note.kind), fields[2], strlen(fields[2]));
    note_kernel(fields[3], strlen(fields[3]) + 1);
    gp_text_clean(note.text, sizeof(note.text), fields[3], strlen(fields[3]));
    for (uint32_t i = 0; i < run->note_count; i++) {
        struct gp_dryrun_note *other = &run->notes[i];
        if (strcmp(note.library, other->library) == 0 && strcmp(note.kind, other->kind) == 0 &&
            strcmp(note.text, other->text) == 0) {
            other->count++;
            return;
        }
    }
    if (run->note_count < GP_JOB_NOTES)
        run->notes[run->note_count++] = note;
}

int gp_dryrun_notes(struct gp_dryrun_run *run, const char *path)
{
    char *text, *line;
    run->notes = calloc(GP_JOB_NOTES, sizeof(*run->notes));
    run->caches = calloc(GP_JOB_NOTES, sizeof(*run->caches));
    if (!run->notes || !run->caches || !gp_dryrun_text(path, GP_JOB_NOTE_MAX, &text))
        return gp_memory_error("dryrun");
    char *rest = text;
    while ((line = strsep(&rest, "\n")))
        note_line(run, line);
    free(text);
    return note_caches(run) ? GP_EXIT_OK : gp_memory_error("dryrun");
}

int gp_dryrun_messages(struct gp_dryrun_run *run, const char *path)
{
    char *text, *line;
    run->messages = calloc(GP_JOB_MESSAGES, sizeof(*run->messages));
    if (!run->messages || !gp_dryrun_text(path, GP_JOB_NOTE_MAX, &text))
        return gp_memory_error("dryrun");
    char *rest = text;
    while ((line = strsep(&rest, "\n")) && run->message_count < GP_JOB_MESSAGES)
        if (*line)
            gp_text_clean(run->messages[run->message_count++].text, sizeof(run->messages->text), line, strlen(line));
    free(text);
    return GP_EXIT_OK;
}
