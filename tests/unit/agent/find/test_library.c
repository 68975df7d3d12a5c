/* SPDX-License-Identifier: MIT
 * test_library.c: tests the examination of one candidate file: build id, owner and file system. */
#include "agent/find/library.h"
#include "lib/paths.h"
#include <agent/kernel/bpf.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static uint8_t own[1 << 22];
static size_t own_bytes;

/* The bytes of this program: an ELF file with a build id and everything else that the linker
 * writes. */
static void own_read(void)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, own, sizeof(own));
    cr_assert(got > 4096);
    own_bytes = (size_t)got;
    close(fd);
}

static int memory_file(const void *bytes, size_t n)
{
    int fd = memfd_create("library", MFD_CLOEXEC);
    cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    return fd;
}

Test(library, the_build_id_agrees_with_readelf)
{
    char command[256], line[256], ours[2 * GP_LIBRARY_ID + 1] = "", *theirs = NULL;
    struct gp_library_id id;
    snprintf(command, sizeof(command), "readelf -n /proc/%d/exe 2>/dev/null", (int)getpid());
    FILE *readelf = popen(command, "r");
    while (readelf && !theirs && fgets(line, sizeof(line), readelf))
        theirs = strstr(line, "Build ID: ");
    if (readelf)
        pclose(readelf);
    if (!theirs)
        cr_skip_test("no readelf");
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    cr_assert(eq(int, gp_candidate_id_read(fd, &id), 0));
    close(fd);
    for (unsigned i = 0; i < id.bytes; i++)
        snprintf(ours + 2 * i, 3, "%02x", id.id[i]);
    theirs += strlen("Build ID: ");
    theirs[strcspn(theirs, "\n")] = '\0';
    cr_assert(eq(str, ours, theirs));
}

Test(library, other_files_have_no_build_id)
{
    struct gp_library_id id;
    int fd = memory_file("#!/bin/sh\n", 10);
    cr_assert(eq(int, gp_candidate_id_read(fd, &id), -ENOEXEC));
    close(fd);
    fd = memory_file("", 0);
    cr_assert(eq(int, gp_candidate_id_read(fd, &id), -ENOEXEC));
    close(fd);
    own_read();
    memset(own + ((Elf64_Ehdr *)own)->e_phoff, 0, 56 * ((Elf64_Ehdr *)own)->e_phnum);
    fd = memory_file(own, own_bytes);
    cr_assert(eq(int, gp_candidate_id_read(fd, &id), -ENOENT));
    cr_assert(eq(u8, id.bytes, 0));
    close(fd);
}

/* Damages every byte of the headers and notes, and tries every length: the result is an error or a
 * whole id. */
Test(library, damaged_headers, .timeout = 120)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    struct gp_library_id id;
    struct gp_bpf_probe probe;
    unsigned answers[2] = {0}; /* refused, an id */
    own_read();
    size_t head = sizeof(Elf64_Ehdr) + 56u * ((Elf64_Ehdr *)own)->e_phnum, end = head + 512;
    int fd = memory_file(own, own_bytes);
    for (size_t at = 0; at < end; at++) {
        for (unsigned v = 0; v < sizeof(values); v++) {
            cr_assert(pwrite(fd, &values[v], 1, (off_t)at) == 1);
            int error = gp_candidate_id_read(fd, &id);
            cr_assert(error ? error < 0 && id.bytes == 0 : id.bytes && id.bytes <= GP_LIBRARY_ID, "%zu %u", at, v);
            cr_assert(gp_bpf_probe_find(fd, &probe) <= 0);
            answers[!error]++;
        }
        cr_assert(pwrite(fd, own + at, 1, (off_t)at) == 1);
    }
    for (size_t n = end; n-- > 0;) {
        cr_assert(ftruncate(fd, (off_t)n) == 0);
        cr_assert(gp_candidate_id_read(fd, &id) <= 0);
    }
    close(fd);
    cr_assert(answers[0] > 100 && answers[1] > 100, "%u %u", answers[0], answers[1]);
}

Test(library, which_files_may_be_armed)
{
    const struct gp_candidate good = {.mode = S_IFREG | 0755, .size = 4096};
    struct gp_candidate file = good;
    cr_assert(zero(ptr, (void *)gp_candidate_refusal(&file)));
    file.size = GP_LIBRARY_BYTES;
    cr_assert(zero(ptr, (void *)gp_candidate_refusal(&file)));
    file.size++;
    cr_assert(strstr(gp_candidate_refusal(&file), "256 MiB") != NULL);
    file = good, file.uid = 1;
    cr_assert(strstr(gp_candidate_refusal(&file), "root") != NULL);
    static const mode_t modes[] = {S_IFREG | 0775, S_IFREG | 0757, S_IFIFO | 0644, S_IFCHR | 0644, S_IFDIR | 0755};
    for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        file = good, file.mode = modes[i];
        cr_assert(not(zero(ptr, (void *)gp_candidate_refusal(&file))), "%o", modes[i]);
    }
}

static int served(const char *mounts, uint64_t mount, uint64_t device)
{
    char folder[] = "/tmp/gpuprof-test-library-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/mountinfo", folder);
    FILE *file = fopen(path, "w");
    fputs(mounts, file);
    fclose(file);
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int answer = gp_candidate_is_served(&(struct gp_candidate){.mount = mount, .device = device}, fd);
    close(fd);
    unlink(path);
    rmdir(folder);
    return answer;
}

Test(library, file_systems_that_a_process_serves)
{
    static const char mounts[] = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                                 "30 22 0:40 / /a rw - overlay o rw,lowerdir=/x - y\n"
                                 "31 22 0:41 / /b rw shared:2 master:1 - fuse.sshfs s rw\n"
                                 "32 22 0:42 / /c rw - fuse s rw\n"
                                 "33 22 8:1 / /d rw - fuseblk /dev/sda1 rw\n"
                                 "34 22 0:44 / /e rw - fusectl f rw\n";
    cr_assert(eq(int, served(mounts, 22, 0), 0));
    cr_assert(eq(int, served(mounts, 30, 0), 0));
    cr_assert(eq(int, served(mounts, 31, 0), 1));
    cr_assert(eq(int, served(mounts, 32, 0), 1));
    cr_assert(eq(int, served(mounts, 33, 0), 1));
    cr_assert(eq(int, served(mounts, 34, 0), 0), "the control file system counts as FUSE");
    cr_assert(eq(int, served(mounts, 99, 42), 1), "not found by its device after the process left that namespace");
    enum { NOWHERE = 1 << 30 }; /* none of our mounts has these numbers */
    cr_assert(eq(int, served(mounts, NOWHERE, makedev(0, 0xfffff)), -ENOENT));
    cr_assert(eq(int, served(mounts, NOWHERE, makedev(4095, 77)), 0),
              "a disk's file system, outside the root of a chroot");
    cr_assert(eq(int, served("", 22, 0), -ESRCH), "an ended process shows no mounts");
}

Test(library, a_file_that_is_not_armed)
{
    int fd = open(path_library(), O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0);
    cr_assert(eq(int, gp_candidate_is_armed(fd, 16), 0), "its first page");
    cr_assert(lt(int, gp_candidate_is_armed(fd, 1ull << 40), 0), "beyond its end: an error, no signal");
    cr_assert(lt(int, gp_candidate_is_armed(fd, UINT64_MAX), 0));
    close(fd);
}
