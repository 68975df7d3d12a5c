/* SPDX-License-Identifier: MIT
 * Selftest: what NCCL takes, for shapes that no machine of ours has.  Where a row says "seen", NCCL's own host code took as
 * much on the simulated driver; the others follow NCCL's source. */
#include "check.h"

#include "nccl/choice.c"
#include "nccl/size.c"

#include <stdio.h>
#include <string.h>

static long mib(uint64_t bytes)
{
    return (long)(bytes / SIZE_MIB);
}

static struct nccl_shape shape(int version, int capability, int nodes, int local)
{
    return (struct nccl_shape){.version = version,
                               .capability = capability,
                               .linked = true,
                               .multicast = capability >= 90,
                               .ranks = nodes * local,
                               .nodes = nodes,
                               .local = local,
                               .set = nccl_settings_default()};
}

/* MiB of a rank: the start; the first ring; after it a tree; after a tree one of NVLink SHARP, and then a ring; buffers
 * of NVLink SHARP; sending to a rank of the node, receiving; a pool. */
static const struct row {
    int version, capability, nodes, local;
    int channels, p2p, peer, nvls;
    long start, ring, tree, nvls_tree, ring_last, buffers, send, receive, pool;
} rows[] = {
    {23007, 90, 1, 1, 64, 64, 64, 0, 388, 0, 0, 0, 0, 0, 128, 640, 512}, /* seen: start, an H200 too */
    {22809, 90, 1, 1, 64, 64, 64, 0, 388, 0, 0, 0, 0, 0, 128, 640, 512}, /* seen */
    {22707, 90, 1, 1, 64, 64, 64, 0, 388, 0, 0, 0, 0, 0, 128, 640, 512},
    {22203, 90, 1, 1, 32, 32, 32, 0, 196, 0, 0, 0, 0, 0, 64, 320, 256},
    {22403, 90, 1, 1, 32, 32, 32, 0, 196, 0, 0, 0, 0, 0, 64, 320, 256},
    {23007, 90, 1, 2, 24, 32, 32, 16, 230, 288, 0, 64, 0, 64, 64, 320, 256}, /* seen */
    {22809, 90, 1, 2, 24, 32, 32, 16, 230, 288, 0, 64, 0, 64, 64, 320, 256}, /* seen */
    {22707, 90, 1, 2, 24, 32, 32, 0, 196, 288, 0, 0, 0, 0, 64, 320, 256},    /* three GPUs at least */
    {22203, 90, 1, 4, 24, 32, 32, 16, 230, 288, 216, 128, 72, 128, 64, 320, 256},
    {23007, 90, 1, 8, 24, 32, 32, 16, 230, 288, 252, 256, 36, 256, 64, 320, 256},  /* seen */
    {23007, 80, 1, 4, 24, 32, 32, 0, 196, 288, 216, 0, 72, 0, 192, 192, 256},      /* seen */
    {23007, 100, 1, 4, 32, 32, 32, 24, 246, 384, 288, 192, 96, 192, 64, 320, 256}, /* seen */
    {23007, 90, 4, 1, 4, 4, 4, 0, 28, 80, 80, 0, 40, 0, 8, 40, 8},                 /* seen */
    {23007, 90, 2, 2, 8, 8, 4, 16, 134, 128, 128, 304, 80, 64, 8, 40, 16},         /* seen */
    {22809, 90, 2, 2, 8, 8, 2, 16, 134, 128, 128, 304, 80, 64, 4, 20, 16},         /* seen */
    {23007, 90, 2, 4, 16, 16, 4, 16, 134, 224, 272, 368, 128, 128, 8, 40, 32},     /* seen */
    {23007, 80, 2, 4, 8, 8, 2, 0, 52, 112, 136, 0, 64, 0, 12, 12, 16},             /* seen */
    {23007, 100, 2, 4, 16, 16, 4, 32, 262, 224, 272, 1072, 128, 512, 8, 40, 32},   /* seen: start, ring, peers */
    {23007, 90, 2, 8, 16, 16, 4, 16, 134, 208, 180, 536, 12, 256, 8, 40, 32},      /* seen */
    {22809, 90, 2, 8, 16, 16, 2, 16, 134, 208, 180, 536, 12, 256, 4, 20, 32},
    {23007, 90, 8, 8, 16, 16, 2, 16, 134, 208, 230, 746, 32, 256, 4, 20, 32},
    {23007, 90, 64, 8, 16, 16, 1, 16, 134, 208, 240, 806, 32, 256, 2, 10, 32},
    {22809, 90, 64, 8, 16, 16, 1, 16, 134, 208, 240, 806, 32, 256, 2, 10, 32},
    {23007, 90, 512, 8, 16, 16, 1, 16, 166, 208, 240, 816, 32, 256, 2, 10, 32}, /* larger tables */
};

