/* SPDX-License-Identifier: MIT
 *
 * test_python_walk.c: a made-up interpreter of each version is loaded, and random chains of its frames are walked, in place
 * and copied, against a plain model.  tests/integration/test_python_stack.sh does it with real interpreters.
 */
#include "base/compiler.h"
#include "base/thread.h"
#include "lib/build.h"
#include "python_debug.h"
#include "stack/python.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CODES  12u
#define FRAMES 48u
#define ROOM   32u

static struct gp_python_layout at;
static unsigned minor_now;
static void **state, **holder, **newest, **first;
static int *finalizing;
static unsigned *asked; /* how often Python was asked whether it shuts down: after each copy, and at no other time */
static uint64_t code_type;

/* ---- the interpreter --------------------------------------------------------------------------------------------- */

static void *fake_open(unsigned minor, const char *option)
{
    char *folder = build_folder(), path[256], flag[64];
    snprintf(path, sizeof(path), "%s/fake.so", folder);
    snprintf(flag, sizeof(flag), "-DFAKE_MINOR=%u", minor);
    cr_assert_eq(build_shared(folder, "fakepython.c", "fake.so", option ? option : flag), 0);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    build_remove(folder);
    return library;
}

/* It is looked for every 100 ms. */
static const struct gp_python *fake_find(void)
{
    const struct gp_python *python = NULL;
    for (int i = 0; i < 100 && !python && !gp_python_note(); i++) {
        python = gp_python_find();
        if (!python && !gp_python_note())
            usleep(20000);
    }
    return python;
}

static void fake_start(unsigned minor, bool is_free, const char *option)
{
    static int state_of_another;
    const char *why;
    cr_assert_null(gp_python_find(), "none is loaded");
    void *library = fake_open(minor, option);
    state = dlsym(library, "fake_state");
    holder = dlsym(library, "fake_holder");
    newest = dlsym(library, "fake_newest");
    first = dlsym(library, "fake_first");
    finalizing = dlsym(library, "fake_finalizing");
    asked = dlsym(library, "fake_calls");
    code_type = (uint64_t)(uintptr_t)dlsym(library, "PyCode_Type");
    uint64_t *debug = dlsym(library, "_PyRuntime");
    if (debug) {
        debug_fill(debug, minor);
        debug[2] = is_free;
    }
    *newest = *first = &state_of_another;
    cr_assert(gp_python_layout(&at, 0x300 + minor, debug, &why), "%s", why);
    errno = 77;
    const struct gp_python *python = fake_find();
    cr_assert_eq(errno, 77);
    cr_assert_not_null(python, "3.%u: %s", minor, gp_python_note());
    cr_assert_null(gp_python_note());
    cr_assert_eq(python->version, 0x300 + minor);
    cr_assert_eq(python->free_threaded, is_free);
    cr_assert_eq(memcmp(&python->at, &at, sizeof(at)), 0);
    cr_assert_eq(gp_python_find(), python);
    minor_now = minor;
}

/* ---- its objects ------------------------------------------------------------------------------------------------- */

static struct code {
    char object[1024] __attribute__((aligned(16)));
    char name[80] __attribute__((aligned(16))), file[80] __attribute__((aligned(16)));
    char table[256] __attribute__((aligned(16)));
    uint32_t line;
    int32_t traceable;
} codes[CODES];

static void put(void *object, unsigned offset, uint64_t value, size_t bytes)
{
    memcpy((char *)object + offset, &value, bytes);
}

static void text_make(char *object, const char *text)
{
    uint64_t length = strlen(text);
    put(object, at.text_length, length, 8);
    put(object, at.text_state, 1u | 1u << 2 | 1u << 5 | 1u << 6, 4);
    memcpy(object + at.text_ascii, text, length + 1);
}

/* Every eight units of code are one line further. */
static void table_make(char *object)
{
    char *bytes = object + at.bytes_data;
    size_t size = 0;
    for (int i = 0; i < 40; i++) {
        if (minor_now == 10) {
            bytes[size++] = 16;
            bytes[size++] = 1;
        } else {
            bytes[size++] = (char)(128 | 11 << 3 | 7);
            bytes[size++] = 0;
            bytes[size++] = 9;
        }
    }
    put(object, at.bytes_size, size, 8);
}

