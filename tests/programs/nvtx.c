/* SPDX-License-Identifier: MIT
 *
 * Makes NVTX ranges as a program with NVTX version 3 does, through a loader of its own that follows
 * the same protocol: NVTX_INJECTION64_PATH is loaded at the first call and given a way to a table
 * of function pointers.  With an argument N instead: N pairs of push and pop, then the nanoseconds
 * of one on stdout.
 */
#include <cuda.h>

#include "../lib/nvtxattributes.h"
#include "finish.h"
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <wchar.h>

typedef void function(void);
enum { CORE_SIZE = 16, CORE2_SIZE = 16 };

static function *core[CORE_SIZE], *core2[CORE2_SIZE];
static function **core_table[CORE_SIZE + 1], **core2_table[CORE2_SIZE + 1];
static int tool; /* the tool's answer; -1: no tool */

static int table_of(uint32_t module, function ****table, uint32_t *count)
{
    *table = module == 1 ? core_table : module == 5 ? core2_table : NULL;
    *count = CORE_SIZE;
    return *table != NULL;
}

static const void *export_table(uint32_t number)
{
    static const struct {
        size_t bytes;
        int (*table_of)(uint32_t, function ****, uint32_t *);
    } callbacks = {sizeof(callbacks), table_of};
    return number == 1 ? &callbacks : NULL;
}

static void load(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    int (*start)(const void *(*)(uint32_t)) = NULL;
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    for (int i = 1; i < CORE_SIZE; i++) {
        core_table[i] = &core[i];
        core2_table[i] = &core2[i];
    }
    if (library)
        *(void **)&start = dlsym(library, "InitializeInjectionNvtx2");
    tool = start ? start(export_table) : -1;
}

static struct attributes message(int type, const void *text)
{
    return (struct attributes){.version = 3, .size = sizeof(struct attributes), .message_type = type, .message = text};
}

/* The table's functions; a slot that the tool left empty does nothing. */
#define CALL(_table, _slot, _type, ...) (_table[_slot] ? ((_type)_table[_slot])(__VA_ARGS__) : 0)
typedef int text_fn(const void *);
typedef uint64_t start_fn(const void *);
typedef int none_fn(void);
typedef int id_fn(uint64_t);
typedef int domain_fn(const void *);
typedef int domain_text_fn(const void *, const void *);
typedef uint64_t domain_start_fn(const void *, const void *);
typedef int domain_id_fn(const void *, uint64_t);
typedef const void *string_fn(const void *, const void *);
typedef const void *create_fn(const void *);

static int push(const char *name)
{
    return CALL(core, 9, text_fn *, name);
}

static int pop(void)
{
    return CALL(core, 11, none_fn *);
}

static void *thread(void *argument)
{
    push("left open"); /* and its thread ends */
    if (argument)
        CALL(core, 7, id_fn *, *(uint64_t *)argument);
    return NULL;
}

static void all_kinds(void)
{
    static const wchar_t wide[] = {'w', 0xe9, 0x20ac, 0x1f600, 0xd800, 0};
    struct attributes ascii = message(1, "ex"), unicode = message(2, wide), none = message(0, NULL);
    const void *domain = CALL(core2, 12, create_fn *, "d1"), *other = CALL(core2, 13, create_fn *, L"d2");
    const void *string = CALL(core2, 10, string_fn *, domain, "registered");
    const void *again = CALL(core2, 11, string_fn *, domain, L"registered");
    struct attributes registered = message(3, string), forged = message(3, "not a handle");
    REPORT("one handle for one string", string == again);
    REPORT("domains differ", domain != other || !domain);
    CALL(core, 1, text_fn *, &ascii);
    CALL(core, 2, text_fn *, "mark");
    CALL(core, 3, text_fn *, wide);
    CALL(core, 8, text_fn *, &unicode);
    CALL(core2, 4, domain_text_fn *, domain, &registered);
    CALL(core2, 4, domain_text_fn *, other, &none);
    CALL(core2, 5, domain_fn *, domain); /* from below the other domain's */
    pop();
    CALL(core2, 5, domain_fn *, other);
    pop(); /* nothing is open */
    CALL(core2, 1, domain_text_fn *, domain, &forged);
    CALL(core, 10, text_fn *, L"wide");
    pop();
    push("a name of 32 bytes is cut \xc3\xa9 here");
    pop();
    push("24 bytes and an accent:*\xc3\xa9");
    pop();
    push(NULL);
    pop();
}

static void starts(void)
{
    struct attributes ascii = message(1, "in a domain");
    uint64_t first = CALL(core, 5, start_fn *, "one"), second = CALL(core2, 2, domain_start_fn *, NULL, &ascii);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, &second));
    CHECK(pthread_join(other, NULL));
    CALL(core, 7, id_fn *, second); /* has ended */
    CALL(core2, 3, domain_id_fn *, NULL, first);
    CALL(core, 7, id_fn *, first);
    CALL(core, 7, id_fn *, (uint64_t)0);
    CALL(core, 7, id_fn *, UINT64_MAX >> 1);
}

/* Deeper than there is room for: the names at the end come late, but balance is kept. */
static void deep(unsigned depth)
{
    for (unsigned i = 0; i < depth; i++)
        push("deep");
    for (unsigned i = 0; i < depth; i++)
        pop();
    push("after");
    pop();
}

static void measure(unsigned long pairs)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (unsigned long i = 0; i < pairs; i++) {
        push("step");
        pop();
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.1f\n",
           ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / (double)pairs);
}

int main(int argc, char **argv)
{
    load();
    push("before the start");
    program_start();
    if (argc > 1) {
        measure(strtoul(argv[1], NULL, 10));
        return tool != 1;
    }
    pop(); /* of a range that was not kept */
    errno = 77;
    all_kinds();
    starts();
    for (int i = 0; i < 200; i++) { /* more than the places of one thread: their records are reclaimed */
        pthread_t one;
        CHECK(pthread_create(&one, NULL, thread, NULL));
        CHECK(pthread_join(one, NULL));
    }
    deep(300);
    CHECK(errno != 77);
    REPORT("push answers", push("last"));
    pop();
    CHECK(cuMemFree(program_alloc(MIB)));
    return finish();
}
