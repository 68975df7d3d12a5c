/* SPDX-License-Identifier: MIT
 *
 * view_fixture.h: samples of made-up machines for the tests of tools/show/terminal, without a process or a
 * clock.
 */
#ifndef GP_TEST_UNIT_VIEW_FIXTURE_H
#define GP_TEST_UNIT_VIEW_FIXTURE_H

#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <show/terminal/draw.h>
#include <show/terminal/ui.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

static inline struct gp_system *fix_system(int gpus, uint64_t tick)
{
    struct gp_system *system = calloc(1, sizeof(*system));
    system->time_ns = 1000000000ull * (tick + 1);
    system->nvml = true;
    system->gpu_count = gpus;
    system->gpus = calloc((size_t)gpus + 1, sizeof(*system->gpus));
    for (int i = 0; i < gpus; i++) {
        struct gp_gpu *gpu = &system->gpus[i];
        gpu->index = i;
        snprintf(gpu->uuid, sizeof(gpu->uuid), "GPU-%08d", i);
        snprintf(gpu->name, sizeof(gpu->name), "Imaginary H200 NVL");
        gpu->total_bytes = (int64_t)(140 * GIB);
        gpu->used_bytes = (int64_t)(60 * GIB);
    }
    return system;
}

static inline struct gp_process *fix_process(struct gp_system *system, int pid, const char *command)
{
    system->processes = realloc(system->processes, (size_t)(system->process_count + 1) * sizeof(*system->processes));
    struct gp_process *process = &system->processes[system->process_count++];
    memset(process, 0, sizeof(*process));
    process->pid = pid;
    process->start_time = 5000 + (uint64_t)pid;
    process->uid = 1000;
    snprintf(process->comm, sizeof(process->comm), "%.15s", command);
    snprintf(process->cmdline, sizeof(process->cmdline), "%s", command);
    snprintf(process->user, sizeof(process->user), "ada");
    snprintf(process->allocator, sizeof(process->allocator), "off");
    process->state = GP_PROCESS_LIVE;
    process->source = GP_SOURCE_CUPTI;
    process->publish_ns = system->time_ns;
    return process;
}

static inline void fix_value(struct gp_device_view *view, int stat, double current, double peak)
{
    struct gp_wire_value *value = &view->wire.stats[stat][GP_POOL_ALL];
    value->current = (int64_t)current;
    value->peak = (int64_t)peak;
}

static inline struct gp_device_view *fix_device(struct gp_system *system, struct gp_process *process, int gpu,
                                                double allocated, double peak, double reserved, double rpeak)
{
    process->devices = realloc(process->devices, (size_t)(process->device_count + 1) * sizeof(*process->devices));
    struct gp_device_view *view = &process->devices[process->device_count];
    memset(view, 0, sizeof(*view));
    view->index = gpu == GP_MODEL_HOST ? (int)GP_WIRE_HOST : process->device_count;
    view->ordinal = gpu == GP_MODEL_HOST ? -1 : gpu;
    view->identified = true;
    view->total_bytes = -1;
    if (gpu >= 0) {
        memcpy(view->uuid, system->gpus[gpu].uuid, sizeof(view->uuid));
        memcpy(view->name, system->gpus[gpu].name, sizeof(view->name));
        view->total_bytes = system->gpus[gpu].total_bytes;
    }
    view->untracked_bytes = (int64_t)(0.5 * GIB);
    fix_value(view, GP_STAT_ALLOCATED_BYTES, allocated * GIB, peak * GIB);
    fix_value(view, GP_STAT_RESERVED_BYTES, reserved * GIB, rpeak * GIB);
    struct gp_wire_value *count = &view->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL];
    count->allocated = (int64_t)(system->time_ns / 1000000); /* 1000 per second */
    count->freed = count->allocated / 2;
    struct gp_wire_kind_value *kind = &view->wire.kinds[gpu >= 0 ? GP_KIND_LINEAR : GP_KIND_PINNED];
    *kind = (struct gp_wire_kind_value){.current_bytes = (int64_t)(allocated * GIB),
                                        .peak_bytes = (int64_t)(peak * GIB),
                                        .live = 1234,
                                        .live_peak = 1300,
                                        .calls = 56789,
                                        .reserved_bytes = -1};
    process->device_count++;
    return view;
}

