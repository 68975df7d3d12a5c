/* SPDX-License-Identifier: MIT
 * libcufile.so.0.  Files are read and written through the host, as the real one does where it has no
 * driver of its own. */
#include "standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An error of cuFile in the lower half, one of the driver in the upper half: a struct of two ints. */
typedef int64_t result;

enum { STANDIN_REFUSED = 5007, STANDIN_NO_MEMORY = 5030, STANDIN_BAD_FILE = 5018 };
enum { FILE_DESCRIPTOR = 1, PIECE = 1 << 20 };
enum { KEY_FD = 1 };

struct file_descriptor {
    int kind;
    union {
        int fd;
        void *handle;
    };
    const void *operations;
};

#define DONE(_function)                                                                                                \
    EXPORT result _function(void);                                                                                     \
    EXPORT result _function(void)                                                                                      \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }
#define NOT_DONE(_function)                                                                                            \
    EXPORT result _function(void);                                                                                     \
    EXPORT result _function(void)                                                                                      \
    {                                                                                                                  \
        standin_unsupported(#_function);                                                                               \
        return STANDIN_REFUSED;                                                                                        \
    }
DONE(cuFileDriverOpen)
DONE(cuFileDriverClose)
DONE(cuFileDriverClose_v2)
DONE(cuFileDriverSetPollMode)
DONE(cuFileDriverSetMaxDirectIOSize)
DONE(cuFileDriverSetMaxCacheSize)
DONE(cuFileDriverSetMaxPinnedMemSize)
DONE(cuFileBufRegister)
DONE(cuFileBufDeregister)
DONE(cuFileStreamRegister)
DONE(cuFileStreamDeregister)
DONE(cuFileSetParameterSizeT)
DONE(cuFileSetParameterBool)
DONE(cuFileSetParameterString)
DONE(cuFileSetParameterPosixPoolSlabArray)
DONE(cuFileSetParameterGpuBounceBufferSlabArray)
DONE(cuFileSetStatsLevel)
DONE(cuFileStatsStart)
DONE(cuFileStatsStop)
DONE(cuFileStatsReset)
NOT_DONE(cuFileDriverGetProperties)
NOT_DONE(cuFileDriverGetP2PFlags)
NOT_DONE(cuFileDriverSetP2PFlags)
NOT_DONE(cuFileReadAsync)
NOT_DONE(cuFileWriteAsync)
NOT_DONE(cuFileBatchIOSetUp)
NOT_DONE(cuFileBatchIOSubmit)
NOT_DONE(cuFileBatchIOGetStatus)
NOT_DONE(cuFileBatchIOCancel)
DONE(cuFileBatchIODestroy)
NOT_DONE(cuFileExportPCIeTopology)
NOT_DONE(cuFileGetBARSizeInKB)
NOT_DONE(cuFileGetParameterSizeT)
NOT_DONE(cuFileGetParameterBool)
NOT_DONE(cuFileGetParameterString)
NOT_DONE(cuFileGetParameterMinMaxValue)
NOT_DONE(cuFileGetParameterPosixPoolSlabArray)
NOT_DONE(cuFileGetParameterGpuBounceBufferSlabArray)
NOT_DONE(cuFileGetStatsLevel)
NOT_DONE(cuFileGetStatsL1)
NOT_DONE(cuFileGetStatsL2)
NOT_DONE(cuFileGetStatsL3)

EXPORT result cuFileHandleRegister(struct standin_object **handle, const struct file_descriptor *descriptor);
EXPORT result cuFileHandleRegister(struct standin_object **handle, const struct file_descriptor *descriptor)
{
    if (descriptor->kind != FILE_DESCRIPTOR || descriptor->fd < 0)
        return STANDIN_BAD_FILE;
    *handle = standin_new(0);
    return *handle && standin_set_number(*handle, KEY_FD, descriptor->fd) ? 0 : STANDIN_NO_MEMORY;
}

EXPORT void cuFileHandleDeregister(struct standin_object *handle);
EXPORT void cuFileHandleDeregister(struct standin_object *handle)
{
    standin_drop(handle);
}

static ssize_t file_move(word handle, word memory, size_t size, off_t at, bool read)
{
    int fd = (int)standin_number(standin_object(handle), KEY_FD, -1);
    char *piece = malloc(PIECE);
    size_t done = 0;
    ssize_t moved = -1;
    while (piece && done < size) {
        size_t most = size - done < PIECE ? size - done : PIECE;
        if (!read && standin_device_copy((word)piece, 0, memory + done, 0, most, 1) != 0)
            break;
        moved = read ? pread(fd, piece, most, at + (off_t)done) : pwrite(fd, piece, most, at + (off_t)done);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0 || (read && standin_device_copy(memory + done, 0, (word)piece, 0, (size_t)moved, 1) != 0))
            break;
        done += (size_t)moved;
    }
    free(piece);
    return done || moved == 0 || size == 0 ? (ssize_t)done : -1;
}

EXPORT ssize_t cuFileRead(word handle, word memory, size_t size, off_t at, off_t offset);
EXPORT ssize_t cuFileRead(word handle, word memory, size_t size, off_t at, off_t offset)
{
    return file_move(handle, memory + (word)offset, size, at, true);
}

EXPORT ssize_t cuFileWrite(word handle, word memory, size_t size, off_t at, off_t offset);
EXPORT ssize_t cuFileWrite(word handle, word memory, size_t size, off_t at, off_t offset)
{
    return file_move(handle, memory + (word)offset, size, at, false);
}

struct piece {
    word base;
    size_t length;
};

static ssize_t file_move_all(word handle, const struct piece *pieces, size_t count, off_t at, bool read)
{
    ssize_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        ssize_t moved = file_move(handle, pieces[i].base, pieces[i].length, at + sum, read);
        if (moved < 0)
            return sum ? sum : -1;
        sum += moved;
        if ((size_t)moved < pieces[i].length)
            break;
    }
    return sum;
}

EXPORT ssize_t cuFileReadv(word handle, const struct piece *pieces, size_t count, off_t at, unsigned flags);
EXPORT ssize_t cuFileReadv(word handle, const struct piece *pieces, size_t count, off_t at, unsigned flags)
{
    (void)flags;
    return file_move_all(handle, pieces, count, at, true);
}

EXPORT ssize_t cuFileWritev(word handle, const struct piece *pieces, size_t count, off_t at, unsigned flags);
EXPORT ssize_t cuFileWritev(word handle, const struct piece *pieces, size_t count, off_t at, unsigned flags)
{
    (void)flags;
    return file_move_all(handle, pieces, count, at, false);
}

EXPORT long cuFileUseCount(void);
EXPORT long cuFileUseCount(void)
{
    return 1;
}

EXPORT result cuFileGetVersion(int *value);
EXPORT result cuFileGetVersion(int *value)
{
    *value = 1150;
    return 0;
}
