/* SPDX-License-Identifier: MIT
 *
 * candidate.c: see library.h.
 */
#include <agent/find/library.h>
#include <read/common/foreign.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define CANDIDATE_SEGMENTS_LIMIT 256u
#define CANDIDATE_NOTES_LIMIT    16384u /* bytes of one segment; the notes of linkers are below 200 */

/* The device number of the kernel's own tmpfs, which holds all memory files and is never mounted.
 * 0: unknown. */
static uint64_t memory_device(void)
{
    static uint64_t known; /* only the finder's thread calls this */
    struct statx about;
    int fd = known ? -1 : memfd_create("gpuprof-device", MFD_CLOEXEC);
    if (fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &about) == 0)
        known = makedev(about.stx_dev_major, about.stx_dev_minor);
    if (fd >= 0)
        close(fd);
    return known;
}

int gp_candidate_stat(int fd, struct gp_candidate *out)
{
    struct statx about;
    /* DONT_SYNC: the kernel does not ask a FUSE server, so the server cannot block this call. */
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID, &about))
        return -errno;
    *out = (struct gp_candidate){
        .device = makedev(about.stx_dev_major, about.stx_dev_minor),
        .inode = about.stx_ino,
        .size = about.stx_size,
        .changed_ns = (uint64_t)about.stx_ctime.tv_sec * 1000000000u + about.stx_ctime.tv_nsec,
        .mount = about.stx_mask & STATX_MNT_ID ? about.stx_mnt_id : 0,
        .mode = about.stx_mode,
        .uid = about.stx_uid,
    };
    /* All memory files are on one file system, so the limits for each file system are per user here. */
    out->is_memory = S_ISREG(out->mode) && out->device && out->device == memory_device();
    if (out->is_memory)
        out->device |= (uint64_t)(out->uid + 1) << 32;
    return 0;
}

const char *gp_candidate_refusal(const struct gp_candidate *file)
{
    if (!S_ISREG(file->mode))
        return "not a regular file";
    if (!file->is_memory && file->uid != 0)
        return "does not belong to root";
    if (!file->is_memory && file->mode & (S_IWGRP | S_IWOTH))
        return "users other than root may write it";
    return file->size > GP_LIBRARY_BYTES ? "larger than 256 MiB" : NULL;
}

int gp_candidate_is_served(const struct gp_candidate *file, int proc)
{
    if (file->is_memory)
        return 0;
    return gp_foreign_is_served(file->mount, file->device, proc);
}

/* ---- breakpoints ----------------------------------------------------------------------------------------------- */

int gp_candidate_is_armed(int fd, uint64_t offset)
{
    enum { NEAR = 16 };
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), in = offset % page, bytes = page - in < NEAR ? page - in : NEAR;
    if (offset > INT64_MAX - page)
        return -EFBIG;
    /* The kernel puts its breakpoints into every new private mapping that could become executable,
     * so the mapping and the file differ exactly where the inode is armed. */
    char *at = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, (off_t)(offset - in));
    if (at == MAP_FAILED)
        return -errno;
    uint8_t mapped[NEAR], held[NEAR];
    /* The kernel copies: if the file shrinks meanwhile, that is an error and not SIGBUS. */
    struct iovec to = {mapped, bytes}, from = {at + in, bytes};
    ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    int error = got < 0 ? -errno : got == (ssize_t)bytes ? 0 : -EIO;
    munmap(at, page);
    if (!error && pread(fd, held, bytes, (off_t)offset) != (ssize_t)bytes)
        error = -EIO;
    return error ? error : memcmp(mapped, held, bytes) != 0;
}

/* ---- copies in memory ------------------------------------------------------------------------------------------ */

int gp_candidate_is_copy(int fd, uint64_t size, int original)
{
    enum { SEALS = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK };
    static uint8_t ours[65536], theirs[sizeof(ours)]; /* only the finder's thread calls this */
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return -EPERM;
    if (fstat(original, &about))
        return -errno;
    if ((uint64_t)about.st_size != size)
        return 0;
    for (uint64_t at = 0; at < size;) {
        ssize_t one = pread(original, ours, sizeof(ours), (off_t)at);
        if (one <= 0)
            return one < 0 ? -errno : 0;
        ssize_t other = pread(fd, theirs, (size_t)one, (off_t)at);
        if (other < 0)
            return -errno;
        if (other != one || memcmp(ours, theirs, (size_t)one) != 0)
            return 0;
        at += (uint64_t)one;
    }
    return 1;
}

/* ---- the build id ---------------------------------------------------------------------------------------------- */

static int read_at(int fd, uint64_t offset, void *to, size_t bytes)
{
    if (offset > INT64_MAX - bytes)
        return -ENOEXEC;
    ssize_t got = pread(fd, to, bytes, (off_t)offset);
    if (got < 0)
        return -errno;
    return (size_t)got == bytes ? 0 : -ENOEXEC;
}

static int note_search(const uint8_t *notes, size_t bytes, struct gp_library_id *out)
{
    for (size_t at = 0; bytes - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr head;
        memcpy(&head, notes + at, sizeof(head));
        at += sizeof(head);
        size_t name = ((size_t)head.n_namesz + 3) & ~(size_t)3, body = ((size_t)head.n_descsz + 3) & ~(size_t)3;
        if (name > bytes - at || body > bytes - at - name)
            return -ENOENT;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && !memcmp(notes + at, "GNU", 4) && head.n_descsz &&
            head.n_descsz <= GP_LIBRARY_ID) {
            out->bytes = (uint8_t)head.n_descsz;
            memcpy(out->id, notes + at + name, head.n_descsz);
            return 0;
        }
        at += name + body;
    }
    return -ENOENT;
}

static int notes_read(int fd, const Elf64_Phdr *segment, struct gp_library_id *out)
{
    if (segment->p_type != PT_NOTE || segment->p_filesz == 0 || segment->p_filesz > CANDIDATE_NOTES_LIMIT)
        return -ENOENT;
    uint8_t *notes = malloc(segment->p_filesz);
    if (!notes)
        return -ENOMEM;
    int error = read_at(fd, segment->p_offset, notes, segment->p_filesz);
    if (!error)
        error = note_search(notes, segment->p_filesz, out);
    free(notes);
    return error;
}

int gp_candidate_id_read(int fd, struct gp_library_id *out)
{
    Elf64_Ehdr head;
    *out = (struct gp_library_id){0};
    int error = read_at(fd, 0, &head, sizeof(head));
    if (error)
        return error;
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_phentsize != sizeof(Elf64_Phdr) ||
        head.e_phnum > CANDIDATE_SEGMENTS_LIMIT)
        return -ENOEXEC;
    /* Notes outside the file are ignored, but another segment may have the id. */
    error = -ENOENT;
    for (unsigned i = 0; error == -ENOENT && i < head.e_phnum; i++) {
        Elf64_Phdr segment;
        int broken = read_at(fd, head.e_phoff + i * sizeof(segment), &segment, sizeof(segment));
        if (broken)
            return broken;
        error = notes_read(fd, &segment, out);
        if (error == -ENOEXEC)
            error = -ENOENT;
    }
    return error;
}