static void table(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct nccl_shape s = shape(row->version, row->capability, row->nodes, row->local);
        struct nccl_counts c = nccl_counts(&s, NULL);
        unsigned tree = 1u << NCCL_TREE, sharp = tree | 1u << NCCL_NVLS_TREE;
        long here[] = {c.collective,
                       c.p2p,
                       c.peer,
                       c.nvls,
                       mib(nccl_size_start(&s, &c, NULL)),
                       mib(nccl_size_algorithm(&s, &c, NCCL_RING, 0)),
                       mib(nccl_size_algorithm(&s, &c, NCCL_TREE, 1u << NCCL_RING)),
                       mib(nccl_size_algorithm(&s, &c, NCCL_NVLS_TREE, tree)),
                       mib(nccl_size_algorithm(&s, &c, NCCL_RING, sharp)),
                       mib(nccl_size_algorithm(&s, &c, NCCL_NVLS, 0)),
                       mib(nccl_size_peer(&s, &c, true)),
                       mib(nccl_size_peer(&s, &c, false)),
                       mib(nccl_size_pool(&s, &c))};
        long there[] = {row->channels,  row->p2p,       row->peer,    row->nvls, row->start,   row->ring, row->tree,
                        row->nvls_tree, row->ring_last, row->buffers, row->send, row->receive, row->pool};
        for (size_t j = 0; j < sizeof here / sizeof *here; j++) {
            if (here[j] != there[j])
                fprintf(stderr, "row %zu, %d nodes of %d, column %zu: %ld, not %ld\n", i, row->nodes, row->local, j,
                        here[j], there[j]);
            CHECK_EQ(here[j], there[j]);
        }
    }
}

/* What a root that scatters takes, and a rank of an all-to-all over 512 ranks: none for a peer on another node. */
static void many(void)
{
    struct nccl_shape s = shape(23007, 90, 64, 8);
    struct nccl_counts c = nccl_counts(&s, NULL);
    uint64_t send = nccl_size_peer(&s, &c, true), receive = nccl_size_peer(&s, &c, false),
             pool = nccl_size_pool(&s, &c);
    CHECK_EQ(nccl_size_remote(&s, &c, true) + nccl_size_remote(&s, &c, false), 0);
    CHECK_EQ(mib(7 * send + pool), 46);
    CHECK_EQ(mib(7 * (send + receive) + pool + 8 * pool), 372);
    CHECK(nccl_proxied(&s));
    s.set.proxy_off = 1;
    CHECK(!nccl_proxied(&s));
    s.set.net_shared = 0;
    CHECK_EQ(mib(nccl_size_remote(&s, &c, true)), 10);
    s = shape(23007, 90, 64, 1);
    c = nccl_counts(&s, NULL);
    CHECK_EQ(mib(nccl_size_algorithm(&s, &c, NCCL_PAT, 0)), 880);
    CHECK_EQ(mib(nccl_size_algorithm(&s, &c, NCCL_PAT, 1u << NCCL_RING)), 800);
}

