/* SPDX-License-Identifier: MIT
 * count.h: the records that count.bpf.c passes to user space. */
#ifndef GP_TEST_BPF_COUNT_H
#define GP_TEST_BPF_COUNT_H

#include <gpuprof/batch.h>

struct count { /* counts of one process */
    uint64_t batches, events, lost, bad, gaps, dropped, last, seq;
    struct gp_batch_device device; /* device 0, as the newest batch has it */
};

struct kept {
    uint32_t tgid, pad_;
    struct gp_batch batch;
};

struct peer {
    int64_t bytes, peak;
    uint64_t calls, frees;
};

#endif
