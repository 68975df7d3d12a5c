/* SPDX-License-Identifier: MIT
 *
 * The driver's log of errors.  The simulated driver writes nothing into it: what it has to say goes
 * to standard error.  So callbacks are kept and never called, and a dump is empty. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/stream.h"

struct sim_log_callback {
    struct sim_log_callback *next;
    CUlogsCallback call;
    void *data;
};
static struct sim_log_callback *sim_log_callbacks;

SIM_EARLY3(763, 12090, cuLogsRegisterCallback, CUlogsCallback, callbackFunc, void *, userData, CUlogsCallbackHandle *,
           callback_out)
{
    struct sim_log_callback *made;

    if (!callbackFunc)
        return CUDA_ERROR_INVALID_VALUE;
    made = sim_grow(NULL, sizeof *made);
    *made = (struct sim_log_callback){sim_log_callbacks, callbackFunc, userData};
    sim_log_callbacks = made;
    if (callback_out)
        *callback_out = (CUlogsCallbackHandle)made;
    return CUDA_SUCCESS;
}

SIM_EARLY1(764, 12090, cuLogsUnregisterCallback, CUlogsCallbackHandle, callback)
{
    for (struct sim_log_callback **at = &sim_log_callbacks; *at; at = &(*at)->next) {
        struct sim_log_callback *gone = *at;

        if ((CUlogsCallbackHandle)gone != callback)
            continue;
        *at = gone->next;
        free(gone);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_EARLY2(765, 12090, cuLogsCurrent, CUlogIterator *, iterator_out, unsigned int, flags)
{
    if (!iterator_out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *iterator_out = 0;
    return CUDA_SUCCESS;
}

SIM_EARLY3(766, 12090, cuLogsDumpToFile, CUlogIterator *, iterator, const char *, pathToFile, unsigned int, flags)
{
    int fd;

    (void)iterator;
    if (!pathToFile || flags)
        return CUDA_ERROR_INVALID_VALUE;
    fd = open(pathToFile, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    close(fd);
    return CUDA_SUCCESS;
}

SIM_EARLY4(767, 12090, cuLogsDumpToMemory, CUlogIterator *, iterator, char *, buffer, size_t *, size, unsigned int,
           flags)
{
    (void)iterator;
    if (!buffer || !size || !*size || flags)
        return CUDA_ERROR_INVALID_VALUE;
    buffer[0] = '\0';
    *size = 0;
    return CUDA_SUCCESS;
}