static void windows(void)
{
    static const int seen[][3] = {{1, 1, 34}, {1, 2, 36}, {1, 3, 36}, {1, 4, 38}, {1, 8, 42}, {2, 1, 0}, {2, 2, 0}};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        struct nccl_shape s = shape(23007, 90, seen[i][0], seen[i][1]);
        CHECK_EQ(mib(nccl_size_window(&s)), seen[i][2]);
    }
}

static void settings(void)
{
    static const long sizes[][3] = {{1, 8, 6}, {2, 8, 8}, {4, 10, 10}, {8, 14, 14}, {16, 22, 22}};
    struct nccl_shape s = shape(23007, 90, 2, 8);
    struct nccl_counts c;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        s.set.simple = sizes[i][0] << 20;
        CHECK_EQ(mib(size_local(&s, false)), sizes[i][1]);
        CHECK_EQ(mib(size_net(&s, true)), sizes[i][2]);
    }
    /* Without cuMem and with the connections at the start, as seen with other versions (NVIDIA/nccl#964, #2363). */
    s = shape(23007, 90, 1, 1);
    s.set.late = 0;
    c = nccl_counts(&s, NULL);
    CHECK_EQ(mib(nccl_size_start(&s, &c, NULL)), 388 + 512);
    s.set.mapped = 0;
    CHECK_EQ(mib(nccl_size_start(&s, &c, NULL)), 2 + 512);
    s = shape(21805, 80, 1, 2);
    c = nccl_counts(&s, NULL);
    CHECK(!nccl_mapped(&s));
    CHECK_EQ(mib(nccl_size_start(&s, &c, NULL)) / 2 * 2, 2 + 288 + 256);
    static const int seen[][3] = {{1, 4, 1118}, {2, 2, 726}};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        s = shape(23007, 90, seen[i][0], seen[i][1]);
        s.set.late = 0;
        c = nccl_counts(&s, NULL);
        CHECK_EQ(mib(nccl_size_start(&s, &c, NULL)), seen[i][2]);
    }
    /* Channels that a communicator may have, and what it shares with its parent. */
    s = shape(23007, 90, 1, 8);
    s.set.ctas_most = 1;
    c = nccl_counts(&s, NULL);
    CHECK_EQ(mib(nccl_size_start(&s, &c, NULL)), 6 + 4 + 4);
    s = shape(23007, 90, 1, 8);
    c = nccl_counts(&s, NULL);
    CHECK_EQ(mib(nccl_size_start(&s, &c, &c)), 32 * 4 + 4);
    s.set.p2p_most = 8;
    c = nccl_counts(&s, NULL);
    CHECK_EQ(c.peer, 8);
    s.set.channels_least = 40;
    CHECK_EQ(nccl_counts(&s, NULL).collective, 40);
    s.set.nvls = 0;
    CHECK_EQ(nccl_counts(&s, NULL).nvls, 0);
    s = shape(23007, 90, 2, 8);
    s.set.net_host = true;
    c = nccl_counts(&s, NULL);
    CHECK_EQ(mib(nccl_size_algorithm(&s, &c, NCCL_RING, 0)), 16 * 7 * 12 / 8);
}

static enum nccl_algorithm chosen(int nodes, int local, enum nccl_function function, uint64_t bytes, const char *list)
{
    struct nccl_shape s = shape(23007, 90, nodes, local);
    struct nccl_counts c = nccl_counts(&s, NULL);
    snprintf(s.set.algorithms, sizeof s.set.algorithms, "%s", list);
    return nccl_choice(&s, &c, function, bytes, true);
}

