/* SPDX-License-Identifier: MIT
 *
 * test_stack.c: compares native stacks with those of glibc's unwinder, through all kinds of code
 * and on all kinds of stacks.
 */
#include "base/compiler.h"
#include "lib/build.h"
#include "lib/sanitized.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#define BARE   __attribute__((noinline, noclone, optimize("omit-frame-pointer", "no-optimize-sibling-calls")))
#define FRAMED __attribute__((noinline, noclone, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))

static volatile int sink;

struct pair { /* one place, captured twice */
    uint64_t ours[GP_SITE_FRAMES];
    void *theirs[GP_SITE_FRAMES + 8];
    unsigned n, m;
    bool more;
};

FRAMED static void look(void *argument)
{
    struct pair *pair = argument;
    pair->n = gp_stack_native(pair->ours, GP_SITE_FRAMES, &pair->more);
    pair->m = (unsigned)backtrace(pair->theirs, GP_SITE_FRAMES + 8);
    sink++;
}

/* Compares all frames but the innermost, which is on another line; glibc's stack may have a
 * sanitizer's frame before it. */
static bool same(const struct pair *pair, unsigned deepest)
{
    unsigned skip = 0;
    while (pair->n > 1 && skip < 3 && (uint64_t)(uintptr_t)pair->theirs[skip + 1] != pair->ours[1])
        skip++;
    bool right = pair->n >= deepest && (pair->more || pair->n + skip == pair->m);
    for (unsigned i = 1; right && i < pair->n; i++)
        right = pair->ours[i] == (uint64_t)(uintptr_t)pair->theirs[i + skip];
    for (unsigned i = 0; !right && (i < pair->n || i < pair->m); i++)
        fprintf(stderr, "%3u %#18lx %#18lx\n", i, i < pair->n ? (unsigned long)pair->ours[i] : 0,
                i < pair->m ? (unsigned long)(uintptr_t)pair->theirs[i] : 0);
    return right;
}

