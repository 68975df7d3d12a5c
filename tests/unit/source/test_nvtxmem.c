/* SPDX-License-Identifier: MIT
 *
 * test_nvtxmem.c: NVTX's extension for memory: what each function reports of heaps and regions, which descriptions are
 * refused, and which tables of slots are filled.  The accounts are a text (feed_log.h).
 */
#include "feed_log.h"
#include "source/source.h"
#include <criterion/criterion.h>
#include <errno.h>

int InitializeInjectionNvtxExtension(void *module);

/* ---- NVTX's side: layouts of its header -------------------------------------------------------------------------- */

#define COMPAT  0x0102u
#define NO_HEAP ((const void *)(intptr_t)-1)
#define PTR(_n) ((void *)(uintptr_t)(_n))

struct range {
    size_t bytes;
    const void *address;
};

struct heap {
    uint16_t compat, bytes;
    uint32_t reserved, usage, type;
    size_t range_bytes;
    const struct range *range;
    uint32_t category, message_type;
    const void *message;
};

struct regions {
    uint16_t compat, bytes;
    uint32_t type;
    const void *heap;
    size_t count, stride;
    const void *ranges;
    const void **handles;
};

struct list {
    uint16_t compat, bytes;
    uint32_t type;
    size_t count, stride;
    const void *elements;
};

struct segment {
    size_t id, count;
    intptr_t *slots;
};

struct module {
    uint16_t version, bytes, module, compat;
    size_t count;
    struct segment *segments;
};

#define SLOTS 16
static intptr_t slots[SLOTS];
static struct segment segment = {0, SLOTS, slots};
static struct module module = {1, sizeof(module), 1, COMPAT, 1, &segment};

static void start(void)
{
    cr_assert_eq(InitializeInjectionNvtxExtension(&module), 1);
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_nvtx_start();
    errno = 4711;
}

TestSuite(nvtxmem, .timeout = 60);

static void did(const char *want, const char *what)
{
    const char *is = feed_taken();
    cr_expect_str_eq(is, want, "%s: %s", what, is);
    cr_expect_eq(errno, 4711, "%s", what);
    cr_expect_eq(gp_thread.inside, 0, "%s", what);
}

static const void *heap_register(const void *heap)
{
    return ((const void *(*)(const void *, const void *))slots[1])(PTR(1), heap);
}

static void call(int slot, const void *argument)
{
    ((void (*)(const void *, const void *))slots[slot])(PTR(1), argument);
}

#define LOST "lost 10;" /* annotation */

