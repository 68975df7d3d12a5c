/* SPDX-License-Identifier: MIT
 *
 * test_modules.c: which lines of maps are modules, up to the limits of the tables, which address belongs to which module, and
 * which files are opened for their build IDs (core/record/modules.c) and have one, with files that were replaced, pipes, and
 * system calls that fail.
 */
#include "base/vma.h"
#include "lib/mappings.h"
#include "record/modules.h"
#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MODULES 40u

/* ---- system calls ------------------------------------------------------------------------------------------------ */

static bool no_thread_self;
static int read_error;
static unsigned reads;
static size_t read_most;

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (no_thread_self && strncmp(path, "/proc/thread-self/", 18) == 0) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t read(int fd, void *into, size_t bytes)
{
    if (read_error && ++reads == 2) {
        errno = read_error;
        return -1;
    }
    return syscall(SYS_read, fd, into, read_most && bytes > read_most ? read_most : bytes);
}

static unsigned open_files(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- a process --------------------------------------------------------------------------------------------------- */

static char proc[64];

static void enter(void)
{
    char path[128];
    strcpy(proc, "/tmp/gpuprof-test-files-XXXXXX");
    cr_assert(mkdtemp(proc));
    snprintf(path, sizeof(path), "%s/root", proc);
    cr_assert_eq(mkdir(path, 0700), 0);
}

static int removed(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static void leave(void)
{
    nftw(proc, removed, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(modules, .init = enter, .fini = leave, .timeout = 60);

static void maps(const char *text, size_t bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/maps", proc);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
}

static struct gp_vma last;
static char last_path[256];

static int no_file(const char *of, const struct gp_vma *file)
{
    cr_expect_str_eq(of, proc);
    last = *file;
    snprintf(last_path, sizeof(last_path), "%s", file->path);
    return -ENOENT;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

#define GOOD "1000-3000 r-xp 00002000 08:11 77 "

Test(modules, lines_that_are_modules)
{
    static const struct {
        const char *line;
        const char *path; /* NULL: it is none */
    } lines[] = {{GOOD "/a\n", "/a"},
                 {GOOD "        /with  blanks \n", "/with  blanks "},
                 {GOOD "\n", ""},
                 {"1000-3000 r-xp 00002000 08:11 77\n", ""},
                 {GOOD "[vdso]\n", "[vdso]"},
                 {"1000-3000 rw-p 00002000 08:11 77 /a\n", NULL},
                 {"1000-3000 x--p 00002000 08:11 77 /a\n", NULL},
                 {"1000-1000 r-xp 00002000 08:11 77 /a\n", NULL},
                 {"3000-1000 r-xp 00002000 08:11 77 /a\n", NULL},
                 {"1000-1001 r-xp 00002000 08:11 77 /a\n", "/a"},
                 {"-3000 r-xp 00002000 08:11 77 /a\n", NULL},
                 {"1000 3000 r-xp 00002000 08:11 77 /a\n", NULL},
                 {"10g0-3000 r-xp 00002000 08:11 77 /a\n", NULL},
                 {"10:0-3000 r-xp 00002000 08:11 77 /a\n", NULL},
                 {"1000-3000 r-x\n", NULL},
                 {"1000-3000 r-xp\n", NULL},
                 {"1000-3000\n", NULL},
                 {"1000-3000 r-xp 2000\n", NULL},
                 {"1000-3000 r-xp 2000 08\n", NULL},
                 {"1000-3000 r-xp 2000 08:\n", NULL},
                 {"1000-3000 r-xp 2000 08:11\n", NULL},
                 {"1000-3000 r-xp 2000 08:11 7f\n", NULL},
                 {"1000-3000 r-xp 2000 0811 77 /a\n", NULL},
                 {"\n", NULL},
                 {"1000-3000 r-xp 00002000 08:11 77 /a", NULL}}; /* not ended */
    for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct gp_modules modules;
        maps(lines[i].line, strlen(lines[i].line));
        cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
        cr_expect_eq(modules.count, lines[i].path != NULL, "%s", lines[i].line);
        if (modules.count && lines[i].path) {
            cr_expect_str_eq(modules.rows[0].path, lines[i].path);
            cr_expect(modules.rows[0].start == 0x1000 && modules.rows[0].offset == 0x2000 && !modules.truncated);
        }
        gp_modules_free(&modules);
        cr_expect(!modules.rows && !modules.count && !modules.paths);
    }
    struct gp_modules modules;
    maps(GOOD "/a\n", strlen(GOOD "/a\n"));
    cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
    cr_expect(last.inode == 77 && last.device == makedev(8, 0x11) && last.start == 0x1000 && last.end == 0x3000);
    cr_expect_str_eq(last_path, "/a");
    gp_modules_free(&modules);
}

/* Parts of one file have one path, and only the first is opened; addresses rise. */
Test(modules, parts_of_a_file)
{
    static const char text[] = "1000-2000 r-xp 0 08:11 77 /a\n2000-3000 r-xp 1000 08:11 77 /a\n"
                               "3000-4000 r-xp 0 08:11 78 [heap]\n4000-5000 r-xp 0 08:11 78 [heap]\n"
                               "4fff-6000 r-xp 0 08:11 78 /late\n7000-8000 r-xp 0 08:11 78 /b\n";
    struct gp_modules modules;
    maps(text, sizeof(text) - 1);
    cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
    cr_expect_eq(modules.count, 5);
    cr_expect(modules.truncated, "a mapping that begins in another one");
    cr_expect_eq(modules.rows[0].path, modules.rows[1].path);
    cr_expect_eq(modules.rows[1].offset, 0x1000);
    cr_expect_neq(modules.rows[2].path, modules.rows[3].path);
    cr_expect_str_eq(modules.rows[4].path, "/b");
    cr_expect_eq(modules.path_bytes, 3 + 7 + 7 + 3);
    gp_modules_free(&modules);
}

/* 4096 modules and a megabyte of paths. */
Test(modules, tables_that_are_full)
{
    static char text[6 << 20];
    struct gp_modules modules;
    for (unsigned extra = 0; extra < 2; extra++) {
        size_t used = 0;
        for (unsigned i = 0; i < GP_MODULES_MOST + extra; i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%x-%x r-xp 0 08:11 77 /%u\n", 0x1000 * i,
                                     0x1000 * i + 5, i);
        maps(text, used);
        cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
        cr_expect_eq(modules.count, GP_MODULES_MOST);
        cr_expect_eq(modules.truncated, extra);
        gp_modules_free(&modules);
    }
    for (unsigned more = 0; more < 2; more++) { /* 256 paths of 4096 bytes with their NULs; and one byte more */
        size_t used = 0;
        for (unsigned i = 0; i < 256; i++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%x-%x r-xp 0 08:11 77 /%03u", 0x1000 * i,
                                     0x1000 * i + 5, i);
            size_t letters = 4095 - 4 + (more && i == 255);
            memset(text + used, 'p', letters);
            used += letters;
            text[used++] = '\n';
        }
        maps(text, used);
        cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
        cr_expect_eq(modules.count, 256 - more);
        cr_expect_eq(modules.truncated, more);
        cr_expect_eq(modules.path_bytes, (256 - more) * 4096);
        gp_modules_free(&modules);
    }
}

/* A line longer than any of the kernel's is damage; shorter ones may come in pieces. */
Test(modules, long_lines_and_short_reads)
{
    static char text[30000];
    struct gp_modules modules;
    for (unsigned way = 0; way < 3; way++) {
        size_t prefix = (size_t)sprintf(text, GOOD "/");
        size_t length = (20 << 10) - (way < 2); /* the buffer has place for a line and its end */
        memset(text + prefix, 'q', length - prefix);
        text[length] = '\n';
        strcpy(text + length + 1, "8000-9000 r-xp 0 08:11 77 /b\n");
        maps(text, length + 1 + strlen(text + length + 1));
        read_most = way == 1 ? 7 : 0;
        cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
        cr_expect_eq(modules.count, way < 2 ? 2 : 0, "way %u: %u", way, modules.count);
        cr_expect_eq(modules.truncated, way == 2);
        gp_modules_free(&modules);
    }
    read_most = 10;
    maps(GOOD "/a\n", strlen(GOOD "/a\n"));
    read_error = EINTR;
    reads = 0;
    cr_assert_eq(gp_modules_read(&modules, proc, no_file), 0);
    cr_expect_eq(modules.count, 1);
    gp_modules_free(&modules);
}

/* Without maps, memory or a read that succeeds there are no modules, and nothing is left behind. */
Test(modules, what_fails)
{
    struct gp_modules modules;
    unsigned files = open_files();
    cr_expect_eq(gp_modules_read(&modules, proc, NULL), -ENOENT);
    maps(GOOD "/a\n", strlen(GOOD "/a\n"));
    mappings.fail_all = true;
    cr_expect_eq(gp_modules_read(&modules, proc, NULL), -ENOMEM);
    mappings.fail_all = false;
    long long before = mappings.bytes;
    read_error = EIO;
    read_most = 10;
    reads = 0;
    cr_expect_eq(gp_modules_read(&modules, proc, NULL), -EIO);
    cr_expect(!modules.rows && !modules.count);
    cr_expect_eq(mappings.bytes, before);
    cr_expect_eq(open_files(), files);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* An ELF file whose second segment of notes has the build ID, after a note of another owner. */
static struct image {
    Elf64_Ehdr elf;
    Elf64_Phdr headers[4];
    struct {
        Elf64_Nhdr head;
        char name[8];
        uint8_t text[4];
    } other;
    struct {
        Elf64_Nhdr head;
        char name[4];
        uint8_t text[36];
    } id;
} image;

static void image_fill(void)
{
    image = (struct image){
        .elf = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
                .e_phentsize = sizeof(Elf64_Phdr),
                .e_phnum = 4,
                .e_phoff = offsetof(struct image, headers)},
        .headers = {{.p_type = PT_LOAD},
                    {.p_type = PT_NOTE, .p_offset = offsetof(struct image, other), .p_filesz = sizeof(image.other)},
                    {.p_type = PT_DYNAMIC},
                    {.p_type = PT_NOTE,
                     .p_offset = offsetof(struct image, other),
                     .p_filesz = sizeof(image.other) + sizeof(image.id)}},
        .other = {.head = {5, 3, NT_GNU_BUILD_ID}, .name = "GNUX"},
        .id = {.head = {4, 20, NT_GNU_BUILD_ID}, .name = "GNU"}};
    for (unsigned i = 0; i < sizeof(image.id.text); i++)
        image.id.text[i] = (uint8_t)(i + 1);
}

static unsigned opened;

static int image_open(const char *of, const struct gp_vma *file)
{
    int fd = memfd_create("image", MFD_CLOEXEC);
    (void)of, (void)file;
    opened++;
    cr_assert_eq(write(fd, &image, sizeof(image)), (ssize_t)sizeof(image));
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static const char *path_of(unsigned i, const char *gap)
{
    static char path[64];
    snprintf(path, sizeof(path), i % 7 == 6 ? "" : "%s/lib/a%u b.so", gap, i);
    return path;
}

/* Of 40 mappings one after the other, some with holes between them, those count that are executable and have bytes. */
Test(modules, addresses_belong_to_their_mappings)
{
    static const char *const modes[] = {"r-xp", "rwxp", "r--p", "rw-s", "--xp"};
    static char text[8192];
    uint64_t starts[MODULES], ends[MODULES];
    size_t used = 0;
    unsigned count = 0, named = 0;
    struct gp_modules modules;
    image_fill();
    for (unsigned i = 0; i < MODULES; i++) {
        const char *mode = modes[i % 5];
        starts[i] = i ? ends[i - 1] + i % 3 * 0x1000 : 0x400000;
        ends[i] = starts[i] + (1 + i % 4) * 0x1000;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%lx-%lx %s %08x fe:0%u %u %s\n", starts[i], ends[i],
                                 mode, i * 0x1000, i % 9, i + 1, path_of(i, "                "));
        count += mode[2] == 'x';
        named += mode[2] == 'x' && i % 7 != 6;
    }
    maps(text, used);
    cr_assert_eq(gp_modules_read(&modules, proc, image_open), 0);
    cr_assert_eq(modules.count, count);
    cr_expect_eq(opened, named);
    cr_expect_not(modules.truncated);
    for (unsigned i = 0; i < MODULES; i++) {
        bool runs = modes[i % 5][2] == 'x';
        for (unsigned part = 0; part < 3; part++) {
            uint64_t pc = part == 0 ? starts[i] : part == 1 ? starts[i] + 5 : ends[i] - 1;
            const struct gp_module *found = gp_modules_find(&modules, pc);
            cr_assert_eq(found != NULL, runs, "%u: %lx", i, pc);
            cr_assert(!found || (found->start == starts[i] && found->end == ends[i] && found->offset == i * 0x1000));
            cr_assert(!found || strcmp(found->path, path_of(i, "")) == 0);
        }
        if (i + 1 == MODULES || starts[i + 1] != ends[i])
            cr_expect_null(gp_modules_find(&modules, ends[i]));
    }
    cr_expect_null(gp_modules_find(&modules, starts[0] - 1));
    gp_modules_free(&modules);
}

/* ---- build IDs --------------------------------------------------------------------------------------------------- */

/* The bytes of the build ID that is found. */
static unsigned sound_bytes(void)
{
    static const char line[] = "1000-3000 r-xp 00000000 08:01 77 /lib/a.so\n";
    struct gp_modules modules;
    maps(line, sizeof(line) - 1);
    cr_assert_eq(gp_modules_read(&modules, proc, image_open), 0);
    cr_assert_eq(modules.count, 1);
    unsigned bytes = modules.rows[0].build_id_bytes;
    cr_assert_eq(memcmp(modules.rows[0].build_id, image.id.text, bytes), 0);
    gp_modules_free(&modules);
    return bytes;
}

#define WITHOUT(_change, _bytes)                                                                                       \
    do {                                                                                                               \
        image_fill();                                                                                                  \
        _change;                                                                                                       \
        cr_expect_eq(sound_bytes(), _bytes, #_change);                                                                 \
    } while (0)

Test(modules, build_ids_are_found_in_sound_files_alone)
{
    WITHOUT((void)0, 20);
    for (unsigned i = 0; i < 4; i++)
        WITHOUT(image.elf.e_ident[i] ^= 1, 0);
    WITHOUT(image.elf.e_ident[EI_CLASS] = ELFCLASS32, 0);
    WITHOUT(image.elf.e_ident[EI_DATA] = ELFDATA2MSB, 0);
    WITHOUT(image.elf.e_phentsize++, 0);
    WITHOUT(image.elf.e_phentsize--, 0);
    WITHOUT(image.elf.e_phnum = 3, 0);
    WITHOUT(image.elf.e_phoff = sizeof(image), 0);
    WITHOUT(image.elf.e_phoff = UINT64_MAX, 0);
    WITHOUT(image.headers[3].p_type = PT_LOAD, 0);
    WITHOUT(image.headers[1].p_filesz = sizeof(image.other) + sizeof(image.id), 20);
    WITHOUT(image.headers[3].p_offset = offsetof(struct image, id); image.headers[3].p_filesz = sizeof(image.id), 20);
    WITHOUT(image.headers[3].p_filesz = sizeof(image.other) + 12 + 4 + 20, 20);
    WITHOUT(image.headers[3].p_filesz = sizeof(image.other) + 12 + 4 + 19, 0);
    WITHOUT(image.headers[3].p_filesz = sizeof(image.other) + 11, 0);
    WITHOUT(image.id.head.n_type++, 0);
    WITHOUT(image.id.head.n_namesz = 3, 0);
    WITHOUT(image.id.name[0] = 'X', 0);
    WITHOUT(image.id.name[2] = 'X', 0);
    WITHOUT(image.id.head.n_descsz = 0, 0);
    WITHOUT(image.id.head.n_descsz = 1, 1);
    WITHOUT(image.id.head.n_descsz = 32, 32);
    WITHOUT(image.id.head.n_descsz = 33, 0);
    WITHOUT(image.id.head.n_descsz = UINT32_MAX, 0);
    WITHOUT(image.other.head.n_namesz = UINT32_MAX, 0);
}

/* The bytes of the build ID that is found. */
static unsigned id_of(uint64_t inode, const char *path)
{
    char line[256];
    struct gp_modules modules;
    unsigned files = open_files();
    snprintf(line, sizeof(line), "1000-2000 r-xp 0 08:11 %lu %s\n2000-3000 r-xp 0 08:11 %lu %s\n", inode, path, inode,
             path);
    maps(line, strlen(line));
    cr_assert_eq(gp_modules_read(&modules, proc, NULL), 0);
    cr_assert_eq(modules.count, 2);
    unsigned bytes = modules.rows[0].build_id_bytes;
    cr_expect_eq(modules.rows[1].build_id_bytes, path[0] == '/' ? bytes : 0, "the same file");
    cr_expect_arr_eq(modules.rows[1].build_id, modules.rows[0].build_id, 32);
    cr_expect(bytes == 0 || memcmp(modules.rows[0].build_id, image.id.text, bytes) == 0);
    gp_modules_free(&modules);
    cr_expect_eq(open_files(), files, "%s", path);
    return bytes;
}

/* The file that is mapped is the one of that inode in the process's own root; another one, a pipe or none has no ID. */
Test(modules, files_of_the_process)
{
    char path[128];
    struct stat status;
    image_fill();
    snprintf(path, sizeof(path), "%s/root/lib.so", proc);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert_eq(write(fd, &image, sizeof(image)), (ssize_t)sizeof(image));
    close(fd);
    cr_assert_eq(stat(path, &status), 0);
    cr_expect_eq(id_of(status.st_ino, "/lib.so"), 20);
    no_thread_self = true; /* before Linux 3.17 */
    cr_expect_eq(id_of(status.st_ino, "/lib.so"), 20);
    no_thread_self = false;
    cr_expect_eq(id_of(status.st_ino + 1, "/lib.so"), 0, "it was replaced");
    cr_expect_eq(id_of(status.st_ino, "/other.so"), 0);
    cr_expect_eq(id_of(status.st_ino, "lib.so"), 0, "no path");
    snprintf(path, sizeof(path), "%s/root/fifo", proc);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(stat(path, &status), 0);
    cr_expect_eq(id_of(status.st_ino, "/fifo"), 0);
}
