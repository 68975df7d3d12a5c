/* SPDX-License-Identifier: MIT
 *
 * remote.c: the memory of another process, and the functions of the libraries in it.  Called by
 * attach.c, facts.c, inject.c, pep768.c and seize.c.
 *
 * Symbols are read from the process's memory and not from files: that is what is really loaded, and
 * needs neither its mount namespace nor a file that was replaced by an update since.  All of it is
 * untrusted: sizes are limited, and each address is used only to read.
 */
#include <attach/facts.h>
#include <attach/remote.h>
#include <base/compiler.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <read/collect/procfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define GP_REMOTE_SYMBOLS 65536u
#define GP_REMOTE_STRINGS (4u << 20)
#define GP_REMOTE_CODE    (8u << 20)

/* The memory that the process had when it was opened.  After an exec nothing is read or written: an
 * address means something else in the next program. */
static struct {
    pid_t pid;
    int fd;
} remote_held;

int gp_remote_hold(pid_t pid)
{
    char path[64], folder[GP_PROC_FOLDER];
    gp_remote_let_go();
    snprintf(path, sizeof(path), "%s/mem", gp_proc_folder(pid, folder));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    remote_held.pid = pid;
    remote_held.fd = fd;
    return 0;
}

void gp_remote_let_go(void)
{
    if (remote_held.pid)
        close(remote_held.fd);
    remote_held.pid = 0;
}

static int remote_result(ssize_t done, size_t bytes)
{
    return done == (ssize_t)bytes ? 0 : done < 0 && errno != EIO ? -errno : -EFAULT;
}

static int remote_peek(pid_t pid, void *to, size_t bytes, uint64_t from);

int gp_remote_read(pid_t pid, void *to, size_t bytes, uint64_t from)
{
    if (remote_held.pid == pid)
        return remote_result(pread(remote_held.fd, to, bytes, (off_t)from), bytes);
    return remote_peek(pid, to, bytes, from);
}

/* As gp_remote_read, but -EFAULT for what the process itself may not read. */
static int remote_peek(pid_t pid, void *to, size_t bytes, uint64_t from)
{
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
    return remote_result(process_vm_readv(gp_proc_thread(pid), &here, 1, &there, 1, 0), bytes);
}

int gp_remote_write(pid_t pid, const void *from, size_t bytes, uint64_t to)
{
    if (remote_held.pid == pid)
        return remote_result(pwrite(remote_held.fd, from, bytes, (off_t)to), bytes);
    struct iovec here = {(void *)(uintptr_t)from, bytes}, there = {(void *)(uintptr_t)to, bytes};
    return remote_result(process_vm_writev(gp_proc_thread(pid), &here, 1, &there, 1, 0), bytes);
}

struct remote_tables { /* addresses in the process */
    uint64_t bias, symbols, strings, strings_bytes, versions, hash, gnu_hash;
};

/* The loader of glibc has replaced the pointers in the dynamic section by addresses, the vdso's and
 * other loaders' may still be relative. */
static uint64_t remote_pointer(const struct remote_tables *tables, uint64_t value)
{
    return value && value < tables->bias ? value + tables->bias : value;
}

static int remote_dynamic(pid_t pid, struct remote_tables *tables, uint64_t at, uint64_t bytes)
{
    Elf64_Dyn entries[128];
    size_t count = bytes / sizeof(entries[0]);
    count = count < GP_COUNT(entries) ? count : GP_COUNT(entries);
    int rc = gp_remote_read(pid, entries, count * sizeof(entries[0]), at);
    for (size_t i = 0; !rc && i < count && entries[i].d_tag != DT_NULL; i++) {
        uint64_t pointer = remote_pointer(tables, entries[i].d_un.d_ptr);
        switch (entries[i].d_tag) {
        case DT_SYMTAB:
            tables->symbols = pointer;
            break;
        case DT_STRTAB:
            tables->strings = pointer;
            break;
        case DT_STRSZ:
            tables->strings_bytes = entries[i].d_un.d_val;
            break;
        case DT_VERSYM:
            tables->versions = pointer;
            break;
        case DT_HASH:
            tables->hash = pointer;
            break;
        case DT_GNU_HASH:
            tables->gnu_hash = pointer;
            break;
        }
    }
    return rc ? rc : tables->symbols && tables->strings ? 0 : -ENOENT;
}

#define GP_REMOTE_PARTS 32

/* The program headers of a mapped object: how many, or -errno. */
static int remote_parts(pid_t pid, const struct gp_attach_map *map, Elf64_Phdr *parts)
{
    Elf64_Ehdr header;
    int rc = gp_remote_read(pid, &header, sizeof(header), map->start);
    if (rc)
        return rc;
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(parts[0]) || header.e_phnum > GP_REMOTE_PARTS)
        return -ENOEXEC;
    rc = gp_remote_read(pid, parts, header.e_phnum * sizeof(parts[0]), map->start + header.e_phoff);
    return rc ? rc : header.e_phnum;
}