/* As NCCL 2.30.7 answered. */
static void choices(void)
{
    static const struct {
        int nodes, local;
        enum nccl_function function;
        uint64_t bytes;
        const char *list;
        enum nccl_algorithm algorithm;
    } seen[] = {
        {1, 1, NCCL_ALL_REDUCE, 1 << 20, "", NCCL_RING},
        {1, 2, NCCL_ALL_REDUCE, 1 << 28, "", NCCL_RING},
        {1, 8, NCCL_ALL_REDUCE, 1024, "", NCCL_RING},
        {1, 8, NCCL_ALL_REDUCE, 4 << 20, "", NCCL_NVLS},
        {1, 8, NCCL_ALL_GATHER, 1 << 28, "", NCCL_RING},
        {1, 8, NCCL_FROM_ROOT, 1 << 28, "", NCCL_RING},
        {2, 8, NCCL_ALL_REDUCE, 1024, "", NCCL_TREE},
        {2, 8, NCCL_ALL_REDUCE, 1 << 28, "", NCCL_NVLS_TREE},
        {3, 8, NCCL_ALL_REDUCE, 1000000000, "", NCCL_RING},
        {64, 8, NCCL_ALL_REDUCE, 16 << 20, "", NCCL_TREE},
        {100, 8, NCCL_ALL_REDUCE, 1 << 28, "", NCCL_NVLS_TREE},
        {64, 8, NCCL_REDUCE_SCATTER, 1 << 30, "", NCCL_RING},
        {4, 4, NCCL_ALL_REDUCE, 8 << 20, "", NCCL_RING},
        {2, 2, NCCL_ALL_REDUCE, 1024, "", NCCL_RING},
        {4, 1, NCCL_ALL_REDUCE, 1024, "", NCCL_TREE},
        {4, 1, NCCL_ALL_REDUCE, 1 << 20, "", NCCL_RING},
        {16, 1, NCCL_ALL_GATHER, 1 << 20, "", NCCL_PAT},
        {16, 1, NCCL_ALL_GATHER, 1 << 28, "", NCCL_RING},
        {2, 8, NCCL_ALL_REDUCE, 1 << 28, "ring", NCCL_RING},
        {2, 8, NCCL_ALL_REDUCE, 1 << 28, "^NVLSTree,NVLS", NCCL_RING},
        {2, 8, NCCL_ALL_REDUCE, 1 << 28, "Tree,PAT", NCCL_TREE},
        {2, 8, NCCL_ALL_REDUCE, 1 << 28, "allreduce:tree", NCCL_NVLS_TREE}, /* not understood */
        {16, 1, NCCL_ALL_GATHER, 1 << 20, "Tree", NCCL_PAT},
    };
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        enum nccl_algorithm here = chosen(seen[i].nodes, seen[i].local, seen[i].function, seen[i].bytes, seen[i].list);
        if (here != seen[i].algorithm)
            fprintf(stderr, "row %zu: %s\n", i, nccl_algorithm_names[here]);
        CHECK_EQ(here, seen[i].algorithm);
    }
    struct nccl_shape s = shape(22203, 90, 16, 1);
    struct nccl_counts c = nccl_counts(&s, NULL);
    CHECK_EQ(nccl_choice(&s, &c, NCCL_ALL_GATHER, 1 << 20, true), NCCL_RING); /* it had no PAT */
    s = shape(23007, 100, 2, 4);
    c = nccl_counts(&s, NULL);
    CHECK_EQ(nccl_choice(&s, &c, NCCL_ALL_REDUCE, 1 << 28, true), NCCL_TREE);
    s = shape(23007, 90, 1, 8);
    c = nccl_counts(&s, NULL);
    CHECK_EQ(nccl_choice(&s, &c, NCCL_ALL_REDUCE, 1 << 28, false), NCCL_RING); /* a type that SHARP does not add */
    s.multicast = false;
    c = nccl_counts(&s, NULL);
    CHECK_EQ(nccl_choice(&s, &c, NCCL_ALL_REDUCE, 1 << 28, true), NCCL_RING);
}

static void code(void)
{
    static const struct {
        int capability;
        long mib;
    } known[] = {{70, 44}, {75, 44}, {80, 44}, {89, 44}, {90, 97}, {100, 97}, {103, 97}, {120, 85}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct nccl_shape s = shape(23007, known[i].capability, 1, 2);
        CHECK_EQ(mib(nccl_size_code(&s)), known[i].mib);
    }
}

int main(void)
{
    code();
    table();
    many();
    windows();
    settings();
    choices();
    return check_done();
}
