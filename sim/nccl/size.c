/* SPDX-License-Identifier: MIT
 *
 * NCCL's memory as tables and sums (size.h).
 *
 * NCCL gives each small table a block of its own, which the driver rounds to a page of 2 MiB.  A channel has
 * three of them (connections, their addresses, the order of the ring), a communicator two, each channel of NVLink
 * SHARP one, and one holds their credits.
 *
 * A connection has a header at the sender and buffers of three protocols at the receiver; on A100 over NVLink
 * the receiver reads the largest one from the sender.  A connection over the network has buffers on both
 * sides, which NICs reach directly; only in rings and trees: send and receive share a pool. */
#include "size.h"

#define SIZE_MIB        ((uint64_t)1 << 20)
#define SIZE_PAGE       (2 * SIZE_MIB)
#define SIZE_HEADER     4096u
#define SIZE_CONNECTION 608u                /* bytes of a table for each rank */
#define SIZE_COMM       ((uint64_t)1 << 17) /* less, in fact */
#define SIZE_STEPS      8                   /* of a buffer */
#define SIZE_POOL       16                  /* steps of a pool, for each channel */

/* From the version on.  Channels: most at all, of NVLink SHARP with capability 10.0 in one node, on two nodes and on
 * more; ranks of a node that NVLink SHARP wants; MiB of its buffers a head (0: by channels and NCCL_NVLS_CHUNKSIZE).
 * late: connects at the first use.  mapped: by cuMemCreate.  net: channels of a peer on another node depend on
 * the NIC.  pat: that algorithm is there. */
static const struct size_version {
    int from, most, nvls_one, nvls_two, nvls_more, nvls_least, head;
    bool late, mapped, net, pat;
} size_versions[] = {
    {23007, 64, 24, 32, 24, 2, 0, true, true, true, true},      /* seen */
    {22902, 64, 24, 32, 32, 2, 0, true, true, true, true},      /* read */
    {22800, 64, 24, 32, 32, 2, 0, true, true, false, true},     /* seen: 2.28.9 */
    {22700, 64, 24, 32, 32, 3, 0, true, true, false, true},     /* read */
    {22500, 64, 32, 32, 32, 3, 0, true, true, false, true},     /* read */
    {22300, 32, 16, 16, 16, 3, 0, true, true, false, true},     /* read */
    {22200, 32, 16, 16, 16, 3, 0, true, true, false, false},    /* read */
    {22100, 32, 16, 16, 16, 3, 0, false, true, false, false},   /* read */
    {21900, 32, 24, 24, 24, 3, 288, false, true, false, false}, /* read */
    {0, 32, 24, 24, 24, 3, 288, false, false, false, false},    /* assumed */
};

/* Channels of collectives: the first row that fits. */
static const struct size_board {
    int capability;
    bool linked, nodes; /* nodes: of several */
    int local, channels;
} size_boards[] = {
    {100, true, false, 2, 32}, /* seen */
    {90, true, false, 2, 24},  /* seen */
    {90, true, true, 3, 16},   /* seen */
    {90, true, true, 2, 8},    /* seen */
    {90, true, true, 1, 4},    /* seen */
    {80, true, false, 2, 24},  /* seen */
    {80, true, true, 8, 16},   /* read */
    {80, true, true, 3, 8},    /* seen */
    {80, true, true, 2, 4},    /* read */
    {80, true, true, 1, 2},    /* read */
    {0, true, false, 2, 12},   /* assumed */
    {0, true, true, 1, 4},     /* assumed */
    {0, false, false, 2, 2},   /* seen, with all GPUs on one bridge */
    {0, false, true, 1, 2},    /* read */
};

/* Channels of a peer on another node, from version 2.29 on, by the NIC that such machines have for each GPU: of 400
 * Gbit/s, 200 Gbit/s, less. */
static const struct {
    int capability;
    bool linked;
    int channels;
} size_nics[] = {{90, true, 4}, {80, true, 2}, {0, false, 1}, {0, true, 1}};

struct nccl_settings nccl_settings_default(void)
{
    struct nccl_settings settings = {
#define NCCL_SETTING(_field, _variable, _value) ._field = _value,
#include "setting.def"
#undef NCCL_SETTING
    };
    return settings;
}

static const struct size_version *size_version(const struct nccl_shape *shape)
{
    const struct size_version *version = size_versions;
    while (shape->version < version->from)
        version++;
    return version;
}