/* One of each thing that the viewer shows. */
static inline struct gp_system *fix_typical(uint64_t tick)
{
    struct gp_system *system = fix_system(2, tick);
    double wave = (double)(tick % 8);
    struct gp_process *process = fix_process(system, 4242, "python3 train.py --epochs 90 --batch 256");
    snprintf(process->container, sizeof(process->container), "4f1d2c3b5a69");
    fix_device(system, process, 0, 20 + wave, 31.5, 33, 40);
    fix_device(system, process, 1, 12, 18 + wave, 16, 20)->estimated = true;
    fix_device(system, process, GP_MODEL_HOST, 1.5, 2, 1.5, 2);
    process->scope_count = 1;
    snprintf(process->scopes[0].name, sizeof(process->scopes[0].name), "epoch");
    process->failure_count = 1;
    snprintf(process->failures[0].api, sizeof(process->failures[0].api), "cuMemAlloc_v2");
    process->failures[0].error = 2;
    process->failures[0].count = 3;
    process = fix_process(system, 77, "serve --model \xe5\xa4\xa7\xe6\xa8\xa1\xe5\x9e\x8b caf\xc3\xa9");
    fix_device(system, process, 0, 4, 6, 4, 6);
    process->lost[GP_LOST_RING] = 12;
    process->lost[GP_LOST_UNKNOWN_FREE] = 1;
    process = fix_process(system, 1001, "stopped");
    fix_device(system, process, 1, 2, 2, 2, 2);
    process->state = GP_PROCESS_STALE;
    process->publish_ns = 1;
    process->age_ns = 93000000000ull;
    process = fix_process(system, 1002, "broken");
    process->state = GP_PROCESS_DAMAGED;
    snprintf(process->problem, sizeof(process->problem), "devices_offset 4294967295 lies outside of the session");
    process = fix_process(system, 1003, "Xorg");
    process->state = GP_PROCESS_FOREIGN;
    fix_device(system, process, 0, 0, 0, 0, 0);
    process = fix_process(system, 1004, "starting");
    process->state = GP_PROCESS_UNKNOWN;
    return system;
}

/* One owner's bytes in GiB; the row is added if the table has none of that name. */
static inline void fix_owner(struct gp_process *process, struct gp_device_view *view, const char *owner,
                             const char *library, double allocated, double reserved)
{
    int row = 0;
    while (row < process->owner_count && strcmp(process->owners[row].owner, owner) != 0)
        row++;
    if (row == process->owner_count) {
        process->owner_count++;
        snprintf(process->owners[row].owner, sizeof(process->owners[row].owner), "%s", owner);
        snprintf(process->owners[row].library, sizeof(process->owners[row].library), "%s", library);
    }
    view->owners[row] = (struct gp_wire_owner_value){
        .reserved_bytes = (int64_t)(reserved * GIB),
        .reserved_peak_bytes = (int64_t)(reserved * GIB) + 1024,
        .allocated_bytes = (int64_t)(allocated * GIB),
        .allocated_peak_bytes = (int64_t)(allocated * GIB) + 2048,
        .live = 10 + row,
    };
}

/* Two processes with PyTorch, of which one also has NCCL and 2 GiB of no single library. */
static inline struct gp_system *fix_owned(uint64_t tick)
{
    struct gp_system *system = fix_system(1, tick);
    struct gp_process *process = fix_process(system, 4242, "python3 train.py");
    struct gp_device_view *view = fix_device(system, process, 0, 20, 31.5, 33, 40);
    fix_owner(process, view, "unknown", "", 0, 0);
    process->devices[0].owners[0] = (struct gp_wire_owner_value){0};
    fix_owner(process, view, "pytorch", "libc10_cuda.so", 16, 27);
    fix_owner(process, view, "nccl", "libnccl.so.2", 3, 3);
    fix_owner(process, view, "program", "", 1, 1);
    view->framework = (struct gp_wire_framework){
        .name = "pytorch", .blocks = 812, .segments = 31, .events = 90000, .private_bytes = (int64_t)(6 * GIB)};
    process = fix_process(system, 77, "python3 serve.py");
    view = fix_device(system, process, 0, 4, 6, 4, 6);
    fix_owner(process, view, "pytorch", "libc10_cuda.so", 4, 4);
    view->framework = (struct gp_wire_framework){
        .name = "pytorch", .blocks = 5, .segments = 2, .events = 1000, .allocated_differs = 7, .reserved_differs = 1};
    process = fix_process(system, 78, "ray::PolicyTrainer.step");
    strcpy(process->ray_job, "0100002a");
    view = fix_device(system, process, 0, 2, 2, 2, 2);
    view->heaps = (struct gp_wire_framework){.name = "nvtx", .blocks = 3, .segments = 1, .events = 3};
    process->publish_ns = 5000000000;
    process->doors = (struct gp_wire_doors){
        .row_count = 3,
        .rows = {{.door = 1,
                  .time_ns = 4500000000,
                  .allocated_bytes = 24 << 20,
                  .allocated_peak_bytes = 44 << 20,
                  .reserved_bytes = -1,
                  .limit_bytes = (int64_t)(12 * GIB)},
                 {.device = 1, .pieces = 9},
                 {.pieces = 533, .pools = 6, .allocated_bytes = (int64_t)GIB, .reserved_bytes = (int64_t)(1.5 * GIB)}},
        .door_count = 2,
        .doors = {{.name = "rmm"}, {.name = "xla"}}};
    return system;
}