static void codes_make(void)
{
    char name[32];
    memset(codes, 0, sizeof(codes));
    for (unsigned i = 0; i < CODES; i++) {
        struct code *code = &codes[i];
        snprintf(name, sizeof(name), "Model%u.forward", i);
        text_make(code->name, name);
        snprintf(name, sizeof(name), "/src/part%u.py", i / 2);
        text_make(code->file, name);
        table_make(code->table);
        code->line = 100 * i + 7;
        code->traceable = (int32_t)(i % 5);
        put(code->object, at.object_type, i == CODES - 1 ? code_type + 8 : code_type,
            8); /* the last is something else */
        put(code->object, at.code_name, (uintptr_t)code->name, 8);
        put(code->object, at.code_file, (uintptr_t)code->file, 8);
        put(code->object, at.code_table, (uintptr_t)code->table, 8);
        put(code->object, at.code_line, code->line, 4);
        if (at.code_traceable != GP_PYTHON_NONE)
            put(code->object, at.code_traceable, (uint32_t)code->traceable, 4);
        if (at.code_version != GP_PYTHON_NONE)
            put(code->object, at.code_version, i % 3 ? 500 + i : 0, 4);
    }
    put(codes[CODES - 2].object, at.code_file, 4096, 8); /* this one's file is no string */
}

struct made { /* a frame as the model knows it */
    uint64_t address, previous;
    unsigned code, owner, unit;
    bool is_lost; /* its memory is not mapped */
};

static struct made made[FRAMES];
static unsigned made_count;
static char *pages; /* the last of four is not readable */

static uint32_t frame_bytes(void)
{
    return at.frame_owner == GP_PYTHON_NONE ? at.frame_instr + 4u : at.frame_owner + 1u;
}

static void frame_write(const struct made *frame)
{
    char *to = (char *)(uintptr_t)frame->address;
    const struct code *code = &codes[frame->code];
    memset(to, 0, frame_bytes());
    put(to, at.frame_previous, frame->previous, 8);
    put(to, at.frame_code, (uintptr_t)code->object | (minor_now == 14 ? frame->unit & 1 : 0), 8);
    if (at.frame_owner == GP_PYTHON_NONE) {
        put(to, at.frame_instr, frame->unit, 4);
        return;
    }
    put(to, at.frame_owner, frame->owner, 1);
    put(to, at.frame_instr, (uintptr_t)code->object + at.code_bytes + 2 * frame->unit, 8);
}

/* A chain of frames in the pages, at places of their own, one of them at the very end of what can be read. */
static void chain_make(bool may_be_lost)
{
    made_count = 1 + (unsigned)rand() % (FRAMES - 1);
    unsigned at_end = (unsigned)rand() % (2 * FRAMES), lost = may_be_lost ? (unsigned)rand() % (2 * FRAMES) : FRAMES;
    for (unsigned i = 0; i < made_count; i++) {
        bool odd = rand() % 50 == 0;
        made[i] = (struct made){
            .address = (uintptr_t)pages + 240 * (uint64_t)(i * 37 % FRAMES) + 8 * ((unsigned)rand() % 12),
            .code = (unsigned)rand() % (odd ? CODES : CODES - 2),
            .owner = rand() % 6 ? (unsigned)rand() % 3 : 3 + (unsigned)rand() % 2,
            .unit = (unsigned)rand() % (rand() % 3 ? 300 : 6),
        };
        if (i == at_end)
            made[i].address = ((uintptr_t)pages + 3 * 4096 - frame_bytes()) & ~7ull;
        if (i == lost)
            made[i].address = (uintptr_t)pages + 3 * 4096 + 64, made[i].is_lost = true;
    }
    static const uint64_t ends[] = {0, 0, 0, 0, 8, 65528, 1ull << 48};
    for (unsigned i = 0; i < made_count; i++) {
        made[i].previous = i + 1 < made_count ? made[i + 1].address : ends[rand() % (int)GP_COUNT(ends)];
        if (i + 1 == made_count && rand() % 4 == 0)
            made[i].previous = made[0].address + 4; /* not aligned */
        if (!made[i].is_lost)
            frame_write(&made[i]);
    }
}

static char state_object[256] __attribute__((aligned(16)));