bool nccl_mapped(const struct nccl_shape *shape)
{
    return shape->set.mapped >= 0 ? shape->set.mapped != 0 : size_version(shape)->mapped;
}

bool nccl_late(const struct nccl_shape *shape)
{
    return size_version(shape)->late && nccl_mapped(shape) && shape->set.late;
}

static int size_least(int64_t one, int64_t two)
{
    return (int)(one < two ? one : two);
}

static int size_most(int64_t one, int64_t two)
{
    return (int)(one > two ? one : two);
}

static int size_power(int number)
{
    int power = 1;
    while (power < number)
        power *= 2;
    return power;
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

static int size_collective(const struct nccl_shape *shape, int limit)
{
    const struct nccl_settings *set = &shape->set;
    const struct size_board *board = size_boards;
    int most = size_version(shape)->most, channels = most;
    if (shape->ranks > 1) {
        while (shape->capability < board->capability || shape->linked != board->linked ||
               (shape->nodes > 1) != board->nodes || shape->local < board->local)
            board++;
        channels = board->channels;
    }
    channels = size_least(size_least(channels, size_most(set->channels_most, 1)), size_most(set->ctas_most, 1));
    channels = size_most(channels, size_least(size_most(set->channels_least, set->ctas_least), most));
    return size_least(channels, limit);
}

static int size_nvls(const struct nccl_shape *shape)
{
    const struct size_version *version = size_version(shape);
    const struct nccl_settings *set = &shape->set;
    int channels = shape->nodes == 1 ? version->nvls_one : shape->nodes == 2 ? version->nvls_two : version->nvls_more;
    if (!shape->linked || !shape->multicast || shape->capability < 90 || !set->nvls ||
        shape->local < version->nvls_least)
        return 0;
    if (shape->capability < 100 && !version->head)
        channels = 16;
    if (set->nvls_channels > 0)
        channels = (int)set->nvls_channels;
    return size_most(set->ctas_least, size_least(size_most(set->ctas_most, 1), size_least(channels, version->most)));
}

/* Fewer for each peer, until eight peers at a time have some each. */
static int size_remote_channels(const struct nccl_shape *shape, int p2p)
{
    const struct size_version *version = size_version(shape);
    int peer = 2, i = 0;
    if (shape->set.net_each > 0 && shape->version >= 22800)
        return (int)shape->set.net_each;
    if (!version->net) {
        while (2 * peer * shape->ranks > 8 * p2p && peer > 1)
            peer /= 2;
        return peer;
    }
    while (shape->capability < size_nics[i].capability || shape->linked != size_nics[i].linked)
        i++;
    for (peer = size_nics[i].channels; peer * ((shape->ranks + 7) / 8) > p2p && peer > 1;)
        peer /= 2;
    return peer;
}

struct nccl_counts nccl_counts(const struct nccl_shape *shape, const struct nccl_counts *parent)
{
    const struct nccl_settings *set = &shape->set;
    int most = size_version(shape)->most;
    struct nccl_counts counts = {.collective = size_collective(shape, parent ? parent->collective : most)};
    counts.p2p = size_least(counts.collective, size_most(set->p2p_most, 1));
    counts.p2p = size_least(size_power(size_most(counts.p2p, set->p2p_least)), most);
    if (parent)
        counts.p2p = size_least(counts.p2p, parent->p2p);
    counts.peer = shape->linked ? counts.p2p : 2;
    if (shape->nodes > 1)
        counts.peer = size_least(counts.peer, size_power(size_remote_channels(shape, counts.p2p)));
    counts.peer = size_least(counts.peer, counts.p2p);
    counts.nvls = size_nvls(shape);
    if (parent && parent->nvls)
        counts.nvls = size_least(counts.nvls, parent->nvls);
    counts.all = size_most(size_most(counts.collective, counts.p2p), counts.nvls);
    return counts;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint64_t size_pages(uint64_t bytes)
{
    return (bytes + SIZE_PAGE - 1) / SIZE_PAGE * SIZE_PAGE;
}

static uint64_t size_of_setting(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t size_local(const struct nccl_shape *shape, bool send)
{
    const struct nccl_settings *set = &shape->set;
    bool read = shape->linked && shape->capability == 80;
    if (set->p2p_off) /* memory of the host is between them */
        return 0;
    if (send)
        return size_pages(SIZE_HEADER + (read ? size_of_setting(set->simple) : 0));
    return size_pages(SIZE_HEADER + size_of_setting(set->ll) + size_of_setting(set->ll128) +
                      (read ? 0 : size_of_setting(set->simple)));
}

static uint64_t size_net(const struct nccl_shape *shape, bool send)
{
    const struct nccl_settings *set = &shape->set;
    if (set->net_host)
        return 0;
    return size_pages((send ? 0 : size_of_setting(set->ll)) + size_of_setting(set->ll128) +
                      size_of_setting(set->simple)) +
           (set->gdr_copy > 0 ? SIZE_PAGE : 0);
}

uint64_t nccl_size_pool(const struct nccl_shape *shape, const struct nccl_counts *counts)
{
    const struct nccl_settings *set = &shape->set;
    uint64_t most = size_of_setting(set->simple) / SIZE_STEPS;
    uint64_t chunk = size_of_setting(shape->nodes > 1                     ? set->net_chunk
                                     : shape->linked || shape->ranks == 1 ? set->link_chunk
                                                                          : set->pci_chunk);
    return size_pages((uint64_t)counts->p2p * SIZE_POOL * (chunk < most ? chunk : most));
}

/* Seen with 1, 2, 3, 4 and 8 ranks of a node, and none on several nodes. */
uint64_t nccl_size_window(const struct nccl_shape *shape)
{
    return shape->nodes > 1 ? 0 : 32 * SIZE_MIB + size_pages((uint64_t)shape->local * SIZE_MIB + 1);
}

bool nccl_proxied(const struct nccl_shape *shape)
{
    return shape->linked && !shape->set.proxy_off && shape->set.proxy_level == 2;
}

uint64_t nccl_size_peer(const struct nccl_shape *shape, const struct nccl_counts *counts, bool send)
{
    return (uint64_t)counts->peer * size_local(shape, send);
}

uint64_t nccl_size_remote(const struct nccl_shape *shape, const struct nccl_counts *counts, bool send)
{
    if (shape->set.net_host)
        return 0;
    if (shape->set.net_shared == 0)
        return (uint64_t)counts->peer * size_net(shape, send);
    return shape->set.gdr_copy > 0 ? (uint64_t)counts->peer * SIZE_PAGE : 0;
}

/* NCCL asks for the attributes of all its kernels when it makes a communicator, which loads their code.  MiB of what is loaded
 * of the cubins in the packages of 2.26.2, 2.27.3, 2.28.9, 2.29.7 and 2.30.7, in the middle; the rows differ by 4 from it, with
 * capability 10.0 by 5.  2.21.5 has 83 for capability 9.0. */
static const struct {
    int capability, mib;
} size_code[] = {{120, 85}, {100, 97}, {90, 97}, {0, 44}};

uint64_t nccl_size_code(const struct nccl_shape *shape)
{
    int i = 0;
    while (shape->capability < size_code[i].capability)
        i++;
    return (uint64_t)size_code[i].mib * SIZE_MIB;
}

/* ---- algorithms -------------------------------------------------------------------------------------------------- */

static double size_pat(const struct nccl_shape *shape, double channels, double net)
{
    double sum = 0;
    for (int64_t far = 1; far < shape->ranks; far *= 2) /* both directions, to both sides */
        sum += channels * net * (2 * far == shape->ranks ? 1 : 2);
    return sum;
}

/* All connections of the algorithms together, in the mean of the ranks of a node: which rank has the ends of a ring or tree
 * differs from channel to channel.  Two algorithms share the connections that both have.  Of the channels of a node, a
 * ring goes from rank to rank and leaves through the last one; a tree is a chain in both directions, whose node has two
 * neighbours in the mean, less at its ends; in a tree of NVLink SHARP each rank is the chain's end. */
static uint64_t size_connected(const struct nccl_shape *shape, const struct nccl_counts *counts, unsigned set)
{
    double near = (double)(size_local(shape, true) + size_local(shape, false));
    double net = (double)(size_net(shape, true) + size_net(shape, false));
    double local = shape->local, nodes = shape->nodes, channels = counts->collective;
    double out = shape->nodes > 1 ? net * 2 * (nodes - 1) / nodes : 0, sum = 0;
    bool ring = set & 1u << NCCL_RING, tree = set & 1u << NCCL_TREE, nvls = set & 1u << NCCL_NVLS_TREE;
    if (shape->ranks == 1)
        return 0;
    if (set & 1u << NCCL_PAT)
        return (uint64_t)size_pat(shape, channels, net); /* has the others' connections too */
    if (ring)
        sum += channels * (shape->nodes > 1 ? (local - 1) * near + net : local * near) / local;
    if (tree)
        sum += channels * ((local - 1) * 2 * near + out) / local;
    if (ring && tree) {
        double shared = (local - 1) * near;
        if (shape->nodes == 1 && shape->local == 2)
            shared = 2 * near;
        else if (shape->nodes > 1 && shape->local == 1)
            shared = shape->nodes == 2 ? net : net / 2;
        else if (shape->nodes > 1)
            shared = local < 8 ? (local > 2 ? local - 2 : 1) * near
                               : (local - 1.5) * near + (shape->nodes == 2 ? net : net / 2);
        sum -= channels * shared / local;
    }
    if (nvls)
        sum += counts->nvls * out - (tree ? channels * out / local : 0);
    return (uint64_t)sum;
}

static uint64_t size_buffers(const struct nccl_shape *shape, const struct nccl_counts *counts)
{
    const struct size_version *version = size_version(shape);
    uint64_t heads = (uint64_t)shape->local, chunk = size_of_setting(shape->set.nvls_chunk);
    if (!counts->nvls)
        return 0;
    if (version->head)
        return heads * (uint64_t)version->head * SIZE_MIB;
    if (shape->capability >= 100 && shape->version >= 23007 && shape->nodes == 2 && shape->local <= 4 &&
        chunk == 128 << 10)
        chunk *= 2;
    return size_pages(heads * (uint64_t)counts->nvls * 2 * SIZE_STEPS * chunk);
}

uint64_t nccl_size_algorithm(const struct nccl_shape *shape, const struct nccl_counts *counts,
                             enum nccl_algorithm algorithm, unsigned connected)
{
    unsigned sharp = 1u << NCCL_NVLS | 1u << NCCL_NVLS_TREE, now = 1u << algorithm;
    uint64_t before = size_pages(size_connected(shape, counts, connected));
    uint64_t after = size_pages(size_connected(shape, counts, connected | now)), buffers = 0;
    if (now & sharp && !(connected & sharp))
        buffers = size_buffers(shape, counts);
    return (after > before ? after - before : 0) + buffers;
}

uint64_t nccl_size_start(const struct nccl_shape *shape, const struct nccl_counts *counts,
                         const struct nccl_counts *parent)
{
    const struct size_version *version = size_version(shape);
    uint64_t ranks = (uint64_t)shape->ranks, local = (uint64_t)shape->local, bytes = 0;
    bool same = parent && parent->nvls; /* its buffers of NVLink SHARP serve here too */
    uint64_t tables[] = {parent ? 0 : SIZE_CONNECTION * ranks, 8 * (ranks + 1 + local), 4 * ranks};
    uint64_t comm[] = {4 * ranks, SIZE_COMM};
    bool mapped = nccl_mapped(shape);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        bytes += (uint64_t)counts->all * (mapped ? size_pages(tables[i]) : tables[i]);
    for (size_t i = 0; i < sizeof comm / sizeof *comm; i++)
        bytes += mapped ? size_pages(comm[i]) : comm[i];
    if (counts->nvls && !same)
        bytes += (uint64_t)counts->nvls * (mapped ? size_pages(SIZE_CONNECTION * local) : SIZE_CONNECTION * local) +
                 SIZE_PAGE;
    bytes = size_pages(bytes);
    if (nccl_late(shape))
        return bytes;
    static const enum nccl_algorithm all[] = {NCCL_RING, NCCL_TREE, NCCL_PAT, NCCL_NVLS_TREE, NCCL_NVLS};
    unsigned connected = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool net = all[i] == NCCL_NVLS_TREE, far = all[i] == NCCL_PAT;
        if ((net && (!counts->nvls || shape->nodes == 1)) || (far && (!version->pat || shape->local > 1)) ||
            shape->ranks == 1)
            continue;
        bytes += nccl_size_algorithm(shape, counts, all[i], connected);
        connected |= 1u << all[i];
    }
    /* A pool for its own messages, and for those of each rank of its node that go through its GPU. */
    return bytes + nccl_size_pool(shape, counts) * (shape->nodes > 1 && nccl_proxied(shape) ? local : 1);
}