static inline struct gp_system *fix_crowd(uint64_t tick)
{
    struct gp_system *system = fix_system(11, tick);
    for (int i = 0; i < 100; i++) {
        char command[64];
        snprintf(command, sizeof(command), "worker --rank %d", i);
        struct gp_process *process = fix_process(system, 10000 + i, command);
        fix_device(system, process, i % 11, i * 0.1, i * 0.11, i * 0.12, i * 0.13);
    }
    return system;
}

static inline struct gp_system *fix_empty(uint64_t tick)
{
    struct gp_system *system = fix_system(0, tick);
    system->nvml = false;
    system->denied_count = 3;
    return system;
}

/* Values that the reader accepts and that must not break a frame: empty names, huge numbers,
 * combining and wide characters. */
static inline struct gp_system *fix_odd(uint64_t tick)
{
    struct gp_system *system = fix_system(1, tick);
    system->gpus[0].name[0] = '\0';
    system->gpus[0].total_bytes = system->gpus[0].used_bytes = -1;
    struct gp_process *process = fix_process(system, 2147483647, "");
    fix_device(system, process, 0, 8e9, 8e9, 0, 8e9)->uuid[0] = '\0';
    memset(process->user, 'u', sizeof(process->user) - 1);
    for (int i = 0; i < 60; i++)
        strcat(process->cmdline, i % 3 ? "\xe6\xa8\xa1" : "e\xcc\x81");
    process->lost[GP_LOST_MAP] = UINT64_MAX / 2;
    memset(process->options, 'o', sizeof(process->options) - 1);
    process->scope_count = GP_WIRE_SCOPES;
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++)
        memset(process->scopes[i].name, 's', sizeof(process->scopes[i].name) - 1);
    return system;
}

typedef struct gp_system *(*fix_maker_fn)(uint64_t tick);

static const struct fix_machine {
    const char *name;
    fix_maker_fn make;
} fix_machines[] = {{"empty", fix_empty}, {"typical", fix_typical}, {"crowd", fix_crowd}, {"odd", fix_odd}};

struct fix_view {
    struct gp_model model;
    struct gp_row_list list;
    struct gp_ui ui;
};

static inline void fix_rows(struct fix_view *view)
{
    cr_assert_eq(gp_rows_build(&view->model, &view->ui, &view->list), 0);
    gp_ui_settle(&view->ui, &view->list, view->ui.page);
}

static inline void fix_open(struct fix_view *view, fix_maker_fn make, int samples)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    memset(view, 0, sizeof(*view));
    gp_model_init(&view->model);
    gp_ui_init(&view->ui);
    for (int i = 0; i < samples; i++)
        cr_assert_eq(gp_model_update(&view->model, make((uint64_t)i)), 0);
    if (samples)
        fix_rows(view);
}

static inline void fix_close(struct fix_view *view)
{
    gp_rows_fini(&view->list);
    gp_model_fini(&view->model);
}

static inline enum gp_action fix_key(struct fix_view *view, int key)
{
    enum gp_action action = gp_ui_key(&view->ui, &view->model, &view->list, key);
    fix_rows(view);
    return action;
}

static inline void fix_draw(struct fix_view *view, struct gp_grid *grid)
{
    struct gp_draw draw = {grid, &view->model, &view->list, &view->ui};
    for (int i = 0; i < 2; i++)
        gp_ui_settle(&view->ui, &view->list, gp_draw_layout(&draw).table.h);
    gp_draw_frame(&draw);
}

/* Writes line y as text without trailing blanks.  Returns its bytes. */
static inline size_t fix_line(const struct gp_grid *grid, int y, char *out, size_t out_bytes)
{
    size_t used = 0, kept = 0;
    for (int x = 0; x < grid->cols; x++) {
        for (const char *glyph = gp_grid_at(grid, y, x)->glyph; *glyph; glyph++) {
            cr_assert_lt(used + 1, out_bytes);
            out[used++] = *glyph;
            kept = *glyph == ' ' ? kept : used;
        }
    }
    out[kept] = '\0';
    return kept;
}

static inline const struct gp_row *fix_row(const struct gp_row_list *list, int pid, int device)
{
    for (int i = 0; i < list->count; i++) {
        if (list->rows[i].id.pid == pid && list->rows[i].id.device == device)
            return &list->rows[i];
    }
    return NULL;
}

#endif
