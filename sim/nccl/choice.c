/* SPDX-License-Identifier: MIT
 *
 * Which algorithm NCCL takes for a collective, by its size: what the model of NCCL 2.30.7 answered (tuning.cc, run with
 * machines of eight GPUs, a NIC for each, on one NVSwitch).  Of what lies between two rows the smaller one decides.  Other
 * versions, machines and tuner plugins choose otherwise. */
#include "size.h"

#include <string.h>
#include <strings.h>

const char *const nccl_algorithm_names[NCCL_ALGORITHMS] = {"Ring", "Tree", "NVLS", "NVLSTree", "PAT"};

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define ANY UINT64_MAX

/* All-reduce: below `tree` bytes a tree, from `sharp` to `last` NVLink SHARP, else a ring.  Rows of one node are for one
 * node.  In the order of the columns: the last row that fits is the nearest. */
static const struct choice_reduce {
    int capability, local, nodes;
    uint64_t tree, sharp, last;
} choice_reduce[] = {
    {0, 1, 1, 0, ANY, ANY},
    {0, 1, 2, 0, ANY, ANY},
    {0, 1, 3, 45 * KIB, ANY, ANY},
    {0, 1, 8, 1218 * KIB, ANY, ANY},
    {0, 1, 16, 9742 * KIB, ANY, ANY},
    {0, 1, 64, 54 * MIB, ANY, ANY},
    {0, 1, 128, 181 * MIB, ANY, ANY},
    {0, 1, 512, 1 * GIB, ANY, ANY},
    {0, 2, 1, 0, ANY, ANY},
    {0, 2, 2, 0, ANY, ANY},
    {0, 2, 3, 64 * KIB, ANY, ANY},
    {0, 2, 4, 38 * KIB, ANY, ANY},
    {0, 2, 8, 1448 * KIB, ANY, ANY},
    {0, 2, 16, 11585 * KIB, ANY, ANY},
    {0, 2, 64, 22 * MIB, 22 * MIB, 256 * MIB},
    {0, 2, 128, 26 * MIB, 26 * MIB, 724 * MIB},
    {0, 3, 1, 0, ANY, ANY},
    {0, 3, 2, 5793 * KIB, ANY, ANY},
    {0, 3, 8, 22 * MIB, ANY, ANY},
    {0, 3, 64, 430 * MIB, ANY, ANY},
    {0, 3, 512, 4871 * MIB, ANY, ANY},
    {90, 3, 1, 0, ANY, ANY},
    {90, 3, 2, 2 * MIB, 2 * MIB, ANY},
    {90, 3, 3, 2 * MIB, 9742 * KIB, 215 * MIB},
    {90, 3, 4, 2435 * KIB, 90 * MIB, 256 * MIB},
    {90, 3, 8, 16 * MIB, 16 * MIB, 724 * MIB},
    {90, 3, 16, 22 * MIB, 22 * MIB, 1722 * MIB},
    {90, 3, 64, 32 * MIB, 32 * MIB, 6889 * MIB},
    {90, 3, 128, 38 * MIB, 38 * MIB, ANY},
    {90, 6, 1, 0, 1722 * KIB, ANY},
    {90, 8, 1, 0, 1218 * KIB, ANY},
    {90, 8, 2, 2 * MIB, 2 * MIB, ANY},
    {90, 8, 3, 1722 * KIB, 1722 * KIB, 861 * MIB},
    {90, 8, 4, 5793 * KIB, 5793 * KIB, 1 * GIB},
    {90, 8, 8, 11585 * KIB, 11585 * KIB, 2436 * MIB},
    {90, 8, 16, 16 * MIB, 16 * MIB, 5793 * MIB},
    {90, 8, 64, 27 * MIB, 27 * MIB, ANY},
    {90, 8, 128, 32 * MIB, 32 * MIB, ANY},
    {90, 8, 512, 38 * MIB, 38 * MIB, ANY},
    {100, 3, 1, 0, ANY, ANY},
    {100, 3, 2, 1 * GIB, ANY, ANY},
    {100, 3, 3, 2 * MIB, 1 * GIB, ANY},
    {100, 3, 8, 16 * MIB, 1 * GIB, ANY},
    {100, 3, 64, 64 * MIB, 64 * MIB, ANY},
    {100, 3, 512, 76 * MIB, 76 * MIB, ANY},
    {100, 8, 1, 0, 2896 * KIB, ANY},
};

