/* SPDX-License-Identifier: MIT
 *
 * test_foreign.c: files whose names another process or a recording chose (tools/read/common/foreign.c):
 * names that lead out of a root or to pipes and devices, the objects of a process in a chroot, and
 * the names of debug files inside an object.
 */
#include <lib/build.h>
#include <read/collect/procfs.h>
#include <read/common/foreign.h>
#include <record/modules.h>
#include <symbol/internal.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;
static int watch = -1;

static void setup(void)
{
    folder = build_folder();
    cr_assert(folder);
}

static void clean(void)
{
    char line[512];
    snprintf(line, sizeof(line), "rm -rf %s/*", folder);
    cr_expect_eq(system(line), 0);
    build_remove(folder);
}

/* A name that waits for a pipe ends the test. */
TestSuite(foreign, .init = setup, .fini = clean, .timeout = 30);

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char line[2048], whole[2200];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "cd %s && %s", folder, line);
    cr_assert_eq(system(whole), 0, "%s", whole);
}

static const char *in(const char *name)
{
    static char path[2][512];
    static unsigned turn;
    snprintf(path[++turn & 1], sizeof(path[0]), "%s/%s", folder, name);
    return path[turn & 1];
}

static void watch_open(const char *name)
{
    watch = watch < 0 ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : watch;
    cr_assert_geq(inotify_add_watch(watch, in(name), IN_OPEN), 0);
}

static void expect_unopened(void)
{
    struct inotify_event event;
    cr_expect_eq(read(watch, &event, sizeof(event)), -1, "a pipe was opened");
}

/* What the file contains, "" if it was not opened. */
static const char *first_word(const char *root, const char *path)
{
    static char text[16];
    int fd = gp_foreign_open(root, path);
    memset(text, 0, sizeof(text));
    if (fd >= 0) {
        cr_assert_gt(read(fd, text, sizeof(text) - 1), 0);
        text[strcspn(text, " ")] = '\0';
        close(fd);
    }
    return text;
}

Test(foreign, a_name_stays_in_its_root_and_only_a_regular_file_is_opened)
{
    shell("mkdir -p root/lib && printf '%%-100s' inside >root/lib/file && printf '%%-100s' outside >file");
    shell("ln -s /lib/file root/absolute && ln -s ../../../lib/file root/dots && ln -s %s/file root/out", folder);
    shell("mkfifo pipe root/pipe && ln -s %s/pipe root/outpipe && printf x >root/short", folder);
    shell("cat /proc/self/status >status"); /* the folder stands for /proc/PID of this process */
    watch_open("pipe");
    watch_open("root/pipe");
    char root[512];
    snprintf(root, sizeof(root), "%s", in("root"));
    cr_expect_str_eq(first_word(root, "/lib/file"), "inside");
    cr_expect_str_eq(first_word(root, "/absolute"), "inside");
    cr_expect_str_eq(first_word(root, "/dots"), "inside");
    cr_expect_eq(gp_foreign_open(root, "/out"), -ENOENT);
    cr_expect_eq(gp_foreign_open(root, "/outpipe"), -ENOENT);
    cr_expect_eq(gp_foreign_open(root, "/pipe"), -ENOEXEC);
    cr_expect_eq(gp_foreign_open(root, "/lib"), -ENOEXEC);
    cr_expect_eq(gp_foreign_open(root, "/short"), -ENOEXEC);
    cr_expect_eq(gp_foreign_open("", in("pipe")), -ENOEXEC);
    cr_expect_eq(gp_foreign_open("", "/dev/null"), -ENOEXEC);
    cr_expect_eq(gp_foreign_open("", "/proc/self/status"), -ENOEXEC);
    cr_expect_eq(gp_foreign_open("", "relative"), -ENOENT);
    cr_expect_str_eq(first_word("", in("file")), "outside");
    expect_unopened();
}

/* A name of a process leads root to nothing that the process itself may not read. */
Test(foreign, a_file_is_opened_with_the_rights_of_the_process)
{
    if (getuid() != 0)
        cr_skip("needs root");
    shell("mkdir -p root/mine root/closed && printf '%%-100s' secret >root/secret && printf '%%-100s' open >root/open");
    shell("cp root/open root/mine/file && cp root/open root/closed/file && chown -R 64001 root/mine");
    shell("chmod 755 root && chmod 600 root/secret root/mine/file && chmod 644 root/open && chmod 700 root/closed");
    shell("printf 'Name:\\tx\\nUid:\\t0\\t0\\t0\\t64001\\nGid:\\t0\\t0\\t0\\t64001\\nGroups:\\t\\n' >status");
    char root[512];
    snprintf(root, sizeof(root), "%s", in("root"));
    cr_expect_eq(gp_foreign_open(root, "/secret"), -EACCES);
    cr_expect_eq(gp_foreign_open(root, "/closed/file"), -EACCES);
    cr_expect_str_eq(first_word(root, "/open"), "open");
    cr_expect_str_eq(first_word(root, "/mine/file"), "open");
}