static void state_make(void)
{
    static uint64_t cframe[4];
    uint64_t innermost = made_count ? made[0].address : 0;
    memset(cframe, 0, sizeof(cframe));
    if (at.cframe_frame != GP_PYTHON_NONE) {
        put(cframe, at.cframe_frame, innermost, 8);
        innermost = (uintptr_t)cframe;
    }
    put(state_object, at.state_frame, innermost, 8);
    *state = state_object;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static unsigned model(unsigned room, const struct made *out[ROOM], bool *more)
{
    unsigned count = 0;
    *more = false;
    for (unsigned i = 0; i < made_count && !made[i].is_lost; i++) {
        bool has_owner = at.frame_owner != GP_PYTHON_NONE;
        if (has_owner && made[i].owner >= 3)
            continue;
        if (made[i].code == CODES - 1)
            break;
        if (has_owner && made[i].owner != 1 && (int)made[i].unit < codes[made[i].code].traceable)
            continue;
        if (count == room) {
            *more = true;
            break;
        }
        if (made[i].code == CODES - 2)
            break;
        out[count++] = &made[i];
    }
    return count;
}

static bool text_is(const struct gp_python_text *text, const char *object)
{
    const char *want = object + at.text_ascii;
    return text->length == strlen(want) && memcmp(text->bytes, want, text->length) == 0;
}

/* The number of the first wrong frame, or -1. */
static int walk_wrong(unsigned room)
{
    struct gp_python_frame got[ROOM + 1];
    const struct made *want[ROOM];
    bool more, also;
    unsigned count = gp_stack_python(got, room, &more), should = model(room, want, &also);
    for (unsigned i = 0; i < count && i < should; i++) {
        const struct code *code = &codes[want[i]->code];
        if (got[i].code != (uint64_t)(uintptr_t)code->object || !text_is(&got[i].function, code->name) ||
            !text_is(&got[i].file, code->file) || got[i].line != code->line + 1 + want[i]->unit / 8)
            return (int)i;
    }
    return count != should || more != also ? (int)(100 + count) : -1;
}

/* The same on a thread that the library knows, as it is inside a driver call. */
static int walk_known(unsigned room)
{
    bool entered = room % 2 && gp_thread_enter();
    int wrong = walk_wrong(room);
    if (entered)
        gp_thread_leave();
    return wrong;
}

static void *thread_walk(void *room)
{
    return (void *)(intptr_t)walk_known((unsigned)(uintptr_t)room);
}

static int walk_elsewhere(unsigned room)
{
    pthread_t thread;
    void *wrong;
    cr_assert_eq(pthread_create(&thread, NULL, thread_walk, (void *)(uintptr_t)room), 0);
    pthread_join(thread, &wrong);
    return (int)(intptr_t)wrong;
}

/* The thread has the interpreter's lock; or it is the main thread, which may read in place too; or the kernel copies. */
static void walk_all_ways(unsigned minor, bool is_free)
{
    static int other;
    pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 3 * 4096, 4096, PROT_NONE);
    cr_assert_eq(gp_thread_life_start(), 0);
    codes_make();
    srand(4711 + minor);
    for (unsigned round = 0; round < 600; round++) {
        unsigned way = round % 5, room = rand() % 3 ? ROOM : (unsigned)rand() % ROOM;
        bool is_copied = way == 2 || way == 3;
        /* 3.10 has frames that are objects, which are not copied. */
        chain_make(is_copied && (minor > 10 || is_free));
        state_make();
        *holder = way == 0 ? *state : way == 4 ? (void *)&other : NULL;
        *newest = way == 3 && minor >= 12 ? (void *)state : *first;
        unsigned before = *asked;
        int wrong = is_copied || way == 0 ? walk_elsewhere(room) : walk_known(room);
        cr_assert_eq(wrong, -1, "3.%u, round %u, way %u: frame %d", minor, round, way, wrong);
        cr_assert_eq(*asked > before, is_copied, "3.%u, round %u, way %u", minor, round, way);
    }
}

static void no_state(void)
{
    struct gp_python_frame got[2];
    bool more = true;
    *state = NULL;
    cr_assert_eq(gp_stack_python(got, 2, &more), 0);
    cr_assert_not(more);
}

static void *thread_count(void *argument)
{
    struct gp_python_frame got[ROOM];
    bool more;
    (void)argument;
    return (void *)(uintptr_t)gp_stack_python(got, ROOM, &more);
}

static unsigned count_elsewhere(void)
{
    pthread_t thread;
    void *count;
    cr_assert_eq(pthread_create(&thread, NULL, thread_count, NULL), 0);
    pthread_join(thread, &count);
    return (unsigned)(uintptr_t)count;
}

/* A thread without the lock gives nothing once shutdown has begun. */
static void at_shutdown(void)
{
    made_count = 1;
    made[0] = (struct made){.address = (uintptr_t)pages, .unit = 50};
    frame_write(&made[0]);
    state_make();
    *holder = NULL;
    *newest = *first;
    cr_assert_eq(count_elsewhere(), 1);
    *finalizing = 1;
    cr_assert_eq(count_elsewhere(), 0);
    *holder = *state;
    cr_assert_eq(count_elsewhere(), 1, "in place");
    *finalizing = 0;
    *holder = NULL;
    cr_assert_eq(count_elsewhere(), 1);
}

static void __attribute__((noinline)) stack_scribble(void)
{
    volatile char bytes[16384];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = 0;
}

/* The copies of a thread's first walk and of its second one. */
static void *thread_copies(void *argument)
{
    unsigned *copies = argument;
    bool entered = gp_thread_enter();
    for (unsigned i = 0; i < 2; i++) {
        unsigned before = *asked;
        stack_scribble(); /* what is known of the first walk does not lie there */
        if (walk_wrong(ROOM) < 0)
            copies[i] = *asked - before;
    }
    if (entered)
        gp_thread_leave();
    return NULL;
}