/* The good description with one change, which is undone afterwards. */
#define CHANGED(_slot, _change, _text)                                                                                 \
    is = good;                                                                                                         \
    is._change;                                                                                                        \
    call(_slot, &is);                                                                                                  \
    did(_text, #_change)
#define HEAP_CHANGED(_change, _address, _text)                                                                         \
    is = good;                                                                                                         \
    is._change;                                                                                                        \
    cr_expect_eq(heap_register(&is), _address, #_change);                                                              \
    did(_text, #_change)

/* ---- heaps ------------------------------------------------------------------------------------------------------- */

Test(nvtxmem, heaps)
{
    struct range range = {100, PTR(0x1000)};
    const struct heap good = {COMPAT, sizeof(good), 0, 1, 1, sizeof(range), &range, 0, 0, NULL};
    start();
    cr_expect_eq(heap_register(&good), PTR(0x1000));
    did("heap at 1000 of 100;", "good");
    feed_token = 0;
    cr_expect_eq(heap_register(&good), NO_HEAP);
    did("heap at 1000 of 100;", "the accounts ignore it");
    feed_token = 1;
    call(2, PTR(0x1000));
    did("heap end 1000;", "unregister");
    call(3, PTR(0x1000));
    did("heap reset 1000;", "reset");
    struct heap is;
    HEAP_CHANGED(bytes++, PTR(0x1000), "heap at 1000 of 100;");
    HEAP_CHANGED(range_bytes++, PTR(0x1000), "heap at 1000 of 100;");
    HEAP_CHANGED(bytes--, NO_HEAP, LOST);
    HEAP_CHANGED(compat++, NO_HEAP, LOST);
    HEAP_CHANGED(compat--, NO_HEAP, LOST);
    HEAP_CHANGED(range = NULL, NO_HEAP, LOST);
    HEAP_CHANGED(range_bytes--, NO_HEAP, LOST);
    HEAP_CHANGED(usage = 0, NO_HEAP, "");
    HEAP_CHANGED(usage = 2, NO_HEAP, "");
    HEAP_CHANGED(type = 0, NO_HEAP, "");
    HEAP_CHANGED(type = 2, NO_HEAP, "");
    cr_expect_eq(heap_register(NULL), NO_HEAP);
    did(LOST, "none");
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

struct wide { /* a program's own structs that begin with what NVTX reads */
    struct range range;
    long own;
};

Test(nvtxmem, regions)
{
    const struct wide wide[3] = {{{100, PTR(0x1000)}, -1}, {{200, PTR(0x2000)}, -1}, {{300, PTR(0x3000)}, -1}};
    const struct range narrow[2] = {{100, PTR(0x1000)}, {200, PTR(0x2000)}};
    const void *handles[4] = {NULL};
    const struct regions good = {COMPAT, sizeof(good), 1, PTR(0x9000), 3, sizeof(wide[0]), wide, handles};
    struct regions is = good;
    start();
    call(4, &good);
    did("block in 9000 at 1000 of 100;block in 9000 at 2000 of 200;block in 9000 at 3000 of 300;", "three");
    cr_expect(handles[0] == PTR(0x1000) && handles[1] == PTR(0x2000) && handles[2] == PTR(0x3000) && !handles[3]);
    memset(handles, 0, sizeof(handles));
    is.heap = NO_HEAP;
    call(4, &is);
    did("", "of a heap that was refused");
    cr_expect_eq(handles[2], PTR(0x3000), "they have handles nevertheless");
    is = good;
    is.handles = NULL;
    is.ranges = narrow;
    is.stride = sizeof(narrow[0]);
    is.count = 2;
    call(4, &is);
    did("block in 9000 at 1000 of 100;block in 9000 at 2000 of 200;", "without handles");
    CHANGED(4, count = 1, "block in 9000 at 1000 of 100;");
    CHANGED(4, count = 0, "");
    CHANGED(4, bytes--, LOST);
    CHANGED(4, compat = 0x0101, LOST);
    CHANGED(4, type = 0, LOST);
    CHANGED(4, type = 2, LOST);
    CHANGED(4, ranges = NULL, LOST);
    CHANGED(4, stride = 8, LOST);
    CHANGED(4, stride = 15, LOST);
    CHANGED(4, stride = 20, LOST);
    CHANGED(4, stride = 0, LOST);
    CHANGED(4, count = SIZE_MAX / 24 + 1, LOST);
    CHANGED(4, count = PTRDIFF_MAX / 24 + 1, LOST);
    call(4, NULL);
    did(LOST, "none");
}

Test(nvtxmem, regions_are_resized)
{
    const struct wide wide[2] = {{{100, PTR(0x1000)}, -1}, {{200, PTR(0x2000)}, -1}};
    const struct list good = {COMPAT, sizeof(good), 1, 2, sizeof(wide[0]), wide};
    struct list is;
    start();
    CHANGED(5, type = 1, "resize 1000 to 100;resize 2000 to 200;");
    CHANGED(5, count = 1, "resize 1000 to 100;");
    CHANGED(5, count = 0, "");
    CHANGED(5, type = 0, LOST);
    CHANGED(5, type = 2, LOST);
    CHANGED(5, stride = 8, LOST);
    CHANGED(5, stride = 20, LOST);
    CHANGED(5, bytes--, LOST);
    CHANGED(5, compat++, LOST);
    CHANGED(5, elements = NULL, LOST);
    CHANGED(5, count = PTRDIFF_MAX / 24 + 1, LOST);
    call(5, NULL);
    did(LOST, "none");
}

Test(nvtxmem, regions_end)
{
    const void *const names[3] = {PTR(0x1000), PTR(0x2000), PTR(0x3000)};
    const struct list good = {COMPAT, sizeof(good), 1, 3, sizeof(names[0]), names};
    const struct list wide = {COMPAT, sizeof(good), 1, 2, 2 * sizeof(names[0]), names};
    struct list is;
    start();
    CHANGED(6, type = 1, "unblock 1000;unblock 2000;unblock 3000;");
    CHANGED(6, type = 2, "unblock 1000;unblock 2000;unblock 3000;");
    CHANGED(6, count = 1, "unblock 1000;");
    CHANGED(6, count = 0, "");
    CHANGED(6, type = 0, LOST);
    CHANGED(6, type = 3, LOST);
    CHANGED(6, stride = 7, LOST);
    CHANGED(6, stride = 0, LOST);
    CHANGED(6, stride = 12, LOST);
    CHANGED(6, bytes--, LOST);
    CHANGED(6, compat++, LOST);
    CHANGED(6, elements = NULL, LOST);
    CHANGED(6, count = PTRDIFF_MAX / 8 + 1, LOST);
    call(6, &wide);
    did("unblock 1000;unblock 3000;", "every second one");
    call(6, NULL);
    did(LOST, "none");
}

/* ---- the door ---------------------------------------------------------------------------------------------------- */

/* Before the start, inside our own code, and where the library is off, nothing is looked at. */
Test(nvtxmem, nothing_is_reported_from_outside)
{
    struct range range = {100, PTR(0x1000)};
    const struct heap good = {COMPAT, sizeof(good), 0, 1, 1, sizeof(range), &range, 0, 0, NULL};
    cr_assert_eq(InitializeInjectionNvtxExtension(&module), 1);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            start();
        gp_thread.inside = i == 1;
        errno = 4711;
        if (i == 2) {
            gp_thread_life_end();
        }
        cr_expect_eq(heap_register(&good), NO_HEAP);
        for (int slot = 2; slot <= 6; slot++)
            call(slot, NULL);
        cr_expect_eq(gp_thread.inside, i == 1);
        gp_thread.inside = 0;
        did("", "from outside");
    }
}

static void filled(int result, size_t from, size_t to, const char *what)
{
    memset(slots, 0, sizeof(slots));
    cr_expect_eq(InitializeInjectionNvtxExtension(&module), result, "%s", what);
    for (size_t i = 0; i < SLOTS; i++)
        cr_expect_eq(slots[i] != 0, result && i >= from && i <= to, "%s: slot %zu", what, i);
}

Test(nvtxmem, slots_that_are_there_are_filled)
{
    filled(1, 1, 6, "all");
    for (size_t count = 0; count <= 8; count++) {
        segment.count = count;
        filled(1, 1, count == 0 ? 0 : count < 7 ? count - 1 : 6, "fewer");
    }
    segment.count = SLOTS;
    module.count = 2;
    filled(1, 1, 6, "more segments");
    module.count = 0;
    filled(0, 1, 6, "no segment");
    module.count = 1;
    module.bytes++;
    filled(1, 1, 6, "a later version");
    module.bytes -= 2;
    filled(0, 1, 6, "too small");
    module.bytes++;
    module.module = 2;
    filled(0, 1, 6, "another module");
    module.module = 1;
    module.compat++;
    filled(0, 1, 6, "another layout");
    module.compat--;
    module.segments = NULL;
    filled(0, 1, 6, "no segments");
    module.segments = &segment;
    segment.id = 1;
    filled(0, 1, 6, "another segment");
    segment.id = 0;
    segment.slots = NULL;
    filled(0, 1, 6, "no slots");
    cr_expect_eq(InitializeInjectionNvtxExtension(NULL), 0);
}