/* ---- a process in a chroot --------------------------------------------------------------------------------------- */

static void compile(const char *name, const char *flags)
{
    shell("printf 'int probe(int x) { return 3 * x; }\\n' >f.c && cc -g -fPIC -shared -Wl,--build-id %s -o %s f.c",
          flags, name);
}

/* Maps the file and then lives in the folder root. */
static pid_t caged(const char *name)
{
    int ends[2];
    char byte;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = open(in(name), O_RDONLY);
        void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096);
        _exit(at == MAP_FAILED || chroot(in("root")) || chdir("/") || write(ends[1], "r", 1) != 1 || pause());
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static const struct gp_module *module_of(const struct gp_modules *modules, const char *name)
{
    for (uint32_t i = 0; i < modules->count; i++)
        if (strstr(modules->rows[i].path, name))
            return &modules->rows[i];
    cr_assert_fail("%s is not mapped", name);
    return NULL;
}

static enum gp_object_problem open_object(const char *root, const struct gp_module *m, bool has_mapping)
{
    struct gp_intern intern = {0};
    struct gp_object object;
    char id[80] = "";
    for (unsigned i = 0; i < m->build_id_bytes; i++)
        sprintf(id + 2 * i, "%02x", m->build_id[i]);
    uint64_t room = 1ull << 30;
    const struct gp_object_source source = {.root = root,
                                            .path = m->path,
                                            .build_id = id,
                                            .start = m->start,
                                            .end = has_mapping ? m->end : m->start,
                                            .room = &room};
    enum gp_object_problem problem = gp_object_open(&object, &intern, &source);
    if (problem == GP_OBJECT_FINE)
        gp_object_close(&object);
    gp_intern_free(&intern);
    return problem;
}

Test(foreign, objects_of_a_process_in_a_chroot_are_found)
{
    char proc[32], root[40];
    struct gp_modules modules;
    if (geteuid() != 0)
        cr_skip_test("chroot needs root");
    shell("mkdir -p root/lib");
    compile("root/lib/caged.so", "");
    pid_t pid = caged("root/lib/caged.so");
    snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
    snprintf(root, sizeof(root), "%s/root", proc);
    cr_assert_eq(gp_modules_read(&modules, proc, gp_proc_mapped_open), 0);
    const struct gp_module *m = module_of(&modules, "caged.so");
    cr_expect_str_eq(m->path, in("root/lib/caged.so"), "as seen from our root");
    cr_expect_gt(m->build_id_bytes, 0);
    cr_expect_eq(open_object(root, m, true), GP_OBJECT_FINE, "by the mapping");
    cr_expect_eq(open_object(root, m, false), GP_OBJECT_FINE, "by the plain path");
    shell("rm root/lib/caged.so && mkfifo root/lib/caged.so");
    watch_open("root/lib/caged.so");
    cr_expect_eq(open_object(root, m, true), GP_OBJECT_FINE, "deleted, but mapped");
    cr_expect_eq(open_object(root, m, false), GP_OBJECT_BAD);
    gp_modules_free(&modules);
    expect_unopened();
    end(pid);
}

/* The container replaces its library by a link to a pipe of the host. */
Test(foreign, a_build_id_is_not_read_through_a_link_out_of_the_root)
{
    char proc[32];
    struct gp_modules modules;
    if (geteuid() != 0)
        cr_skip_test("chroot needs root");
    shell("mkdir -p root%s root/lib && mkfifo pipe", folder);
    compile("root/lib/caged.so", "");
    shell("cp root/lib/caged.so root%s/caged.so", folder);
    char name[512];
    snprintf(name, sizeof(name), "root%s/caged.so", folder);
    pid_t pid = caged(name);
    /* The path that maps shows is now also one below the process's root. */
    shell("mkdir -p root%s/root%s && ln -s %s/pipe root%s/root%s/caged.so && rm root%s/caged.so", folder, folder,
          folder, folder, folder, folder);
    watch_open("pipe");
    snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
    cr_assert_eq(gp_modules_read(&modules, proc, gp_proc_mapped_open), 0);
    cr_expect_gt(module_of(&modules, "caged.so")->build_id_bytes, 0, "of the deleted file itself");
    gp_modules_free(&modules);
    expect_unopened();
    end(pid);
}

/* ---- names inside an object -------------------------------------------------------------------------------------- */