static int remote_open(pid_t pid, const struct gp_attach_map *map, struct remote_tables *tables)
{
    Elf64_Phdr parts[GP_REMOTE_PARTS];
    int count = remote_parts(pid, map, parts);
    if (count < 0)
        return count;
    const Elf64_Phdr *dynamic = NULL;
    for (int i = count - 1; i >= 0; i--) {
        if (parts[i].p_type == PT_LOAD) /* the first one is seen last */
            tables->bias = map->start - (parts[i].p_vaddr & ~4095ull);
        else if (parts[i].p_type == PT_DYNAMIC)
            dynamic = &parts[i];
    }
    return dynamic ? remote_dynamic(pid, tables, tables->bias + dynamic->p_vaddr, dynamic->p_memsz) : -ENOENT;
}

/* The number of symbols from the GNU hash table: the last symbol of the last chain. */
static int remote_count_gnu(pid_t pid, const struct remote_tables *tables, uint32_t *count)
{
    uint32_t head[4], last = 0, hash = 0;
    int rc = gp_remote_read(pid, head, sizeof(head), tables->gnu_hash);
    if (rc || head[0] > GP_REMOTE_SYMBOLS || head[2] > GP_REMOTE_SYMBOLS)
        return rc ? rc : -EPROTO;
    uint64_t buckets = tables->gnu_hash + sizeof(head) + head[2] * 8ull, chains = buckets + head[0] * 4ull;
    uint32_t *bucket = calloc(head[0] + 1, sizeof(*bucket));
    rc = bucket ? gp_remote_read(pid, bucket, head[0] * sizeof(*bucket), buckets) : -ENOMEM;
    for (uint32_t i = 0; !rc && i < head[0]; i++)
        last = bucket[i] > last ? bucket[i] : last;
    free(bucket);
    for (; !rc && last >= head[1] && last < GP_REMOTE_SYMBOLS && !(hash & 1); last++)
        rc = gp_remote_read(pid, &hash, sizeof(hash), chains + (last - head[1]) * 4ull);
    *count = last;
    return rc;
}

static int remote_count(pid_t pid, const struct remote_tables *tables, uint32_t *count)
{
    uint32_t head[2];
    if (tables->gnu_hash)
        return remote_count_gnu(pid, tables, count);
    int rc = tables->hash ? gp_remote_read(pid, head, sizeof(head), tables->hash) : -ENOENT;
    *count = rc ? 0 : head[1];
    return rc;
}

/* Looks for one name.  The default version wins: its number has no hidden bit. */
static uint64_t remote_find(const struct remote_tables *tables, const Elf64_Sym *symbols, uint32_t count,
                            const char *strings, const uint16_t *versions, const char *name)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= tables->strings_bytes ||
            ELF64_ST_TYPE(symbols[i].st_info) == STT_GNU_IFUNC || strcmp(strings + symbols[i].st_name, name) != 0)
            continue;
        bool hidden = versions && versions[i] & 0x8000;
        if (!found || !hidden)
            found = tables->bias + symbols[i].st_value;
        if (!hidden)
            break;
    }
    return found;
}

int gp_remote_symbols(pid_t pid, const struct gp_attach_map *map, const char *const *names, uint64_t *addresses,
                      size_t count)
{
    struct remote_tables tables = {0};
    uint32_t total = 0;
    if (!map->path[0])
        return -ENOENT;
    int rc = remote_open(pid, map, &tables);
    if (!rc)
        rc = remote_count(pid, &tables, &total);
    if (!rc && (total > GP_REMOTE_SYMBOLS || tables.strings_bytes > GP_REMOTE_STRINGS))
        rc = -EPROTO;
    if (rc)
        return rc;
    Elf64_Sym *symbols = calloc(total + 1, sizeof(*symbols));
    uint16_t *versions = calloc(total + 1, sizeof(*versions));
    char *strings = calloc(1, tables.strings_bytes + 1);
    rc = symbols && versions && strings ? gp_remote_read(pid, symbols, total * sizeof(*symbols), tables.symbols)
                                        : -ENOMEM;
    if (!rc)
        rc = gp_remote_read(pid, strings, tables.strings_bytes, tables.strings);
    if (!rc && tables.versions)
        rc = gp_remote_read(pid, versions, total * sizeof(*versions), tables.versions);
    for (size_t i = 0; !rc && i < count; i++)
        if (!addresses[i])
            addresses[i] = remote_find(&tables, symbols, total, strings, tables.versions ? versions : NULL, names[i]);
    free(symbols);
    free(versions);
    free(strings);
    return rc;
}

uint64_t gp_remote_code(pid_t pid, const struct gp_attach_map *map, const void *code, size_t bytes)
{
    Elf64_Phdr parts[GP_REMOTE_PARTS];
    int count = map->path[0] ? remote_parts(pid, map, parts) : 0;
    uint64_t bias = 0, found = 0;
    for (int i = count - 1; i >= 0; i--)
        if (parts[i].p_type == PT_LOAD) /* the first one is seen last */
            bias = map->start - (parts[i].p_vaddr & ~4095ull);
    for (int i = 0; i < count && !found; i++) {
        size_t size = parts[i].p_filesz;
        if (parts[i].p_type != PT_LOAD || !(parts[i].p_flags & PF_X) || size > GP_REMOTE_CODE)
            continue;
        char *text = malloc(size + 1);
        const char *at = NULL;
        if (text && gp_remote_read(pid, text, size, bias + parts[i].p_vaddr) == 0)
            at = memmem(text, size, code, bytes);
        found = at ? bias + parts[i].p_vaddr + (uint64_t)(at - text) : 0;
        free(text);
    }
    return found;
}
