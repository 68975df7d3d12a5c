/* SPDX-License-Identifier: MIT
 *
 * listen.h: a listener to the probe gpuprof:batch, in one header, through count.bpf.c. For programs that link
 * libbpf. Nothing is pinned, so all of it ends with the process.
 */
#ifndef GP_TEST_LIB_LISTEN_H
#define GP_TEST_LIB_LISTEN_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bpf/count.h"
#include "lib/paths.h"

struct listen {
    struct bpf_object *object;
    struct bpf_link *link[2];
    struct ring_buffer *ring;
};

static int listen_print(enum libbpf_print_level level, const char *form, va_list args)
{
    return level == LIBBPF_WARN ? vfprintf(stderr, form, args) : 0;
}

static inline void listen_close(struct listen *listen)
{
    for (int i = 0; i < 2; i++)
        bpf_link__destroy(listen->link[i]);
    ring_buffer__free(listen->ring);
    bpf_object__close(listen->object);
    *listen = (struct listen){0};
}

/* Path of build/tests/bpf/count.bpf.o, found from the running test's folder. */
static inline const char *listen_object(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);
    path[length > 0 ? length : 0] = '\0';
    for (int i = 0; i < 2 && strrchr(path, '/'); i++)
        *strrchr(path, '/') = '\0';
    return strcat(path, "/bpf/count.bpf.o");
}

static inline int listen_map(const struct listen *listen, const char *name)
{
    return bpf_object__find_map_fd_by_name(listen->object, name);
}

/* Loads the program; attaches nothing. keep: listen_poll passes every batch to visit. 0 or -errno; -EPERM: BPF
 * is not available. */
static inline int listen_open(struct listen *listen, int (*visit)(void *arg, void *kept, size_t bytes), void *arg)
{
    struct { /* of .rodata, in the order of count.bpf.c */
        bool keep;
    } setting = {visit != NULL};
    *listen = (struct listen){0};
    libbpf_set_print(listen_print);
    listen->object = bpf_object__open_file(listen_object(), NULL);
    if (!listen->object)
        return -errno;
    struct bpf_map *rodata = bpf_object__find_map_by_name(listen->object, ".rodata");
    size_t bytes = 0;
    char *initial = rodata ? (char *)(size_t)bpf_map__initial_value(rodata, &bytes) : NULL;
    if (initial && bytes)
        memcpy(initial, &setting, sizeof(setting));
    int error = bpf_object__load(listen->object);
    if (!error && visit) {
        listen->ring = ring_buffer__new(listen_map(listen, "kept"), visit, arg, NULL);
        error = listen->ring ? 0 : -errno;
    }
    if (error)
        listen_close(listen);
    return error;
}

static inline int listen_arm_in(struct listen *listen, const char *file, pid_t pid)
{
    listen->link[0] = bpf_program__attach_usdt(bpf_object__find_program_by_name(listen->object, "on_batch"), pid, file,
                                               "gpuprof", "batch", NULL);
    return listen->link[0] ? 0 : -errno;
}

static inline int listen_arm(struct listen *listen, const char *file)
{
    return listen_arm_in(listen, file, -1);
}

/* Attaches to the caller's own program, in this process only: other tested processes may run the same file. */
static inline int listen_arm_here(struct listen *listen)
{
    return listen_arm_in(listen, "/proc/self/exe", getpid());
}

static inline void listen_disarm(struct listen *listen)
{
    for (int i = 0; i < 2; i++) {
        bpf_link__destroy(listen->link[i]);
        listen->link[i] = NULL;
    }
}

static inline struct count listen_count(const struct listen *listen, pid_t pid)
{
    uint32_t key = (uint32_t)pid;
    struct count count = {0};
    bpf_map_lookup_elem(listen_map(listen, "counts"), &key, &count);
    return count;
}

#endif
