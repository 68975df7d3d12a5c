/* SPDX-License-Identifier: MIT
 * libgpuprof-standin.so: an audit library of the dynamic loader (LD_AUDIT), which hands programs the
 * stand-ins that lie beside it in the place of NVIDIA's libraries.  The loader asks la_objsearch about
 * each path that it is about to try, whoever asked and whatever run path it came from.  Only a path at
 * which a library lies is exchanged, so a library that is not installed stays absent.  NVIDIA's CUDA
 * runtime, which programs open by the path of its package, is exchanged for the simulator's beside this
 * folder.
 *
 * It is linked without libc: the loader would load a second one for it into every process. */
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))
#define STANDIN_NAMES  64
#define STANDIN_PATH   4096
#define STANDIN_NAME   60 /* a longer name is no stand-in's */
/* As in standin.c. */
#define STANDIN_REAL 1024
#define STANDIN_MARK "stand-in"

unsigned int la_version(unsigned int version);
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag);
unsigned int la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie);

/* Written by la_version, before the program has threads. */
static char standin_folder[STANDIN_PATH];   /* with a slash at its end; empty: switched off */
static char standin_runtimes[STANDIN_PATH]; /* the folder above it */
static struct {
    char path[STANDIN_PATH + 64];
    const char *name;
    char real[STANDIN_REAL]; /* the path of the library whose place it takes; under the loader's lock */
} standin_names[STANDIN_NAMES];
static size_t standin_count;

/* ---- what libc would do -------------------------------------------------------------------------------------------- */

static long standin_call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#else
#error "no system calls for this processor"
#endif
}

static size_t standin_length(const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    return n;
}