/* Looks up the function and says its name and line. */
static const char *look(const char *name)
{
    static char text[64];
    char path[512];
    struct gp_intern intern = {0};
    snprintf(path, sizeof(path), "%s", in(name));
    struct gp_object object;
    struct gp_object_frame frames[GP_INLINES];
    uint64_t room = 1ull << 30;
    const struct gp_object_source source = {.root = "", .path = path, .build_id = "", .room = &room};
    char line[600];
    unsigned long offset = 0;
    cr_assert_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_OTHER, "the build id must be given");
    snprintf(line, sizeof(line), "nm %s | sed -n 's/ T probe//p'", path);
    FILE *out = popen(line, "r");
    cr_assert_eq(fscanf(out, "%lx", &offset), 1);
    pclose(out);
    char id[80] = "";
    snprintf(line, sizeof(line), "readelf -n %s | sed -n 's/.*Build ID: //p'", path);
    out = popen(line, "r");
    cr_assert_eq(fscanf(out, "%79s", id), 1);
    pclose(out);
    const struct gp_object_source with_id = {.root = "", .path = path, .build_id = id, .room = &room};
    cr_assert_eq(gp_object_open(&object, &intern, &with_id), GP_OBJECT_FINE);
    uint32_t count = gp_object_lookup(&object, offset, frames);
    snprintf(text, sizeof(text), "%s:%u", count ? frames[0].function : "", count ? frames[0].line : 0);
    gp_object_close(&object);
    gp_intern_free(&intern);
    return text;
}

Test(foreign, the_name_of_a_debug_file_may_be_a_pipe)
{
    compile("d.so", "");
    shell("objcopy --only-keep-debug d.so d.debug && strip -g d.so && objcopy --add-gnu-debuglink=d.debug d.so");
    cr_expect_str_eq(look("d.so"), "probe:1");
    shell("rm d.debug && mkfifo d.debug");
    watch_open("d.debug");
    cr_expect_str_eq(look("d.so"), "probe:0", "only the symbol table");
    expect_unopened();
}

Test(foreign, split_dwarf_in_a_folder_of_others_is_not_opened)
{
    compile("s.so", "-gsplit-dwarf");
    cr_expect_str_eq(look("s.so"), "probe:1");
    shell("for file in *.dwo; do rm $file && mkfifo $file; done && chmod 777 .");
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strstr(entry->d_name, ".dwo"))
            watch_open(entry->d_name);
    closedir(dir);
    cr_assert_geq(watch, 0);
    cr_expect_str_eq(look("s.so"), "probe:0");
    expect_unopened();
}

/* The object does not refer to the shared file, so any with debug information will do. Its build id
 * is given, so that it never ends with the byte that is written below. */
Test(foreign, a_shared_debug_file_is_used_if_its_build_id_fits)
{
    compile("shared.so", "-Wl,--build-id=0x0102030405060708090a0b0c0d0e0f1011121314");
    compile("a.so", "-DOTHER");
    shell("id=$(readelf -n shared.so | sed -n 's/.*Build ID: //p'); (printf '%s/shared.so\\0' && /usr/bin/printf "
          "\"$(echo $id | sed "
          "'s/../\\\\x&/g')\") >section",
          folder);
    shell("cp a.so b.so && objcopy --add-section .gnu_debugaltlink=section a.so");
    cr_expect_str_eq(look("a.so"), "probe:1");
    shell("printf 9 | dd of=section bs=1 conv=notrunc seek=$(($(stat -c %%s section) - 1)) 2>/dev/null");
    shell("objcopy --add-section .gnu_debugaltlink=section b.so");
    cr_expect_str_eq(look("b.so"), "probe:0");
}

/* dwz writes such names; here the section is written by hand. */
Test(foreign, the_name_of_a_shared_debug_file_may_be_a_pipe)
{
    compile("a.so", "");
    shell("mkfifo shared && (printf '%s/shared\\0' && printf 01234567890123456789) >section", folder);
    shell("objcopy --add-section .gnu_debugaltlink=section a.so");
    watch_open("shared");
    cr_expect_str_eq(look("a.so"), "probe:0");
    expect_unopened();
}

Test(foreign, one_note_for_all_objects_that_cannot_be_opened)
{
    static const char strings[] = "\0/nowhere/a.so\0/nowhere/b.so\0/nowhere/c.so";
    struct gp_rec_module modules[3];
    struct gp_rec_frame frames[3];
    struct gp_rec_site sites[2] = {{0}, {.first_frame = 0, .frame_count = 3}};
    const struct gp_frame_text *f;
    struct gp_symbols *symbols;
    for (uint32_t i = 0; i < 3; i++) {
        modules[i] = (struct gp_rec_module){.start = 4096 * i + 4096, .end = 4096 * i + 8192, .path = 1 + 14 * i};
        frames[i] = (struct gp_rec_frame){.pc = 4096 * i + 4100, .module = i};
    }
    struct gp_symbol_source from = {sites, frames, modules, strings, 2, 3, 3, "", NULL, 0};
    cr_assert_eq(gp_symbols_new(&symbols, &from), 0);
    gp_symbols_site(symbols, 1, &f);
    cr_assert(gp_symbols_note(symbols, 0));
    cr_expect(strstr(gp_symbols_note(symbols, 0), "3 objects cannot be opened"), "%s", gp_symbols_note(symbols, 0));
    cr_expect(strstr(gp_symbols_note(symbols, 0), "/nowhere/a.so"), "%s", gp_symbols_note(symbols, 0));
    cr_expect_null(gp_symbols_note(symbols, 1));
    gp_symbols_free(symbols);
}
