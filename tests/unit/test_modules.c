/* SPDX-License-Identifier: MIT
 *
 * test_modules.c: executable mappings of a process whose maps and files the test writes: which lines count, which address
 * belongs to which module, and in which ELF files a build ID is found.
 */
#include "record/recorder.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MODULES 40u

TestSuite(modules, .timeout = 60);

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

static int image_open(const char *proc, const struct gp_vma *file)
{
    int fd = memfd_create("image", MFD_CLOEXEC);
    (void)proc, (void)file;
    opened++;
    cr_assert_eq(write(fd, &image, sizeof(image)), (ssize_t)sizeof(image));
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void read_of(struct gp_modules *modules, const char *maps, size_t bytes)
{
    char proc[] = "/tmp/gpuprof-test-maps-XXXXXX", path[64];
    cr_assert(mkdtemp(proc));
    snprintf(path, sizeof(path), "%s/maps", proc);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert_eq(write(fd, maps, bytes), (ssize_t)bytes);
    close(fd);
    int rc = gp_modules_read_by(modules, proc, image_open);
    unlink(path);
    rmdir(proc);
    cr_assert_eq(rc, 0);
}

/* The bytes of the build ID that is found. */
static unsigned id_bytes(void)
{
    static const char line[] = "1000-3000 r-xp 00000000 08:01 77 /lib/a.so\n";
    struct gp_modules modules;
    read_of(&modules, line, sizeof(line) - 1);
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
        cr_expect_eq(id_bytes(), _bytes, #_change);                                                                    \
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
    static char maps[8192];
    uint64_t starts[MODULES], ends[MODULES];
    size_t used = 0;
    unsigned count = 0, named = 0;
    struct gp_modules modules;
    image_fill();
    for (unsigned i = 0; i < MODULES; i++) {
        const char *mode = modes[i % 5];
        starts[i] = i ? ends[i - 1] + i % 3 * 0x1000 : 0x400000;
        ends[i] = starts[i] + (1 + i % 4) * 0x1000;
        used += (size_t)snprintf(maps + used, sizeof(maps) - used, "%lx-%lx %s %08x fe:0%u %u %s\n", starts[i], ends[i],
                                 mode, i * 0x1000, i % 9, i + 1, path_of(i, "                "));
        count += mode[2] == 'x';
        named += mode[2] == 'x' && i % 7 != 6;
    }
    read_of(&modules, maps, used);
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