static bool standin_same(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

static const char *standin_base(const char *path)
{
    const char *base = path;
    for (; *path; path++)
        if (*path == '/')
            base = path + 1;
    return base;
}

/* ---- the folder ---------------------------------------------------------------------------------------------------- */

/* One line of /proc/self/maps: "7f00-7f01 r--p 00000000 fe:00 17   /path".  The folder of this library:
 * the loader does not tell an audit library its path. */
static bool standin_line(const char *line, const char *end)
{
    uintptr_t bound[2] = {0, 0};
    int which = 0;
    for (; line < end && *line != ' '; line++) {
        if (*line == '-')
            which = 1;
        else
            bound[which] = bound[which] * 16 + (uintptr_t)(*line <= '9' ? *line - '0' : *line - 'a' + 10);
    }
    while (line < end && *line != '/')
        line++;
    const uintptr_t address = (uintptr_t)&la_version;
    if (address < bound[0] || address >= bound[1] || line == end || (size_t)(end - line) >= sizeof standin_folder)
        return false;
    const char *slash = end;
    while (slash[-1] != '/')
        slash--;
    for (size_t i = 0; line < slash; i++)
        standin_folder[i] = *line++;
    return true;
}

/* Hands the parts of a file to `take`, until it says that it found what it wants. */
static bool standin_parts(const char *path, char separator, bool (*take)(const char *part, const char *end))
{
    static char text[2 * STANDIN_PATH];
    size_t have = 0;
    bool found = false;
    long n, fd = standin_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    while (!found && (n = standin_call(SYS_read, fd, (long)(text + have), (long)(sizeof text - have), 0)) > 0) {
        have += (size_t)n;
        size_t from = 0;
        for (size_t i = 0; i < have && !found; i++)
            if (text[i] == separator) {
                found = take(text + from, text + i);
                from = i + 1;
            }
        if (from == 0 && have == sizeof text)
            from = have; /* longer than any that matters */
        for (size_t i = from; i < have; i++)
            text[i - from] = text[i];
        have -= from;
    }
    standin_call(SYS_close, fd, 0, 0, 0);
    return found;
}

static bool standin_is_bind_now(const char *part, const char *end)
{
    static const char name[] = "LD_BIND_NOW=";
    size_t n = sizeof name - 1;
    return (size_t)(end - part) > n && standin_same(part, name, n);
}

/* A name such as "libcublas.so.12"; this library's own has no number. */
static bool standin_is_library(const char *name)
{
    size_t n = standin_length(name);
    if (!standin_same(name, "lib", 3))
        return false;
    for (size_t i = 3; i + 4 < n; i++)
        if (standin_same(name + i, ".so.", 4))
            return true;
    return false;
}

static bool standin_is_runtime(const char *name)
{
    static const char runtime[] = "libcudart.so.";
    return standin_length(name) > sizeof runtime - 1 && standin_same(name, runtime, sizeof runtime - 1);
}

static void standin_list(const char *where, bool (*wanted)(const char *name))
{
    struct audit_entry {
        uint64_t inode;
        int64_t next;
        unsigned short bytes;
        unsigned char type;
        char name[];
    };
    static _Alignas(8) char text[STANDIN_PATH];
    size_t folder = standin_length(where);
    long n = 0, fd = standin_call(SYS_openat, AT_FDCWD, (long)where, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    while ((n = standin_call(SYS_getdents64, fd, (long)text, sizeof text, 0)) > 0)
        for (long at = 0; at < n;) {
            const struct audit_entry *entry = (const struct audit_entry *)(text + at);
            at += entry->bytes;
            if (standin_count == STANDIN_NAMES || !wanted(entry->name) || standin_length(entry->name) >= STANDIN_NAME)
                continue;
            char *path = standin_names[standin_count].path;
            for (size_t i = 0; i < folder; i++)
                path[i] = where[i];
            for (size_t i = 0, end = standin_length(entry->name); i <= end; i++)
                path[folder + i] = entry->name[i];
            standin_names[standin_count++].name = path + folder;
        }
    standin_call(SYS_close, fd, 0, 0, 0);
}

static bool standin_is_hash(const char *text)
{
    for (size_t i = 0; i < 8; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return true;
}

/* Wheels bring copies under names that auditwheel makes: "libcudart.faf08d9a.so.13", "libcudart-faf08d9a.so.13.0".  The
 * name without the hash is in `to` then. */
static const char *standin_unhashed(const char *base, char to[STANDIN_NAME])
{
    size_t n = standin_length(base), at = 3;
    if (n >= STANDIN_NAME)
        return base;
    while (at + 9 < n && !((base[at] == '.' || base[at] == '-') && standin_is_hash(base + at + 1) &&
                           standin_same(base + at + 9, ".so", 3)))
        at++;
    if (at + 9 >= n)
        return base;
    for (size_t i = 0; i < at; i++)
        to[i] = base[i];
    for (size_t i = at + 9; i <= n; i++)
        to[i - 9] = base[i];
    return to;
}

/* The runtime of CUTLASS's CuTe has NVIDIA's inside, and lies in a folder "cu12/lib" or "cu13/lib": the simulator's runtime
 * has its functions too.  The other one's name in `to`, or the name itself. */
static const char *standin_runtime_of_cute(const char *path, const char *base, char to[STANDIN_NAME])
{
    static const char cute[] = "libcute_dsl_runtime.so", runtime[] = "libcudart.so.";
    static const char folder[] = "/lib/";
    size_t before = sizeof folder - 1 + 2;
    if (standin_length(base) != sizeof cute - 1 || !standin_same(base, cute, sizeof cute) ||
        (size_t)(base - path) < before || !standin_same(base - (sizeof folder - 1), folder, sizeof folder - 1))
        return base;
    for (size_t i = 0; i < sizeof runtime - 1; i++)
        to[i] = runtime[i];
    to[sizeof runtime - 1] = base[-(long)before];
    to[sizeof runtime] = base[-(long)before + 1];
    to[sizeof runtime + 1] = '\0';
    return to;
}

/* The number of the stand-in of "libcublas.so.12" or "libcublas.so.12.4.5.8"; -1: none. */
static int standin_of(const char *base)
{
    char unhashed[STANDIN_NAME];
    base = standin_unhashed(base, unhashed);
    for (size_t i = 0; i < standin_count; i++) {
        size_t n = standin_length(standin_names[i].name);
        if (standin_length(base) >= n && standin_same(base, standin_names[i].name, n) &&
            (base[n] == '\0' || base[n] == '.'))
            return (int)i;
    }
    return -1;
}

/* The folder of a path, of which `folder` bytes are given, and a name in it. */
static void standin_remember(char to[STANDIN_REAL], const char *path, size_t folder, const char *name)
{
    size_t n = standin_length(name);
    to[0] = '\0';
    if (folder + n >= STANDIN_REAL)
        return;
    for (size_t i = 0; i < folder; i++)
        to[i] = path[i];
    for (size_t i = 0; i <= n; i++)
        to[folder + i] = name[i];
}

/* ---- what the loader calls ----------------------------------------------------------------------------------------- */

/* Every version of the interface has what is here.  Without anything to hand out, 0: the loader unloads
 * this library.  The loader of glibc before 2.35, which has version 1, takes all calls between libraries
 * that it has not yet bound through its slow path if it has an audit library: a loop of bash becomes 20
 * times slower.  So there the program's functions must be bound at its start. */
STANDIN_EXPORT unsigned int la_version(unsigned int version)
{
    if (version < 2 && !standin_parts("/proc/self/environ", '\0', standin_is_bind_now))
        return 0;
    if (standin_parts("/proc/self/maps", '\n', standin_line)) {
        size_t n = standin_length(standin_folder) - 1;
        while (n && standin_folder[n - 1] != '/')
            n--;
        for (size_t i = 0; i < n; i++)
            standin_runtimes[i] = standin_folder[i];
        standin_list(standin_folder, standin_is_library);
        standin_list(standin_runtimes, standin_is_runtime);
    }
    return standin_count ? version : 0;
}

STANDIN_EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
    const char *base = standin_base(name);
    char target[STANDIN_PATH], cute[STANDIN_NAME];
    (void)cookie;
    (void)flag;
    if (base == name || !standin_same(base, "lib", 3))
        return (char *)name; /* a soname: each place for it comes by */
    /* A name without a number, as linkers and some programs use it, is a link to one with it; one with
     * a number may be a link to one with more of it. */
    long got = 0;
    int found = standin_of(standin_runtime_of_cute(name, base, cute));
    size_t n = standin_length(base);
    if (found >= 0 || (n > 6 && standin_same(base + n - 3, ".so", 3)))
        got = standin_call(SYS_readlinkat, AT_FDCWD, (long)name, (long)target, sizeof target - 1);
    target[got > 0 ? got : 0] = '\0';
    if (found < 0 && got > 0)
        found = standin_of(standin_base(target));
    if (found < 0 || standin_call(SYS_faccessat, AT_FDCWD, (long)name, F_OK, 0) != 0)
        return (char *)name;
    standin_remember(standin_names[found].real, name, (size_t)(base - name), got > 0 ? standin_base(target) : base);
    return standin_names[found].path;
}

/* A stand-in learns whose place it takes, since programs ask for the version of that: the entry point of
 * its file, which nobody runs, is where it reads the path.  Its code has not run yet.  The loader names
 * it by either path, so the text there tells that it is a stand-in. */
STANDIN_EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)map->l_addr;
    int found = standin_of(standin_base(map->l_name));
    (void)lmid;
    (void)cookie;
    if (found < 0 || !head || !head->e_entry)
        return 0;
    char *to = (char *)map->l_addr + head->e_entry;
    if (standin_same(to, STANDIN_MARK, sizeof STANDIN_MARK))
        for (size_t at = 0; at < STANDIN_REAL; at++)
            to[at] = standin_names[found].real[at];
    return 0;
}
