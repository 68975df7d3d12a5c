/* SPDX-License-Identifier: MIT
 * The ledger read back as numbers, and words between two processes.  Included by the tests of the driver API. */
#ifndef GP_TEST_SIM_CORE_CHECK_H
#define GP_TEST_SIM_CORE_CHECK_H

#include "check.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK_OK(call) CHECK_EQ(call, CUDA_SUCCESS)

/* The primary context of a device, current. */
static inline CUcontext check_begin(int device)
{
    CUcontext context = NULL;
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_OK(cuCtxSetCurrent(context));
    return context;
}

/* A kernel of a module that is loaded for it. */
static inline CUfunction check_function(const void *image, const char *name)
{
    CUmodule module;
    CUfunction found = NULL;
    CHECK_OK(cuModuleLoadData(&module, image));
    CHECK_OK(cuModuleGetFunction(&found, module, name));
    return found;
}

/* The whole ledger as text; static storage. */
static inline const char *check_ledger(void)
{
    static char text[262144];
    char path[] = "/tmp/sim-ledger-XXXXXX";
    int (*write_ledger)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "sim_ledger_write");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write_ledger && write_ledger(path) == 0);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    close(fd);
    unlink(path);
    return text;
}

/* Part of a device's account ("host" for device -1): `key` then `field`, e.g. "\"linear\"" and "\"current_bytes\":". */
static inline long long check_number(int device, const char *key, const char *field)
{
    char head[32];
    snprintf(head, sizeof head, device < 0 ? "\"host\":" : "{\"device\":%d,", device);
    const char *at = strstr(check_ledger(), head);
    at = at ? strstr(at, key) : NULL;
    at = at ? strstr(at, field) : NULL;
    return at ? atoll(at + strlen(field)) : -1;
}

static inline long long check_kind(int device, const char *kind, const char *field)
{
    char key[40], value[40];
    snprintf(key, sizeof key, "\"%s\":{", kind);
    snprintf(value, sizeof value, "\"%s\":", field);
    return check_number(device, key, value);
}

static inline long long check_reserved(int device, const char *field)
{
    return check_number(device, "\"reserved_bytes\"", field);
}

static inline long long check_allocated(int device, const char *field)
{
    return check_number(device, "\"allocated_bytes\"", field);
}

/* ---- two processes over a socketpair ----------------------------------------------------------------------------- */
/* The other side reached this point; it is gone: a failure, not a hang. */
static inline void check_tell(int line)
{
    CHECK(write(line, "x", 1) == 1);
}

static inline void check_wait(int line)
{
    char byte;
    CHECK(read(line, &byte, 1) == 1);
}

union check_packet {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static inline void check_send(int line, int fd)
{
    union check_packet packet = {.head = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec byte = {"x", 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = packet.bytes, .msg_controllen = sizeof packet};
    memcpy(CMSG_DATA(&packet.head), &fd, sizeof fd);
    CHECK(sendmsg(line, &message, 0) == 1);
}

static inline int check_receive(int line)
{
    union check_packet packet;
    char byte;
    int fd = -1;
    struct iovec room = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &room, .msg_iovlen = 1, .msg_control = packet.bytes, .msg_controllen = sizeof packet};
    CHECK(recvmsg(line, &message, 0) == 1);
    if (message.msg_controllen >= sizeof packet.head)
        memcpy(&fd, CMSG_DATA(&packet.head), sizeof fd);
    return fd;
}

#define CHECK_MIB (1ll << 20)

/* A fat binary: a head, and entries with an image of each generation. */
struct check_fat {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size; /* behind the head */
};
#define CHECK_FAT(_bytes)                                                                                              \
    {                                                                                                                  \
        0xba55ed50u, 1, sizeof(struct check_fat), (_bytes)                                                             \
    }

struct check_fat_entry {
    uint16_t kind, version; /* kind 2: compiled, 1: PTX */
    uint32_t header;
    uint64_t size; /* behind it, padded */
    uint32_t packed, reserved[2], generation, reserved2[2];
    uint64_t flags, reserved3, unpacked;
};
#define CHECK_FAT_ENTRY(_kind, _bytes)                                                                                 \
    {                                                                                                                  \
        .kind = (_kind), .version = 0x101, .header = sizeof(struct check_fat_entry), .size = (_bytes)                  \
    }

#endif
