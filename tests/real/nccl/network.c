/* SPDX-License-Identifier: MIT
 * A network plugin for NCCL: eight NICs of 400 Gbit/s that reach the memory of GPUs and transfer nothing.  Connections are
 * there at once.  The interface is the eighth of NCCL's documentation (ext-net). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NICS 8

struct properties {
    char *name, *path;
    uint64_t guid;
    int pointers, global, speed, port;
    float latency;
    int most_connections, most_receives, device_type, device_version;
};

static int start(void *log)
{
    (void)log;
    return 0;
}
static int devices(int *count)
{
    *count = NICS;
    return 0;
}
static int properties(int device, struct properties *is)
{
    static char names[NICS][8];
    snprintf(names[device], sizeof names[device], "idle%d", device);
    *is = (struct properties){.name = names[device],
                              .guid = (uint64_t)device + 1,
                              .pointers = 3, /* of the host and of GPUs */
                              .speed = 400000,
                              .port = 1,
                              .most_connections = 65536,
                              .most_receives = 1};
    return 0;
}
static int hear(int device, void *handle, void **listener)
{
    (void)device;
    memset(handle, 0, 128);
    *listener = malloc(1);
    return 0;
}
static int reach(int device, void *handle, void **connection, void *unused)
{
    (void)device, (void)handle, (void)unused;
    *connection = malloc(1);
    return 0;
}
static int accept_one(void *listener, void **connection, void *unused)
{
    (void)listener, (void)unused;
    *connection = malloc(1);
    return 0;
}
static int enter(void *connection, void *data, size_t size, int type, void **handle)
{
    (void)connection, (void)data, (void)size, (void)type;
    *handle = malloc(1);
    return 0;
}
static int enter_file(void *connection, void *data, size_t size, int type, uint64_t offset, int file, void **handle)
{
    (void)offset, (void)file;
    return enter(connection, data, size, type, handle);
}
static int leave(void *connection, void *handle)
{
    (void)connection;
    free(handle);
    return 0;
}
static int send_later(void *connection, void *data, int size, int tag, void *handle, void **request)
{
    (void)connection, (void)data, (void)size, (void)tag, (void)handle;
    *request = NULL;
    return 0;
}
static int receive_later(void *connection, int count, void **data, int *sizes, int *tags, void **handles,
                         void **request)
{
    (void)connection, (void)count, (void)data, (void)sizes, (void)tags, (void)handles;
    *request = NULL;
    return 0;
}
static int flush(void *connection, int count, void **data, int *sizes, void **handles, void **request)
{
    (void)connection, (void)count, (void)data, (void)sizes, (void)handles;
    *request = NULL;
    return 0;
}
static int done(void *request, int *is, int *sizes)
{
    (void)request, (void)sizes;
    *is = 1;
    return 0;
}
static int end(void *connection)
{
    free(connection);
    return 0;
}

__attribute__((visibility("default"))) const struct {
    const char *name;
    void *functions[18];
} ncclNetPlugin_v8 = {"Idle",
                      {(void *)start, (void *)devices, (void *)properties, (void *)hear, (void *)reach,
                       (void *)accept_one, (void *)enter, (void *)enter_file, (void *)leave, (void *)send_later,
                       (void *)receive_later, (void *)flush, (void *)done, (void *)end, (void *)end, (void *)end}};
