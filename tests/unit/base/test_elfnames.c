/* SPDX-License-Identifier: MIT
 *
 * test_elfnames.c: the symbols that a file or a loaded object defines (core/base/elfnames.c), compared
 * with the loader's own answers, and files that are cut or garbled.
 */
#include "base/elfnames.h"
#include "base/loader.h"
#include "lib/random.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const functions[] = {"malloc", "sysconf", "strlen", "qsort", "dl_iterate_phdr", "getauxval"};
static const char *const variables[] = {"environ", "stdout", "_sys_siglist_is_not_there", "program_invocation_name"};

static const char *path_of_libc(void)
{
    static char path[512];
    Dl_info info;
    cr_assert(dladdr(dlsym(RTLD_DEFAULT, "sysconf"), &info));
    snprintf(path, sizeof(path), "%s", info.dli_fname);
    return path;
}

static const ElfW(Sym) * find(const struct gp_elf_names *names, const char *name)
{
    return gp_elf_find(names, name, gp_elf_hash(name));
}

static void expect_names(const struct gp_elf_names *names)
{
    Dl_info info;
    cr_assert(dladdr(dlsym(RTLD_DEFAULT, "sysconf"), &info));
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        const ElfW(Sym) *symbol = find(names, functions[i]);
        cr_assert_not_null(symbol, "%s", functions[i]);
        cr_expect(!gp_elf_is_variable(symbol), "%s", functions[i]);
    }
    cr_expect_eq((char *)info.dli_fbase + find(names, "sysconf")->st_value, (char *)dlsym(RTLD_DEFAULT, "sysconf"));
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const ElfW(Sym) *symbol = find(names, variables[i]);
        cr_expect_eq(symbol != NULL, dlsym(RTLD_DEFAULT, variables[i]) != NULL, "%s", variables[i]);
        cr_expect(!symbol || gp_elf_is_variable(symbol), "%s", variables[i]);
    }
    cr_expect_null(find(names, "cuMemAlloc_v2"));
    cr_expect_null(find(names, ""));
}

Test(elfnames, a_file)
{
    struct gp_elf_file file;
    uint64_t at = 0;
    cr_assert(gp_elf_open(&file, path_of_libc()));
    expect_names(&file.names);
    cr_expect(strncmp(gp_elf_text(&file, DT_SONAME, &at), "libc.so", 7) == 0);
    cr_expect_null(gp_elf_text(&file, DT_SONAME, &at));
    gp_elf_close(&file);
    cr_expect(!gp_elf_open(&file, "/nowhere"));
    cr_expect(!gp_elf_open(&file, "/etc/passwd"));
    cr_expect(!gp_elf_open(&file, "/"));
    cr_expect(!gp_elf_open(&file, "/dev/null"));
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct gp_image image;
    struct gp_elf_names names;
    (void)size;
    if (!strstr(info->dlpi_name, "libc.so") || !gp_image_read(&image, info))
        return 0;
    gp_elf_of_image(&names, &image);
    expect_names(&names);
    *(bool *)arg = true;
    return 1;
}

Test(elfnames, a_loaded_object)
{
    bool is_found = false;
    cr_assert(gp_loader_look(visit, &is_found));
    cr_expect(is_found);
}

/* A small library, with a table of each kind. */
static void *built(const char *style, size_t *bytes)
{
    char folder[] = "/tmp/gpuprof-test-XXXXXX", line[512], path[64];
    cr_assert(mkdtemp(folder));
    snprintf(line, sizeof(line),
             "cd %s && echo 'int (*cuInit)(unsigned); int cuMemAlloc_v2(void) { return 1; } int other;' > a.c && "
             "${CC:-cc} -shared -fPIC -Wl,--hash-style=%s -o a.so a.c",
             folder, style);
    cr_assert_eq(system(line), 0);
    snprintf(path, sizeof(path), "%s/a.so", folder);
    int fd = open(path, O_RDONLY);
    off_t size = lseek(fd, 0, SEEK_END);
    void *copy = malloc((size_t)size);
    cr_assert_eq(pread(fd, copy, (size_t)size, 0), size);
    close(fd);
    snprintf(line, sizeof(line), "rm -r %s", folder);
    cr_assert_eq(system(line), 0);
    *bytes = (size_t)size;
    return copy;
}

/* How many of the three names are found right; the file is in memory. */
static int look(const void *bytes, size_t size)
{
    char path[64];
    struct gp_elf_file file;
    int fd = memfd_create("elf", 0), right = 0;
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (gp_elf_open(&file, path)) {
        const ElfW(Sym) *init = find(&file.names, "cuInit"), *alloc = find(&file.names, "cuMemAlloc_v2");
        right = (init && gp_elf_is_variable(init)) + (alloc && !gp_elf_is_variable(alloc)) +
                (find(&file.names, "cuMemFree_v2") == NULL);
        uint64_t at = 0;
        while (gp_elf_text(&file, DT_NEEDED, &at)) {
        }
        gp_elf_close(&file);
    }
    close(fd);
    return right;
}

Test(elfnames, cut_and_garbled_files, .timeout = 60)
{
    static const char *const styles[] = {"gnu", "sysv", "both"};
    uint64_t random = RANDOM_SEED;
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
        size_t bytes;
        uint8_t *whole = built(styles[i], &bytes), *copy = malloc(bytes);
        cr_expect_eq(look(whole, bytes), 3, "%s", styles[i]);
        for (int round = 0; round < 1500; round++) {
            memcpy(copy, whole, bytes);
            for (int flips = 0; flips < 1 + round % 8; flips++) /* mostly where the tables are */
                copy[random_next(&random) % (round % 2 ? bytes : 4096)] = (uint8_t)random_next(&random);
            look(copy, round % 3 ? bytes : random_next(&random) % bytes);
        }
        free(copy);
        free(whole);
    }
}
