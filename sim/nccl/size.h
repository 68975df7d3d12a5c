/* SPDX-License-Identifier: MIT
 * How much device memory NCCL takes, by version, shape of the communicator and settings: nothing but numbers
 * (size.c), and which algorithm it chooses (choice.c).
 *
 * All of it is read from NCCL's source, and its host code, run on the simulated driver, took as much to the byte
 * where the tables below say "seen".  What no run has shown is "read". */
#ifndef SIM_NCCL_SIZE_H
#define SIM_NCCL_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nccl_settings {
#define NCCL_SETTING(_field, _variable, _value) int64_t _field;
#include "setting.def"
#undef NCCL_SETTING
    bool net_host;       /* transfers over the network go through the host */
    char algorithms[64]; /* NCCL_ALGO */
};

struct nccl_shape {
    int version;    /* 23007 is 2.30.7 */
    int capability; /* 90 is 9.0 */
    bool linked;    /* all GPUs of a node are on one NVSwitch */
    bool multicast; /* ... which reduces what passes through it (NVLink SHARP) */
    int ranks, nodes;
    int local; /* ranks on this rank's node */
    struct nccl_settings set;
};

/* Channels: of collectives, of send and receive, of each peer, of NVLink SHARP, of all of them. */
struct nccl_counts {
    int collective, p2p, peer, nvls, all;
};

enum nccl_algorithm { NCCL_RING, NCCL_TREE, NCCL_NVLS, NCCL_NVLS_TREE, NCCL_PAT, NCCL_ALGORITHMS };
enum nccl_function { NCCL_ALL_REDUCE, NCCL_ALL_GATHER, NCCL_REDUCE_SCATTER, NCCL_FROM_ROOT };
extern const char *const nccl_algorithm_names[NCCL_ALGORITHMS];

struct nccl_settings nccl_settings_default(void);
/* Parent: of a communicator that shares its parent's resources, else NULL. */
struct nccl_counts nccl_counts(const struct nccl_shape *shape, const struct nccl_counts *parent);
/* NCCL connects at the first use, not at the start. */
bool nccl_late(const struct nccl_shape *shape);
/* It maps its memory (cuMemCreate), not cuMemAlloc. */
bool nccl_mapped(const struct nccl_shape *shape);

/* ---- bytes of a rank --------------------------------------------------------------------------------------------- */

/* Code of the kernels, in each context that has a communicator. */
uint64_t nccl_size_code(const struct nccl_shape *shape);
uint64_t nccl_size_start(const struct nccl_shape *shape, const struct nccl_counts *counts,
                         const struct nccl_counts *parent);
/* What an algorithm's first use adds; connected: a bit for each that is connected already. */
uint64_t nccl_size_algorithm(const struct nccl_shape *shape, const struct nccl_counts *counts,
                             enum nccl_algorithm algorithm, unsigned connected);
/* Sending to a rank of the same node, or receiving from it. */
uint64_t nccl_size_peer(const struct nccl_shape *shape, const struct nccl_counts *counts, bool send);
/* The same of a rank of another node: nothing but the pools, unless it has buffers of its own. */
uint64_t nccl_size_remote(const struct nccl_shape *shape, const struct nccl_counts *counts, bool send);
/* The pool of one direction, which a communicator has once, and once for each rank of the node that sends through this
 * rank's GPU. */
uint64_t nccl_size_pool(const struct nccl_shape *shape, const struct nccl_counts *counts);
/* The first window of symmetric memory, besides the memory itself. */
uint64_t nccl_size_window(const struct nccl_shape *shape);
/* A message to another node leaves the node through the GPU whose place in the node is the receiver's. */
bool nccl_proxied(const struct nccl_shape *shape);

/* ---- choice.c ---------------------------------------------------------------------------------------------------- */

/* Bytes: of the whole, as NCCL counts (count x ranks for gathering and scattering).  sums: NVLink SHARP can do the
 * reduction with this type. */
enum nccl_algorithm nccl_choice(const struct nccl_shape *shape, const struct nccl_counts *counts,
                                enum nccl_function function, uint64_t bytes, bool sums);

#endif