static void start(void)
{
    cr_assert_eq(gp_native_start(), 0);
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

BARE static void bare(unsigned depth, void (*then)(void *), void *argument)
{
    volatile char room[72];
    room[0] = (char)depth;
    if (depth)
        bare(depth - 1, then, argument);
    else
        then(argument);
    sink += room[0];
}

FRAMED static void framed(unsigned depth, void (*then)(void *), void *argument)
{
    volatile char room[40];
    room[0] = (char)depth;
    if (depth)
        framed(depth - 1, then, argument);
    else
        bare(3, then, argument);
    sink += room[0];
}

BARE static void sized(unsigned depth, void (*then)(void *), void *argument)
{
    volatile char *room = __builtin_alloca(depth * 100 + 16); /* its CFA is based on bp */
    room[0] = 1;
    if (depth)
        sized(depth - 1, then, argument);
    else
        framed(2, then, argument);
    sink += room[0];
}

BARE static void realigned(unsigned depth, void (*then)(void *), void *argument)
{
    volatile char *room = __builtin_alloca(depth + 16);
    volatile char line[64] __attribute__((aligned(64))); /* its CFA is read from memory */
    room[0] = line[0] = 1;
    if (depth)
        realigned(depth - 1, then, argument);
    else
        sized(3, then, argument);
    sink += room[0] + line[0];
}

BARE static void large(unsigned depth, void (*then)(void *), void *argument)
{
    volatile char room[200000]; /* its rule does not fit into a word of the table */
    room[0] = 1;
    if (depth)
        large(depth - 1, then, argument);
    else
        realigned(2, then, argument);
    sink += room[0];
}

static struct pair *sort_pair;

static int sort_compare(const void *a, const void *b)
{
    if (sort_pair) {
        struct pair *pair = sort_pair;
        sort_pair = NULL;
        bare(4, look, pair);
    }
    return *(const int *)a - *(const int *)b;
}

Test(stack, every_sort_of_frame)
{
    static struct pair pair;
    int numbers[] = {3, 1, 2};
    start();
    for (unsigned turn = 0; turn < 3; turn++) {
        bare(20, look, &pair);
        cr_assert(same(&pair, 21));
        framed(20, look, &pair);
        cr_assert(same(&pair, 24));
        sized(10, look, &pair);
        cr_assert(same(&pair, 17));
        realigned(10, look, &pair);
        cr_assert(same(&pair, 21));
        large(2, look, &pair);
        cr_assert(same(&pair, 13));
        sort_pair = &pair;
        qsort(numbers, GP_COUNT(numbers), sizeof numbers[0], sort_compare);
        cr_assert(same(&pair, 8));
        cr_assert_not(pair.more);
    }
}

#ifdef __x86_64__
static volatile sig_atomic_t instructions;

static void instruction_ends(int signal)
{
    (void)signal;
    instructions++;
}

/* The processor traps after each instruction while its trap flag is set. */
BARE static void count(void *unused)
{
    uint64_t pcs[GP_SITE_FRAMES];
    bool more;
    (void)unused;
    gp_stack_native(pcs, GP_SITE_FRAMES, &more); /* now the rules are known */
    instructions = 0;
    __writeeflags(__readeflags() | 0x100);
    gp_stack_native(pcs, GP_SITE_FRAMES, &more);
    __writeeflags(__readeflags() & ~0x100ull);
}

static int instructions_of(void frame(unsigned depth, void (*then)(void *), void *argument), unsigned frames)
{
    frame(2, count, NULL);
    int few = instructions;
    frame(2 + frames, count, NULL);
    return instructions - few;
}

/* A frame with a plain rule that is known is one step of a loop; other ways take three times as long, and to learn a rule a
 * hundred times. */
Test(stack, a_known_frame_takes_few_instructions)
{
    if (GP_TEST_SANITIZED)
        cr_skip_test("a sanitizer adds instructions");
    start();
    cr_assert_eq(sigaction(SIGTRAP, &(struct sigaction){.sa_handler = instruction_ends}, NULL), 0);
    int plain = instructions_of(bare, 50), wide = instructions_of(large, 10);
    cr_expect(plain > 0 && plain < 50 * 30, "%d instructions for 50 frames", plain);
    cr_expect(wide > 0 && wide < 10 * 300, "%d instructions for 10 frames", wide);
}

/* A function whose CFA is the given expression: 32 bytes above sp, and 40 above the word at sp + 8. */
#define EXPRESSION(name, length, bytes)                                                                                \
    void name(void (*then)(void *), void *argument);                                                                   \
    __asm__(".text\n.type " #name ",@function\n" #name ":\n.cfi_startproc\nsub $24,%rsp\n.cfi_def_cfa_offset 32\n"     \
            "lea -8(%rsp),%rax\nmov %rax,8(%rsp)\n.cfi_escape 0x0f," #length "," bytes "\nmov %rdi,%rax\n"             \
            "mov %rsi,%rdi\ncall *%rax\nadd $24,%rsp\n.cfi_def_cfa %rsp,8\nret\n.cfi_endproc\n.size " #name            \
            ",.-" #name)
EXPRESSION(expression_deref_plus, 5, "0x77,8,6,0x23,0x28");    /* *(sp + 8) + 40 */
EXPRESSION(expression_constant, 5, "0x77,0,8,0x20,0x22");      /* sp + 32 */
EXPRESSION(expression_deref_minus, 6, "0x77,8,6,9,0xd8,0x1c"); /* *(sp + 8) - -40 */
EXPRESSION(expression_register, 2, "0x77,0x20");               /* sp + 32 */
EXPRESSION(expression_constant_2, 6, "0x77,0,0x0a,0x20,0,0x22");
EXPRESSION(expression_signed_2, 6, "0x77,0,0x0b,0xe0,0xff,0x1c");
EXPRESSION(expression_literal, 4, "0x77,0x10,0x40,0x22");
EXPRESSION(expression_shift, 6, "0x77,0,0x31,0x35,0x24,0x22");      /* sp + (1 << 5) */
EXPRESSION(expression_compare, 6, "0x77,0x1f,0x33,0x33,0x2a,0x22"); /* sp + 31 + (3 >= 3) */
EXPRESSION(expression_less, 6, "0x77,0x20,0x32,0x33,0x2a,0x22");    /* sp + 32 + (2 >= 3) */
EXPRESSION(expression_and, 8, "0x77,0,8,0x3f,8,0xe0,0x1a,0x22");    /* sp + (63 & 224) */

FRAMED static void below_expressions(void *pair)
{
    framed(4, look, pair);
    sink++;
}

Test(stack, a_frame_whose_place_is_an_expression)
{
    static struct pair pair;
    void (*const frames[])(void (*)(void *), void *) = {
        expression_deref_plus, expression_constant, expression_deref_minus, expression_register,
        expression_constant_2, expression_signed_2, expression_literal,     expression_shift,
        expression_compare,    expression_less,     expression_and};
    start();
    for (unsigned turn = 0; turn < 2 * GP_COUNT(frames); turn++) {
        frames[turn / 2](below_expressions, &pair);
        cr_expect(same(&pair, 11), "expression %u", turn / 2);
    }
}
#endif

Test(stack, too_deep)
{
    struct pair pair;
    start();
    bare(200, look, &pair);
    cr_assert(pair.more);
    cr_assert_eq((int)pair.n, GP_SITE_FRAMES);
    cr_assert(same(&pair, GP_SITE_FRAMES));
    for (unsigned room = 0; room < 5; room++) {
        uint64_t pcs[6] = {77, 77, 77, 77, 77, 77};
        bool more;
        cr_assert_eq((int)gp_stack_native(pcs, room, &more), (int)room);
        cr_assert(more);
        cr_assert_eq((int)pcs[room], 77);
    }
}

/* ---- code without a table ---------------------------------------------------------------------------------------- */

static void *code_make(const uint8_t *bytes, size_t n)
{
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(page != MAP_FAILED);
    memcpy(page, bytes, n);
    return page;
}

typedef void code_fn(void (*call)(void *), void *argument);

BARE static void through(void *code, void (*then)(void *), void *argument)
{
    ((code_fn *)code)(then, argument);
    sink++;
}

/* The index of the generated code's caller in the stack; 0: not found. */
static unsigned find_code(const struct pair *pair, const void *code)
{
    for (unsigned i = 0; i < pair->n; i++)
        if (pair->ours[i] - (uint64_t)(uintptr_t)code < 4096)
            return i;
    return 0;
}

#if defined(__x86_64__)
Test(stack, generated_code)
{
    /* push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret */
    static const uint8_t chained[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8,
                                      0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    struct pair pair, direct;
    void *code = code_make(chained, sizeof chained);
    start();
    for (unsigned turn = 0; turn < 2; turn++) {
        through(code, look, &pair);
        look(&direct);
        unsigned at = find_code(&pair, code);
        cr_assert_eq((int)at, 1);
        cr_assert_eq((int)pair.n, (int)direct.n + 2); /* the code and `through` */
        for (unsigned i = 1; i + 1 < direct.n; i++)
            cr_assert(pair.ours[i + 3] == direct.ours[i + 1]);
    }
}

/* Generated code that uses %rbp for other data: the stack ends, or has wrong frames, and nothing
 * faults. */
Test(stack, a_broken_frame_pointer)
{
    /* push %rbp; mov $imm64,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret */
    static const uint8_t broken[] = {0x55, 0x48, 0xbd, 0,    0,    0,    0,    0,    0,    0,   0,
                                     0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    void *guard = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int local;
    uint64_t high = (uint64_t)pthread_self(), here = (uint64_t)(uintptr_t)&local / 8 * 8;
    uint64_t values[] = {
        0,           1,         8,    0x1234,  (uint64_t)(uintptr_t)guard, UINT64_MAX, UINT64_MAX - 7, 1ull << 63, here,
        here + 4096, here + 12, high, high - 8};
    uint8_t *code = code_make(broken, sizeof broken);
    struct pair pair;
    start();
    for (unsigned i = 0; i < GP_COUNT(values) + 2000; i++) {
        uint64_t value = i < GP_COUNT(values) ? values[i] : here + (i - GP_COUNT(values)) * 8;
        memcpy(code + 3, &value, 8);
        pair.n = 0;
        through(code, look, &pair);
        cr_assert(pair.n >= 2 && pair.n <= GP_SITE_FRAMES);
        cr_assert_eq((int)find_code(&pair, code), 1);
    }
}
#endif

/* ---- objects that come and go ------------------------------------------------------------------------------------ */

static void reuse_turn(const char *path, void **function, struct pair *pair)
{
    void *library = dlopen(path, RTLD_NOW);
    cr_assert(library != NULL);
    *function = dlsym(library, "stack_frame");
    through(*function, look, pair);
    cr_assert(same(pair, 4));
    through(*function, look, pair);
    cr_assert(same(pair, 4));
    dlclose(library);
}

Test(stack, another_library_at_the_same_place, .timeout = 60)
{
    char *folder = build_folder(), small[256], big[256];
    static struct pair pair;
    void *function, *before = NULL;
    unsigned again = 0;
    snprintf(small, sizeof small, "%s/small.so", folder);
    snprintf(big, sizeof big, "%s/big.so", folder);
    cr_assert_eq(build_shared(folder, "stack_frame.c", "small.so", "-DSTACK_BYTES=1000"), 0);
    cr_assert_eq(build_shared(folder, "stack_frame.c", "big.so", "-DSTACK_BYTES=3000"), 0);
    start();
    for (unsigned turn = 0; turn < 20; turn++) {
        reuse_turn(turn % 2 ? big : small, &function, &pair);
        again += function == before;
        before = function;
    }
    build_remove(folder);
    cr_assert(again >= 10, "the libraries were mapped at different addresses: nothing was tested");
}

Test(stack, the_generation_changes_with_the_objects)
{
    char *folder = build_folder(), path[256];
    static struct pair pair;
    uint64_t last = 0;
    snprintf(path, sizeof path, "%s/small.so", folder);
    cr_assert_eq(build_shared(folder, "stack_frame.c", "small.so", "-DSTACK_BYTES=1000"), 0);
    start();
    look(&pair); /* loads what backtrace needs */
    for (unsigned turn = 0; turn < 3; turn++) {
        look(&pair);
        uint64_t before = gp_stack_generation();
        cr_assert_neq(before, last);
        look(&pair);
        cr_assert_eq(gp_stack_generation(), before, "nothing was loaded");
        void *library = dlopen(path, RTLD_NOW);
        look(&pair);
        last = gp_stack_generation();
        cr_assert_neq(last, before, "loaded");
        dlclose(library);
    }
    build_remove(folder);
}

/* Runs meanwhile, on another thread. */
static int x_stop;

static void *loader_main(void *path)
{
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        void *library = dlopen(path, RTLD_NOW);
        if (library)
            dlclose(library);
    }
    return NULL;
}

Test(stack, while_libraries_come_and_go, .timeout = 60)
{
    char *folder = build_folder(), path[256];
    static struct pair pair;
    pthread_t loader;
    snprintf(path, sizeof path, "%s/small.so", folder);
    cr_assert_eq(build_shared(folder, "stack_frame.c", "small.so", "-DSTACK_BYTES=1000"), 0);
    start();
    pthread_create(&loader, NULL, loader_main, path);
    for (unsigned i = 0; i < 2000; i++) {
        framed(i % 20, look, &pair);
        cr_assert(same(&pair, 5));
    }
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    pthread_join(loader, NULL);
    build_remove(folder);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static void *thread_main(void *argument)
{
    struct pair *pair = argument;
    uintptr_t wrong = 0;
    for (unsigned i = 0; i < 200; i++) {
        realigned(i % 10, look, pair);
        wrong += !same(pair, 6);
    }
    return (void *)wrong;
}

Test(stack, threads, .timeout = 120)
{
    enum { THREADS = 64 };
    pthread_t threads[THREADS];
    struct pair *pairs = calloc(THREADS, sizeof *pairs);
    void *wrong;
    start();
    for (unsigned t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_create(&threads[t], NULL, thread_main, &pairs[t]), 0);
    for (unsigned t = 0; t < THREADS; t++) {
        pthread_join(threads[t], &wrong);
        cr_assert(wrong == NULL);
    }
    free(pairs);
}

/* A stack that the program allocated, with and without a guard page. */
static void *own_stack(size_t bytes, bool guarded)
{
    char *memory = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED);
    if (guarded)
        mprotect(memory, 4096, PROT_NONE);
    return memory + 4096;
}

Test(stack, a_thread_with_a_stack_of_its_own)
{
    static struct pair pair;
    pthread_attr_t attr;
    pthread_t thread;
    void *wrong;
    start();
    for (int guarded = 0; guarded < 2; guarded++) {
        pthread_attr_init(&attr);
        cr_assert_eq(pthread_attr_setstack(&attr, own_stack(1 << 20, guarded), 1 << 20), 0);
        cr_assert_eq(pthread_create(&thread, &attr, thread_main, &pair), 0);
        pthread_join(thread, &wrong);
        cr_assert(wrong == NULL);
    }
}

static ucontext_t context_main, context_own;
static struct pair context_pair;

static void context_entry(void)
{
    framed(12, look, &context_pair);
    swapcontext(&context_own, &context_main);
}

static void context_visit(void)
{
    getcontext(&context_own);
    context_own.uc_stack.ss_sp = own_stack(1 << 16, true);
    context_own.uc_stack.ss_size = 1 << 16;
    context_own.uc_link = NULL;
    makecontext(&context_own, context_entry, 0);
    swapcontext(&context_main, &context_own);
}

static void *context_thread(void *argument)
{
    for (unsigned i = 0; i < 3; i++) {
        context_visit();
        if (!same(&context_pair, 17))
            return argument;
        thread_main(&context_pair); /* on the thread's own stack again */
    }
    return NULL;
}

Test(stack, a_coroutine)
{
    pthread_t thread;
    void *wrong;
    start();
    for (unsigned i = 0; i < 3; i++) {
        context_visit();
        cr_assert(same(&context_pair, 17));
    }
    cr_assert_eq(pthread_create(&thread, NULL, context_thread, &context_pair), 0);
    pthread_join(thread, &wrong);
    cr_assert(wrong == NULL);
}

static struct pair signal_pair;

static void signal_handler(int number)
{
    (void)number;
    signal_pair.n = gp_stack_native(signal_pair.ours, GP_SITE_FRAMES, &signal_pair.more);
}

Test(stack, inside_a_signal_handler)
{
    stack_t other = {.ss_sp = own_stack(1 << 16, true), .ss_size = 1 << 16};
    start();
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction action = {.sa_handler = signal_handler, .sa_flags = flags ? SA_ONSTACK : 0};
        cr_assert_eq(sigaltstack(&other, NULL), 0);
        cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
        signal_pair.n = 0;
        raise(SIGUSR1);
        /* The handler, and the kernel's return code, which ends the stack. */
        cr_assert_eq((int)signal_pair.n, 2, "%u frames", signal_pair.n);
    }
}

/* ---- manners ----------------------------------------------------------------------------------------------------- */

static void *quiet_main(void *argument)
{
    uint64_t pcs[GP_SITE_FRAMES];
    bool more;
    size_t before = mallinfo2().uordblks;
    errno = 4321;
    unsigned n = gp_stack_native(pcs, GP_SITE_FRAMES, &more);
    *(bool *)argument =
        n > 1 && errno == 4321 && mallinfo2().uordblks == before && gp_own_stack_bounds.low < gp_own_stack_bounds.high;
    return NULL;
}

Test(stack, leaves_no_trace)
{
    bool right = false;
    pthread_t thread;
    start();
    quiet_main(&right);
    cr_assert(right);
    right = false;
    pthread_create(&thread, NULL, quiet_main, &right);
    pthread_join(thread, NULL);
    cr_assert(right);
}

static long stack_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmStk: %ld", &kib);
    if (file)
        fclose(file);
    return kib;
}

/* Probing for the bounds from another stack must not make the main thread's stack grow. */
Test(stack, does_not_grow_the_stack)
{
    start();
    long before = stack_kib();
    context_visit();
    cr_assert(same(&context_pair, 17));
    cr_assert(before > 0 && stack_kib() - before < 512, "from %ld to %ld KiB", before, stack_kib());
}
