/* SPDX-License-Identifier: MIT
 * The ledger: the simulator's own account of the memory of the process, independent of every tool,
 * and its JSON form. Changed with the lock held by the files that own memory; written at exit
 * (GPUPROF_SIM_LEDGER, %p = pid) and by sim_ledger_write, which programs find with dlsym.  Never
 * consulted by the driver itself. */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_level {
    int64_t current, peak;
};
struct sim_account {
    struct sim_level reserved, allocated, kinds[SIM_KINDS];
    uint64_t calls[SIM_KINDS];        /* successful calls that added to the kind */
    struct sim_level live[SIM_KINDS]; /* how many of what they made are still there */
    int64_t contexts;
    uint64_t hazards;
};
/* Slot 0 is the host, slot d + 1 device d. */
static struct sim_account sim_accounts[SIM_MAX_DEVICES + 1];
static bool sim_disowned; /* forked child */

static const char *const sim_kind_names[SIM_KINDS] = {
#define SIM_KIND_NAME(_kind, _name) _name,
    SIM_KIND_ROWS(SIM_KIND_NAME)
#undef SIM_KIND_NAME
};

static void sim_level_add(struct sim_level *level, int64_t bytes)
{
    level->current += bytes;
    if (level->current > level->peak)
        level->peak = level->current;
}

void sim_ledger_adjust(int device, enum sim_kind kind, int64_t bytes)
{
    sim_level_add(&sim_accounts[device + 1].kinds[kind], bytes);
}

void sim_ledger_kind(int device, enum sim_kind kind, int64_t bytes)
{
    sim_ledger_adjust(device, kind, bytes);
    if (bytes > 0)
        sim_accounts[device + 1].calls[kind]++;
    sim_level_add(&sim_accounts[device + 1].live[kind], bytes > 0 ? 1 : -1);
}

void sim_ledger_reserved(int device, int64_t bytes)
{
    sim_level_add(&sim_accounts[device + 1].reserved, bytes);
}

void sim_ledger_allocated(int device, int64_t bytes)
{
    sim_level_add(&sim_accounts[device + 1].allocated, bytes);
}

void sim_ledger_owned(int device, enum sim_kind kind, int64_t bytes)
{
    sim_ledger_kind(device, kind, bytes);
    sim_ledger_reserved(device, bytes);
    sim_ledger_allocated(device, bytes);
}

void sim_ledger_contexts(int device, int change)
{
    sim_accounts[device + 1].contexts += change;
}

void sim_ledger_hazard(int device)
{
    sim_accounts[device + 1].hazards++;
}

void sim_ledger_forget(void)
{
    sim_disowned = true;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void sim_kinds_print(FILE *file, const struct sim_account *account)
{
    fputs("\"kinds\":{", file);
    for (int kind = 0; kind < SIM_KINDS; kind++)
        fprintf(file,
                "%s\"%s\":{\"current_bytes\":%" PRId64 ",\"peak_bytes\":%" PRId64 ",\"calls\":%" PRIu64
                ",\"live\":%" PRId64 ",\"live_peak\":%" PRId64 "}",
                kind ? "," : "", sim_kind_names[kind], account->kinds[kind].current, account->kinds[kind].peak,
                account->calls[kind], account->live[kind].current, account->live[kind].peak);
    fputc('}', file);
}

static void sim_calls_print(FILE *file, int device)
{
    const char *comma = "";
    fputs("\"driver_calls\":{", file);
    for (struct sim_entry *const *at = __start_sim_entries; at < __stop_sim_entries; at++) {
        uint64_t calls = __atomic_load_n(&(*at)->calls[device], __ATOMIC_RELAXED);
        if (calls == 0)
            continue;
        fprintf(file, "%s\"%s\":%" PRIu64, comma, (*at)->name, calls);
        comma = ",";
    }
    fputc('}', file);
}

static void sim_device_print(FILE *file, int device)
{
    const struct sim_account *account = &sim_accounts[device + 1];
    fprintf(file,
            "%s{\"device\":%d,\"reserved_bytes\":{\"current\":%" PRId64 ",\"peak\":%" PRId64
            "},\"allocated_bytes\":{\"current\":%" PRId64 ",\"peak\":%" PRId64 "},",
            device ? "," : "", device, account->reserved.current, account->reserved.peak, account->allocated.current,
            account->allocated.peak);
    sim_kinds_print(file, account);
    fputc(',', file);
    sim_calls_print(file, device);
    fprintf(file, ",\"contexts\":%" PRId64 ",\"hazards\":%" PRIu64 "}", account->contexts, account->hazards);
}

static void sim_ledger_print(FILE *file)
{
    fprintf(file, "{\"schema\":\"gpuprof.sim-ledger/1\",\"pid\":%d,\"simulated_ns\":%" PRIu64 ",\"devices\":[",
            (int)getpid(), sim_clock_now());
    for (int device = 0; device < sim_device_count; device++)
        sim_device_print(file, device);
    fputs("],\"host\":{", file);
    sim_kinds_print(file, &sim_accounts[0]);
    fputs("}}\n", file);
}

/* 0 or -errno.  A reader never sees half a file: it is written under another name and renamed.  Any
 * thread, no lock. */
/* For programs that look at many moments: allocated and reserved bytes of a device, each with its peak, which restarts. */
SIM_EXPORT void sim_ledger_levels(int device, int64_t out[4]);
void sim_ledger_levels(int device, int64_t out[4])
{
    if (device < 0 || device >= SIM_MAX_DEVICES)
        return;
    sim_lock();
    struct sim_account *account = &sim_accounts[device + 1];
    struct sim_level *levels[] = {&account->allocated, &account->reserved};
    for (int i = 0; i < 2; i++) {
        out[2 * i] = levels[i]->current;
        out[2 * i + 1] = levels[i]->peak;
        levels[i]->peak = levels[i]->current;
    }
    sim_unlock();
}

SIM_EXPORT int sim_ledger_write(const char *path);
int sim_ledger_write(const char *path)
{
    char *temporary;
    if (asprintf(&temporary, "%s.%d.tmp", path, (int)getpid()) < 0)
        return -ENOMEM;
    FILE *file = fopen(temporary, "we");
    int error = file ? 0 : -errno;
    if (file) {
        sim_lock();
        sim_ledger_print(file);
        sim_unlock();
        bool bad = ferror(file);
        if (fclose(file) != 0 || bad)
            error = -EIO;
        if (!error && rename(temporary, path) != 0)
            error = -errno;
        if (error)
            unlink(temporary);
    }
    free(temporary);
    return error;
}

/* The first %p of the pattern becomes the pid. */
static char *sim_ledger_path(const char *pattern)
{
    char *path;
    const char *pid = strstr(pattern, "%p");
    int length = pid ? asprintf(&path, "%.*s%d%s", (int)(pid - pattern), pattern, (int)getpid(), pid + 2)
                     : asprintf(&path, "%s", pattern);
    return length < 0 ? NULL : path;
}

__attribute__((destructor)) static void sim_ledger_exit(void)
{
    const char *pattern = secure_getenv("GPUPROF_SIM_LEDGER");
    if (!pattern || !*pattern || sim_disowned)
        return;
    char *path = sim_ledger_path(pattern);
    int error = path ? sim_ledger_write(path) : -ENOMEM;
    if (error)
        fprintf(stderr, "gpuprof: sim: GPUPROF_SIM_LEDGER: %s: %s; name a file in a writable folder\n",
                path ? path : pattern, strerror(-error));
    free(path);
}