/* Gathering and scattering between nodes of one rank: PAT from `first` to `last` bytes of the whole. */
static const struct choice_gather {
    int nodes;
    uint64_t first, last;
} choice_gather[] = {{2, 861 * KIB, 1448 * KIB}, {4, 609 * KIB, 1218 * KIB}, {8, 54 * KIB, 4 * MIB},
                     {16, 0, 11585 * KIB},       {64, 0, 64 * MIB},          {128, 0, 128 * MIB},
                     {512, 0, 609 * MIB}};

static bool choice_pat(const struct nccl_shape *shape, uint64_t bytes)
{
    const struct choice_gather *row = NULL;
    bool may = shape->set.pat && shape->version >= 22300 && shape->local == 1 && shape->nodes == shape->ranks;
    for (size_t i = 0; i < sizeof choice_gather / sizeof *choice_gather; i++)
        if (shape->nodes >= choice_gather[i].nodes)
            row = &choice_gather[i];
    return may && row && bytes >= row->first && bytes < row->last;
}

static const struct choice_reduce *choice_row(const struct nccl_shape *shape)
{
    const struct choice_reduce *row = choice_reduce;
    for (size_t i = 0; i < sizeof choice_reduce / sizeof *choice_reduce; i++) {
        const struct choice_reduce *next = &choice_reduce[i];
        if (shape->capability >= next->capability && shape->local >= next->local && shape->nodes >= next->nodes &&
            (shape->nodes == 1) == (next->nodes == 1))
            row = next;
    }
    return row;
}

/* NCCL_ALGO as a list of names, or of names that are not to be taken (^).  0: nothing of it is known here. */
static unsigned choice_allowed(const char *list)
{
    unsigned named = 0, all = (1u << NCCL_ALGORITHMS) - 1;
    bool without = *list == '^';
    for (list += without; *list; list += *list == ',') {
        size_t length = strcspn(list, ",");
        for (int i = 0; i < NCCL_ALGORITHMS; i++)
            if (strlen(nccl_algorithm_names[i]) == length && !strncasecmp(list, nccl_algorithm_names[i], length))
                named |= 1u << i;
        list += length;
    }
    return !named ? 0 : without ? all & ~named : named;
}

enum nccl_algorithm nccl_choice(const struct nccl_shape *shape, const struct nccl_counts *counts,
                                enum nccl_function function, uint64_t bytes, bool sums)
{
    enum nccl_algorithm sharp = shape->nodes > 1 ? NCCL_NVLS_TREE : NCCL_NVLS;
    const struct choice_reduce *row = choice_row(shape);
    unsigned allowed = choice_allowed(shape->set.algorithms), able = 1u << NCCL_RING;
    enum nccl_algorithm choice = NCCL_RING;
    bool reduces = function == NCCL_ALL_REDUCE,
         gathers = function == NCCL_ALL_GATHER || function == NCCL_REDUCE_SCATTER;
    if (shape->ranks == 1)
        return NCCL_RING;
    if (reduces)
        able |= 1u << NCCL_TREE | (counts->nvls && sums ? 1u << sharp : 0);
    if (gathers)
        able |= choice_pat(shape, bytes) ? 1u << NCCL_PAT : 0;
    if (reduces && bytes < row->tree)
        choice = NCCL_TREE;
    else if (able & 1u << sharp && bytes >= row->sharp && bytes < row->last)
        choice = sharp;
    else if (able & 1u << NCCL_PAT)
        choice = NCCL_PAT;
    if (allowed & able && !(allowed & 1u << choice))
        for (choice = NCCL_RING; !(allowed & able & 1u << choice);)
            choice++;
    return choice;
}
