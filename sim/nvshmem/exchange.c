/* SPDX-License-Identifier: MIT
 *
 * The PEs of the job meet: each gives the others some bytes, and waits for theirs. */
#include "nvshmem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct nvshmem_job nvshmem_job;

#define JOB_WAIT_SECONDS 540 /* as the stand-in for NCCL waits */

bool nvshmem_job_waits(int peer, time_t begun)
{
    bool left;
    if (nccl_room_gone(nvshmem_job.room, peer, &left)) {
        fprintf(stderr, "gpuprof: sim: NVSHMEM: PE %d of %d: PE %d (PID %d) has ended\n", nvshmem_job.pe,
                nvshmem_job.pes, peer, nccl_room_pid(nvshmem_job.room, peer));
        return false;
    }
    if (time(NULL) - begun > JOB_WAIT_SECONDS) {
        fprintf(stderr, "gpuprof: sim: NVSHMEM: PE %d of %d: PE %d has not come within %d s\n", nvshmem_job.pe,
                nvshmem_job.pes, peer, JOB_WAIT_SECONDS);
        return false;
    }
    return true;
}

int nvshmem_exchange(const void *own, size_t bytes, void *all)
{
    struct nccl_message message = {.count = bytes, .bytes = bytes};
    const time_t begun = time(NULL);
    for (int pe = 0; pe < nvshmem_job.pes; pe++)
        if (pe != nvshmem_job.pe && nccl_room_send(nvshmem_job.room, NCCL_CALL, nvshmem_job.pe, pe, &message, own))
            return -1;
    memcpy((char *)all + (size_t)nvshmem_job.pe * bytes, own, bytes);
    for (int pe = 0; pe < nvshmem_job.pes; pe++) {
        for (;;) {
            uint32_t bell = nccl_room_bell(nvshmem_job.room, nvshmem_job.pe);
            if (pe == nvshmem_job.pe || nccl_room_peek(nvshmem_job.room, NCCL_CALL, pe, nvshmem_job.pe, &message))
                break;
            if (!nvshmem_job_waits(pe, begun))
                return -1;
            nccl_room_sleep(nvshmem_job.room, nvshmem_job.pe, bell);
        }
        if (pe != nvshmem_job.pe &&
            (message.bytes != bytes || nccl_room_take(nvshmem_job.room, NCCL_CALL, pe, nvshmem_job.pe, &message,
                                                      (char *)all + (size_t)pe * bytes)))
            return -1;
    }
    return 0;
}