/* A thread's second walk fetches the frames of its first with the state's word, in one copy. */
static void walked_again(void)
{
    unsigned copies[2] = {0};
    pthread_t thread;
    made_count = 2;
    made[0] = (struct made){.address = (uintptr_t)pages + 8192, .previous = (uintptr_t)pages, .code = 1, .unit = 50};
    made[1] = (struct made){.address = (uintptr_t)pages, .code = 1, .unit = 50};
    frame_write(&made[0]), frame_write(&made[1]);
    state_make();
    *holder = NULL;
    *newest = *first;
    cr_assert_eq(pthread_create(&thread, NULL, thread_copies, copies), 0);
    pthread_join(thread, NULL);
    cr_expect(copies[0] > 2 && copies[1] == 1, "%u, then %u", copies[0], copies[1]);
}

/* Frames of C between two of Python, as many as are passed over, and one more. */
static void many_skipped(void)
{
    static char frames[4098][GP_PYTHON_FRAME] __attribute__((aligned(16)));
    struct gp_python_frame got[2];
    bool more;
    for (unsigned skipped = 4095; skipped <= 4096; skipped++) {
        for (unsigned i = 0; i <= skipped; i++) {
            struct made frame = {.address = (uintptr_t)frames[i], .owner = i < skipped ? 3 : 0, .unit = 80};
            frame.previous = i < skipped ? (uintptr_t)frames[i + 1] : 0;
            frame_write(&frame);
        }
        made_count = 1;
        made[0].address = (uintptr_t)frames[0];
        state_make();
        *holder = *state;
        cr_assert_eq(gp_stack_python(got, 2, &more), skipped == 4095, "%u", skipped);
    }
}

static void version(unsigned minor, bool is_free)
{
    fake_start(minor, is_free, NULL);
    walk_all_ways(minor, is_free);
    no_state();
    if (minor > 10 && !is_free)
        walked_again();
    at_shutdown();
    if (at.frame_owner != GP_PYTHON_NONE)
        many_skipped();
    cr_assert_null(gp_python_note());
    if (minor >= 12)
        return;
    state_make();
    *holder = NULL;
    *newest = &minor_now;
    cr_assert_eq(count_elsewhere(), 0);
    cr_assert(gp_python_note() && strstr(gp_python_note(), "sub-interpreters"));
}

Test(python_walk, version_3_10)
{
    version(10, false);
}

Test(python_walk, version_3_11)
{
    version(11, false);
}

Test(python_walk, version_3_12)
{
    version(12, false);
}

Test(python_walk, version_3_13)
{
    version(13, false);
}

Test(python_walk, version_3_13_free_threaded)
{
    version(13, true);
}

Test(python_walk, version_3_14)
{
    version(14, false);
}

/* ---- what is missing --------------------------------------------------------------------------------------------- */

static void refused(unsigned minor, const char *option, const char *why)
{
    struct gp_python_frame got[2];
    bool more = true;
    fake_open(minor, option);
    cr_assert_null(fake_find());
    cr_assert_not_null(gp_python_note());
    cr_assert_not_null(strstr(gp_python_note(), why), "%s", gp_python_note());
    cr_assert_eq(gp_stack_python(got, 2, &more), 0);
    cr_assert_not(more);
}

#define LACKS(_bit)                                                                                                    \
    Test(python_walk, without_function_##_bit)                                                                         \
    {                                                                                                                  \
        char option[32];                                                                                               \
        snprintf(option, sizeof(option), "-DFAKE_LACKS=%d", 1 << (_bit));                                              \
        refused(12, option, "does not export the functions");                                                          \
    }
LACKS(1)
LACKS(2)
LACKS(3)
LACKS(4)
LACKS(5)

Test(python_walk, an_older_version)
{
    refused(9, NULL, "older");
}

Test(python_walk, a_newer_version)
{
    refused(15, NULL, "newer");
}

Test(python_walk, offsets_that_are_not_described)
{
    refused(13, NULL, "_Py_DebugOffsets");
}

/* What does not have the first function is no interpreter; the next one that is loaded is found; so is one of many symbols. */
Test(python_walk, another_library_before)
{
    fake_open(12, "-DFAKE_LACKS=1");
    fake_open(12, "-Wl,--hash-style=sysv");
    for (int i = 0; i < 8; i++) {
        cr_assert_null(gp_python_find());
        usleep(20000);
    }
    cr_assert_null(gp_python_note());
    fake_start(12, false, "-DFAKE_MANY");
    walk_all_ways(12, false);
}
