/* SPDX-License-Identifier: MIT
 * peer_fixture.h: a session with every part that a library can have, and its reader. */
#ifndef GP_TEST_UNIT_PEER_FIXTURE_H
#define GP_TEST_UNIT_PEER_FIXTURE_H

#include <base/clock.h>
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <lib/session.h>
#include <read/collect/collect.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UP(_x) (((_x) + 4095u) & ~(uint64_t)4095u)

static struct gp_test_session s;
static struct gp_wire_owners *owners;
static struct gp_wire_before *before;
static struct gp_wire_blocks *blocks;
static struct gp_wire_doors *doors;
static struct gp_wire_oom_framework *oom_framework;
static struct gp_peer peer;
static char problem[GP_PROBLEM_BYTES];
static struct gp_process process;

static void begin(void)
{
    cr_assert_eq(gp_test_session_make(&s, 64, false), 0);
    uint64_t at = UP(s.bytes), to_before = at + UP(sizeof(*owners)), to_blocks = to_before + UP(sizeof(*before));
    uint64_t to_doors = to_blocks + UP(sizeof(*blocks)), to_framework = to_doors + UP(sizeof(*doors));
    uint64_t end = to_framework + sizeof(*oom_framework);
    cr_assert_eq(ftruncate(s.fd, (off_t)end), 0);
    char *map = mmap(NULL, end - at, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, (off_t)at);
    cr_assert_neq(map, MAP_FAILED);
    owners = (void *)map, before = (void *)(map + (to_before - at)), blocks = (void *)(map + (to_blocks - at));
    doors = (void *)(map + (to_doors - at)), oom_framework = (void *)(map + (to_framework - at));
    struct gp_wire_header *h = s.header;
    h->total_bytes = end;
    h->owners_offset = at, h->owners_bytes = sizeof(*owners);
    h->before_offset = to_before, h->before_bytes = sizeof(*before);
    h->blocks_offset = to_blocks, h->blocks_bytes = sizeof(*blocks);
    h->doors_offset = to_doors, h->doors_bytes = sizeof(*doors);
    h->oom_framework_offset = to_framework, h->oom_framework_bytes = sizeof(*oom_framework);
    gp_test_session_device(&s, 0, "Simulated GPU 0", 1 << 20);
    gp_test_session_device(&s, 3, "Another", 1 << 20);
    gp_test_session_host(&s, 4096);
    gp_test_session_scope(&s, 3, "step", 99);
    s.failures[1] = (struct gp_wire_failure){.api = "cuMemAlloc_v2", .error = 2, .count = 9};
    s.failures[GP_WIRE_FAILURES - 1] = (struct gp_wire_failure){.api = "cuMemFree_v2", .error = 3, .count = 1};
    *s.oom = (struct gp_wire_oom){.seq = 2, .count = 1, .error = 2};
    *s.cupti = (struct gp_wire_cupti){.copies = 1, .shared = 1};
    owners->count = 2;
    before->attached = 1;
    before->devices[3] = (struct gp_wire_before_device){.bytes = 77, .source = GP_BEFORE_DRIVER};
    blocks->state = GP_BLOCKS_ABSENT;
    gp_test_session_publish(&s);
}

static int load(void)
{
    problem[0] = '\0';
    int rc = gp_peer_load(&peer, dup(s.fd), problem);
    if (rc)
        cr_expect_eq(peer.fd, -1);
    return rc;
}

static void take(void)
{
    memset(&process, 0, sizeof(process));
    cr_assert_eq(load(), 0, "%s", problem);
    cr_assert_eq(gp_peer_read(&peer, &process), 0);
    gp_peer_close(&peer);
}

#endif
