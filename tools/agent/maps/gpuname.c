/* SPDX-License-Identifier: MIT
 * gpuname.c: see gpuname.h. */
#include <agent/maps/gpuname.h>

#include <agent/maps/maps.h>
#include <base/compiler.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define GP_GPU_FILES "/proc/driver/nvidia/gpus"

static struct gp_gpu_name {
    char uuid[sizeof(((struct gp_gpu *)0)->uuid)], name[sizeof(((struct gp_gpu *)0)->name)];
} names[GP_MAPS_DEVICES];
static int name_count;
static bool files_read;
static unsigned turn; /* which process is asked next: the first one may be unreadable */

static const char *name_find(const char *uuid)
{
    for (int i = 0; i < name_count; i++) {
        if (strcmp(names[i].uuid, uuid) == 0)
            return names[i].name;
    }
    return NULL;
}

static void name_add(const char *uuid, const char *name)
{
    if (!uuid[0] || !name[0] || name_find(uuid) || name_count == (int)GP_COUNT(names))
        return;
    struct gp_gpu_name *one = &names[name_count++];
    snprintf(one->uuid, sizeof(one->uuid), "%s", uuid);
    snprintf(one->name, sizeof(one->name), "%s", name);
}

/* The value of a line "Model: \t\t NVIDIA H200"; NULL: the line has another name. */
static const char *name_value(char *line, const char *label)
{
    size_t length = strlen(label);
    if (strncmp(line, label, length) != 0)
        return NULL;
    line[strcspn(line, "\r\n")] = '\0';
    return line + length + strspn(line + length, " \t");
}

static void name_read_file(const char *path)
{
    char line[256], uuid[sizeof(names[0].uuid)] = "", name[sizeof(names[0].name)] = "";
    const char *value;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if ((value = name_value(line, "Model:")))
            snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, value);
        else if ((value = name_value(line, "GPU UUID:")))
            snprintf(uuid, sizeof(uuid), "%.*s", (int)sizeof(uuid) - 1, value);
    }
    if (file)
        fclose(file);
    name_add(uuid, name);
}

static void name_read_files(void)
{
    char path[512];
    struct dirent *entry;
    DIR *folder = opendir(GP_GPU_FILES);
    while (folder && (entry = readdir(folder))) {
        snprintf(path, sizeof(path), GP_GPU_FILES "/%s/information", entry->d_name);
        if (entry->d_name[0] != '.')
            name_read_file(path);
    }
    if (folder)
        closedir(folder);
}

static void name_learn(const struct gp_system *system)
{
    for (int i = 0; i < system->process_count; i++) {
        for (int d = 0; d < system->processes[i].device_count; d++)
            name_add(system->processes[i].devices[d].uuid, system->processes[i].devices[d].name);
    }
}

/* Reads the session of one of the processes that use the GPU; another one with each call. */
static void name_ask(const struct gp_system *system, const char *uuid)
{
    pid_t users[64];
    unsigned count = 0;
    for (int i = 0; i < system->process_count && count < GP_COUNT(users); i++) {
        const struct gp_process *process = &system->processes[i];
        for (int d = 0; d < process->device_count && process->from_agent && !process->closed; d++) {
            if (strcmp(process->devices[d].uuid, uuid) == 0) {
                users[count++] = process->pid;
                break;
            }
        }
    }
    if (!count)
        return;
    struct gp_collect_options options = {.pids = &users[turn++ % count], .pid_count = 1};
    struct gp_system *asked;
    if (gp_collect(&options, &asked) != 0)
        return;
    name_learn(asked);
    gp_system_free(asked);
}

void gp_gpu_names(struct gp_system *system)
{
    if (!files_read)
        name_read_files();
    files_read = true;
    name_learn(system);
    for (int i = 0; i < system->gpu_count; i++) {
        struct gp_gpu *gpu = &system->gpus[i];
        if (gpu->name[0] || !gpu->uuid[0])
            continue;
        if (!name_find(gpu->uuid))
            name_ask(system, gpu->uuid);
        const char *name = name_find(gpu->uuid);
        if (name)
            snprintf(gpu->name, sizeof(gpu->name), "%s", name);
    }
}
