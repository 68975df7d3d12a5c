/* SPDX-License-Identifier: MIT
 *
 * test_cuptifind.c: where CUPTI is looked for, and in which order the copies are tried: files in a folder of this test, and
 * objects loaded from it.  What this machine has itself comes after them and is left out.
 */
#include "lib/build.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <source/cuptifind.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS 64

static char *top;
static struct gp_cupti_list list;

static const char *below(const char *form, ...)
{
    static char texts[8][PATH_MAX];
    static unsigned next;
    char *text = texts[next++ % 8];
    va_list arguments;
    int used = snprintf(text, PATH_MAX, "%s/", top);
    va_start(arguments, form);
    vsnprintf(text + used, (size_t)(PATH_MAX - used), form, arguments);
    va_end(arguments);
    return text;
}

static void folder_make(const char *file)
{
    char path[PATH_MAX];
    for (const char *at = strchr(file + strlen(top) + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(path, sizeof(path), "%.*s", (int)(at - file), file);
        mkdir(path, 0700);
    }
}

static void file_make(const char *path)
{
    folder_make(path);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fclose(file);
}

/* An object of that name, loaded. */
static void object_load(const char *path)
{
    char *folder = build_folder(), built[PATH_MAX];
    snprintf(built, sizeof(built), "%s/any.so", folder);
    cr_assert_eq(build_shared(folder, "stack_frame.c", "any.so", "-DSTACK_BYTES=8"), 0);
    folder_make(path);
    cr_assert_eq(build_copy(built, path), 0);
    cr_assert_not_null(dlopen(path, RTLD_NOW), "%s", dlerror());
    build_remove(folder);
}

static void setup(void)
{
    static const char *const names[] = {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV"};
    char resolved[PATH_MAX], *folder = build_folder();
    top = strdup(realpath(folder, resolved));
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
}

/* build_remove removes the files of one folder alone. */
static void finish(void)
{
    char command[PATH_MAX + 16];
    snprintf(command, sizeof(command), "rm -rf '%s'", top);
    cr_assert(strncmp(top, "/tmp/gpuprof-test-", 18) == 0 && system(command) == 0);
}

TestSuite(cuptifind, .init = setup, .fini = finish, .timeout = 60);

/* The copies in the order in which they are given: paths below the folder, NULL at the end. */
static void found_are(uint32_t driver_version, const char *const *want)
{
    const char *path;
    unsigned count = 0;
    gp_cupti_find_begin(&list, driver_version);
    while ((path = gp_cupti_find_next(&list))) {
        if (strncmp(path, top, strlen(top)) != 0)
            continue; /* the machine's */
        path += strlen(top) + 1;
        cr_assert_not_null(want[count], "number %u is %s", count, path);
        cr_assert_str_eq(path, want[count], "number %u is %s, not %s", count, path, want[count]);
        count++;
    }
    cr_assert_null(want[count], "%s is not found", want[count]);
    cr_assert_null(gp_cupti_find_next(&list));
}

#define FOUND(_version, ...) found_are(_version, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

Test(cuptifind, nothing)
{
    FOUND(12080);
}

Test(cuptifind, each_place_in_its_turn)
{
    char text[PATH_MAX];
    file_make(below("list/libcupti.so.12"));
    file_make(below("second/libcupti.so.12"));
    file_make(below("not/libcupti.so.12"));
    file_make(below("home/extras/CUPTI/lib64/libcupti.so.12"));
    file_make(below("path/lib64/libcupti.so.12"));
    file_make(below("conda/lib/libcupti.so.12"));
    file_make(below("conda/lib/python3.19/site-packages/nvidia/cu13/lib/libcupti.so.12"));
    file_make(below("conda/lib/python3.20/site-packages/nvidia/cu13/lib/libcupti.so.12"));
    file_make(below("venv/lib/python3.8/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"));
    file_make(below("venv/lib/python3.7/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"));
    file_make(below("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.12"));
    snprintf(text, sizeof(text), "%s:%s;:relative:%s:", below("list"), below("none"), below("second"));
    setenv("LD_LIBRARY_PATH", text, 1);
    setenv("CUDA_HOME", below("home"), 1);
    setenv("CUDA_PATH", below("path"), 1);
    setenv("CONDA_PREFIX", below("conda"), 1);
    setenv("VIRTUAL_ENV", below("venv"), 1);
    file_make(below("types/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"));
    object_load(below("types/site-packages/numpy/core.so"));
    file_make(below("debian/dist-packages/nvidia/cu13/lib/libcupti.so.12"));
    object_load(below("debian/dist-packages/_one.so"));
    file_make(below("python/lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.12"));
    object_load(below("python/lib/python3.11/lib-dynload/_json.so"));
    file_make(below("toolkit/lib64/libcupti.so.12"));
    object_load(below("toolkit/lib64/libcudart.so.12"));
    file_make(below("toolkit/extras/CUPTI/lib64/libcupti.so.12"));
    file_make(below("wheel/cuda_cupti/lib/libcupti.so.12"));
    file_make(below("wheel/cu13/lib/libcupti.so.12"));
    object_load(below("wheel/cuda_runtime/lib/libcudart.so.13"));
    object_load(below("loaded/libcupti.so.2024.1"));
    object_load(below("loaded/libcuptix.so")); /* another library */
    FOUND(12080, "loaded/libcupti.so.2024.1",  /* */
          "toolkit/lib64/libcupti.so.12", "toolkit/lib64/../extras/CUPTI/lib64/libcupti.so.12",
          "wheel/cuda_runtime/lib/../../cuda_cupti/lib/libcupti.so.12",
          "wheel/cuda_runtime/lib/../../cu13/lib/libcupti.so.12", /* */
          "types/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
          "debian/dist-packages/nvidia/cu13/lib/libcupti.so.12",
          "python/lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.12", /* */
          "list/libcupti.so.12", "second/libcupti.so.12",                       /* */
          "home/extras/CUPTI/lib64/libcupti.so.12", "path/lib64/libcupti.so.12", "conda/lib/libcupti.so.12",
          "venv/lib/python3.8/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
          "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.12",
          "conda/lib/python3.19/site-packages/nvidia/cu13/lib/libcupti.so.12");
    cr_assert_eq(list.copies[0].major, 0, "2024 is no version of CUDA");
    cr_assert_eq(list.copies[1].major, 12);
}

/* Of one place the newest comes first; what is newer than the driver comes after everything else. */
Test(cuptifind, versions)
{
    static const char *const names[] = {"libcupti.so",    "libcupti.so.11.0", "libcupti.so.11.8", "libcupti.so.12",
                                        "libcupti.so.13", "libcupti.so.14",   "libcupti.so.15",   "libcupti.so.16"};
    char text[PATH_MAX];
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        file_make(below("a/%s", names[i]));
    file_make(below("b/libcupti.so.12"));
    file_make(below("home/lib64/libcupti.so.12"));
    file_make(below("home/lib64/libcupti.so.14"));
    snprintf(text, sizeof(text), "%s:%s", below("a"), below("b"));
    setenv("LD_LIBRARY_PATH", text, 1);
    setenv("CUDA_HOME", below("home"), 1);
    FOUND(13000, "a/libcupti.so.13", "a/libcupti.so.12", "b/libcupti.so.12", "a/libcupti.so.11.8", "a/libcupti.so.11.0",
          "a/libcupti.so", "home/lib64/libcupti.so.12", "a/libcupti.so.15", "a/libcupti.so.14",
          "home/lib64/libcupti.so.14");
    FOUND(12999, "a/libcupti.so.12", "b/libcupti.so.12", "a/libcupti.so.11.8", "a/libcupti.so.11.0", "a/libcupti.so",
          "home/lib64/libcupti.so.12", "a/libcupti.so.15", "a/libcupti.so.14", "a/libcupti.so.13",
          "home/lib64/libcupti.so.14");
    FOUND(0, "a/libcupti.so.15", "a/libcupti.so.14", "a/libcupti.so.13", "a/libcupti.so.12", "b/libcupti.so.12",
          "a/libcupti.so.11.8", "a/libcupti.so.11.0", "a/libcupti.so", "home/lib64/libcupti.so.14",
          "home/lib64/libcupti.so.12");
    cr_assert_eq(list.copies[0].major, 15);
    cr_assert_eq(list.left_out, 0);
}

/* A copy that is loaded fits, whatever its version; and a file has one place, whatever its names. */
Test(cuptifind, loaded_copies_and_second_names)
{
    object_load(below("loaded/libcupti.so.14"));
    file_make(below("a/libcupti.so.12"));
    cr_assert_eq(symlink("libcupti.so.12", below("a/libcupti.so.11.8")), 0);
    cr_assert_eq(symlink(below("loaded/libcupti.so.14"), below("a/libcupti.so")), 0);
    setenv("LD_LIBRARY_PATH", below("a"), 1);
    FOUND(12000, "loaded/libcupti.so.14", "a/libcupti.so.12");
}

/* The longest path that has room, and one that is longer by one. */
Test(cuptifind, long_paths)
{
    char name[256];
    for (int more = 0; more < 2; more++) {
        char path[PATH_MAX], want[PATH_MAX];
        size_t length = GP_CUPTI_PATH - 1 - strlen("/libcupti.so.12") - strlen(top) - 1 + (size_t)more;
        memset(name, 'a' + more, sizeof(name));
        snprintf(path, sizeof(path), "%.200s/%.*s", name, (int)(length - 201 > 200 ? 200 : length - 201), name);
        if (length > 402) {
            size_t used = strlen(path);
            snprintf(path + used, sizeof(path) - used, "/%.*s", (int)(length - 402), name);
        }
        cr_assert_eq(strlen(path), length);
        file_make(below("%s/libcupti.so.12", path));
        setenv("LD_LIBRARY_PATH", below("%s", path), 1);
        snprintf(want, sizeof(want), "%s/libcupti.so.12", path);
        if (more)
            FOUND(12000);
        else
            FOUND(12000, want);
    }
}

Test(cuptifind, more_copies_than_have_room)
{
    static char text[16384], wants[ROWS][32];
    const char *want[ROWS] = {NULL};
    for (int i = 0; i < 30; i++) {
        file_make(below("%02d/libcupti.so.12", i));
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s:", below("%02d", i));
        snprintf(wants[i], sizeof(wants[i]), "%02d/libcupti.so.12", i);
        want[i] = i < (int)GP_CUPTI_COPIES ? wants[i] : NULL;
    }
    setenv("LD_LIBRARY_PATH", text, 1);
    found_are(12000, want);
    cr_assert_geq(list.left_out, 30 - GP_CUPTI_COPIES);
    cr_assert_eq(list.count, GP_CUPTI_COPIES);
}

/* Folders that are named twice take one place, and those without a file or with a path that is not absolute none. */
Test(cuptifind, more_folders_than_have_room)
{
    static char text[32768];
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s:here%d:", below("none%d", i / 5), i);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", below("last"));
    file_make(below("last/libcupti.so.12"));
    setenv("LD_LIBRARY_PATH", text, 1);
    FOUND(12000, "last/libcupti.so.12");
    cr_assert_eq(list.folders[40].origin, GP_CUPTI_PATH_LIST);
    memset(text, 0, sizeof(text));
    for (int i = 0; i < 48; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s:", below("none%d", i));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", below("last"));
    setenv("LD_LIBRARY_PATH", text, 1);
    FOUND(12000);
    cr_assert_eq(list.folder_count, GP_CUPTI_FOLDERS);
}

/* Only an object that is linked to libcupti is asked what it imports. */
Test(cuptifind, the_tools_that_use_a_function)
{
    char extra[PATH_MAX + 32];
    mkdir(below("list"), 0700);
    cr_assert_eq(build_shared(below("list"), "cupti_other.c", "libcupti.so.13", "-Wl,-soname,libcupti.so.13"), 0);
    cr_assert_eq(build_shared(below("list"), "cupti_linked.c", "alone.so", NULL), 0);
    snprintf(extra, sizeof(extra), "-Wl,--no-as-needed,%s", below("list/libcupti.so.13"));
    cr_assert_eq(build_shared(below("list"), "cupti_user.c", "user.so", extra), 0);
    cr_assert_eq(build_shared(below("list"), "cupti_linked.c", "linked.so", extra), 0);
    cr_assert_not_null(dlopen(below("list/libcupti.so.13"), RTLD_NOW));
    cr_assert_not_null(dlopen(below("list/alone.so"), RTLD_NOW));
    cr_assert_not_null(dlopen(below("list/user.so"), RTLD_NOW), "%s", dlerror());
    cr_expect(!gp_cupti_find_user("cuptiSubscribe_v2"));
    cr_expect(gp_cupti_find_user("cuptiOnlyInTheOther"));
    cr_assert_not_null(dlopen(below("list/linked.so"), RTLD_NOW), "%s", dlerror());
    cr_expect(gp_cupti_find_user("cuptiSubscribe_v2"));
    cr_expect(!gp_cupti_find_user("cuptiSubscribe"));
}
