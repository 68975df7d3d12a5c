/* SPDX-License-Identifier: MIT
 *
 * bench_export.c: time, memory and size of each format: bench_export [EVENTS [FOLDER]].  TSV: name,
 * events, seconds, MB of memory beyond the recording, MB written.  Every format in a process of its
 * own, so that its memory is its own; files stay in FOLDER if one is named. */
#include <base/clock.h>
#include <convert/export/arrow.h>
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <gpuprof/wire.h>
#include <lib/recmake.h>
#include <lib/recsave.h>
#include <read/recording/recording.h>
#include <symbol/symbol.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BENCH_SITES 2000u
#define BENCH_LIVE  20000u /* blocks at once: a large model's */

static uint64_t seed = 1;

static uint32_t chance(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

static uint32_t bench_site(struct recmake *make, unsigned n)
{
    char names[16][32];
    struct recmake_frame frames[17] = {0};
    for (unsigned i = 0; i < 16; i++) {
        snprintf(names[i], sizeof(names[i]), "function_%u", i < 3 ? n : (n >> i) + i);
        frames[i] = (struct recmake_frame){names[i], "/srv/model/layers/attention.py", 10 + n % 97};
    }
    return recmake_site(make, GP_KIND_LINEAR, frames);
}

static struct gp_recording *bench_recording(size_t events)
{
    struct recmake *make = recmake_new(80ll << 30);
    struct gp_rec_event *live = calloc(BENCH_LIVE, sizeof(*live)), event;
    for (unsigned i = 0; i < BENCH_SITES; i++)
        bench_site(make, i);
    for (size_t i = 0; i < events; i++) {
        struct gp_rec_event *slot = &live[chance(BENCH_LIVE)];
        event = *slot;
        event.type = GP_EVENT_FREE;
        if (!slot->bytes)
            event = (struct gp_rec_event){.address = 0x7f0000000000ull + (uint64_t)(slot - live) * (64 << 20),
                                          .bytes = 512ull << chance(15),
                                          .site = 1 + chance(BENCH_SITES),
                                          .type = GP_EVENT_ALLOC,
                                          .kind = GP_KIND_LINEAR};
        *slot = slot->bytes ? (struct gp_rec_event){0} : event;
        event.time_ns = 1000000000ull + i * 1000;
        recmake_event(make, &event);
    }
    free(live);
    recmake_at(make, 1000000000ull + events * 1000);
    return recmake_done(make);
}

static long bench_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static int bench_write(struct gp_export *export, const struct gp_export_format *format, const char *path)
{
    static struct gp_out out;
    if (format->create)
        return format->create(export, path);
    gp_out_begin(&out, open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    int rc = format->write(export, &out), end = gp_out_end(&out);
    return rc ? rc : end;
}

static void bench_format(const struct gp_recording *recording, const struct gp_export_format *format, const char *path)
{
    struct gp_symbol_source source = gp_symbol_source_of(recording, "");
    const struct gp_arrow_job job = {.name = "bench", .file = "recording.gpuprof"};
    struct gp_export export = {
        .recording = recording, .job = &job, .weight = GP_EXPORT_PEAK, .block_limit = GP_EXPORT_BLOCKS};
    struct stat st = {0};
    /* maxrss of a forked child begins with what its parent had. */
    long before = bench_memory();
    uint64_t begin = gp_clock_ns();
    if (gp_symbols_new(&export.symbols, &source) != 0 || bench_write(&export, format, path) != 0)
        _exit(1);
    double seconds = (double)(gp_clock_ns() - begin) / 1e9;
    stat(path, &st);
    printf("export.%s\t%zu\t%.2f\t%ld\t%.1f\n", format->name, recording->event_count, seconds,
           (bench_memory() - before) / 1024, (double)st.st_size / 1e6);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    size_t events = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    char folder[64] = "/tmp/gp-bench-export.XXXXXX", path[4200];
    const char *where = argc > 2 ? argv[2] : mkdtemp(folder);
    struct gp_recording *recording = bench_recording(events);
    int failed = !where;
    if (argc > 2) {
        snprintf(path, sizeof(path), "%s/recording.gpuprof", where);
        failed |= recsave(recording, path) != 0;
    }
    printf("name\tevents\tseconds\tMB memory\tMB file\n");
    fflush(stdout);
    for (unsigned i = 0; where && gp_export_format_at(i); i++) {
        snprintf(path, sizeof(path), "%s/out.%s", where, gp_export_format_at(i)->name);
        unlink(path);
        pid_t pid = fork();
        if (pid == 0)
            bench_format(recording, gp_export_format_at(i), path);
        int status = 1;
        waitpid(pid, &status, 0);
        failed |= status;
        if (argc <= 2)
            unlink(path);
    }
    if (where == folder)
        rmdir(folder);
    gp_recording_free(recording);
    return failed != 0;
}
