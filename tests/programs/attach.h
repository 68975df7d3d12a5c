/* SPDX-License-Identifier: MIT
 *
 * attach.h: attaches gpuprof to the program itself, as a tracer would from outside, and detaches it
 * through its session's mailbox, as a viewer does.
 */
#ifndef GP_TEST_PROGRAMS_ATTACH_H
#define GP_TEST_PROGRAMS_ATTACH_H

#include <dirent.h>
#include <gpuprof/wire.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

static int (*attach_function)(const char *settings);
static struct gp_wire_attach_state *attach_state;

static PROGRAM_UNUSED double attach_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static PROGRAM_UNUSED int attach_load(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        printf("no library: %s\n", dlerror());
        return -1;
    }
    *(void **)&attach_function = dlsym(handle, "gpuprof_attach");
    *(void **)&attach_state = dlsym(handle, "gpuprof_attach_state");
    return attach_function && attach_state ? 0 : -1;
}

/* 0 once the session is complete, or -errno. */
static PROGRAM_UNUSED int attach_on(const char *settings)
{
    double deadline = attach_seconds() + 20;
    int error = attach_function(settings);
    while (!error && __atomic_load_n(&attach_state->state, __ATOMIC_ACQUIRE) == GP_ATTACH_STARTING)
        if (attach_seconds() > deadline)
            return -ETIMEDOUT;
        else
            usleep(100);
    return error ? error : attach_state->state == GP_ATTACH_IN ? 0 : attach_state->error ? attach_state->error : -EIO;
}

/* The session's descriptor, or -1. */
static PROGRAM_UNUSED int attach_session(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int found = -1;
    while (dir && (entry = readdir(dir))) {
        char path[300], target[300] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "memfd:" GP_WIRE_SESSION_NAME))
            found = atoi(entry->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

static PROGRAM_UNUSED const struct gp_wire_header *attach_map(size_t *bytes)
{
    int fd = attach_session();
    struct gp_wire_header header;
    if (fd < 0 || pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return NULL;
    *bytes = header.ring_offset;
    void *map = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* One request; its result, or -ETIMEDOUT. */
static PROGRAM_UNUSED int attach_ask(const struct gp_wire_header *header, uint32_t command)
{
    struct gp_wire_mailbox *mailbox = (void *)((char *)(uintptr_t)header + header->mailbox_offset);
    struct gp_wire_slot *slot = mailbox->slots;
    uint32_t state = GP_SLOT_FREE;
    double deadline = attach_seconds() + 20;
    while (!__atomic_compare_exchange_n(&slot->state, &state, GP_SLOT_CLAIMED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (attach_seconds() > deadline)
            return -ETIMEDOUT;
        slot = slot == &mailbox->slots[GP_WIRE_SLOTS - 1] ? mailbox->slots : slot + 1;
        state = GP_SLOT_FREE;
    }
    slot->command = command;
    slot->what = 0;
    slot->device = -1;
    slot->viewer_pid = (uint32_t)getpid();
    slot->request_id++;
    __atomic_store_n(&slot->state, GP_SLOT_REQUESTED, __ATOMIC_RELEASE);
    __atomic_fetch_add(&mailbox->doorbell, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &mailbox->doorbell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    while (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != GP_SLOT_DONE) {
        if (attach_seconds() > deadline)
            return -ETIMEDOUT;
        usleep(50);
    }
    int result = slot->result;
    __atomic_store_n(&slot->state, GP_SLOT_FREE, __ATOMIC_RELEASE);
    return result;
}

/* 0, or -errno. last (may be NULL): a device's final numbers. */
static PROGRAM_UNUSED int attach_off(struct gp_wire_device *last, int device)
{
    size_t bytes = 0;
    const struct gp_wire_header *header = attach_map(&bytes);
    if (!header)
        return -ENOENT;
    int result = attach_ask(header, GP_COMMAND_DETACH);
    if (last)
        *last = ((const struct gp_wire_device *)((const char *)header + header->devices_offset))[device];
    munmap((void *)(uintptr_t)header, bytes);
    return result;
}

/* Threads of ours by their names. */
static PROGRAM_UNUSED int attach_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;
    while (dir && (entry = readdir(dir))) {
        char path[300], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file))
            count += strncmp(name, "gpuprof-", 8) == 0;
        if (file)
            fclose(file);
    }
    if (dir)
        closedir(dir);
    return count;
}

#endif
