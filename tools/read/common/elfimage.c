/* SPDX-License-Identifier: MIT
 * elfimage.c: see elfimage.h. The file may change at any time, so what is checked is what was read
 * into memory here, and at the end the copy is compared with it: sections of a hostile file overlap
 * headers. */
#define _GNU_SOURCE /* memfd_create */
#include <read/common/elfimage.h>

#include <dlfcn.h>
#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_FILE     (64ull << 30) /* bytes of a file, most of which become a hole */
#define IMAGE_PLAIN    (64ull << 20) /* of one without sections, which is copied whole */
#define IMAGE_SEGMENTS 4096u
#define IMAGE_ROOM     (4ull << 30)
#define IMAGE_BLOCK    65536u
/* Debug information is packed three- to sixfold. */
#define IMAGE_RATIO  16u
#define IMAGE_UNPACK (16ull << 20)
#define IMAGE_HEAD   sizeof(Elf64_Chdr) /* of a packed section; that of .zdebug_* has 12 bytes */
#define IMAGE_LZMA   (64ull << 20)      /* memory for a decoder */
/* Names of symbols: so many bytes are left in the file, and a name has at most so many. */
#define IMAGE_STRINGS (1ull << 20)
#define IMAGE_NAME    (1ull << 20)

struct elfimage_part { /* of a section */
    uint64_t unpacked;
    uint8_t head[IMAGE_HEAD];
    bool is_wanted, is_debug, is_packed, is_left;
};

struct elfimage {
    int from, to;
    uint64_t bytes, *room;
    Elf64_Ehdr head;
    Elf64_Phdr *segments;
    Elf64_Shdr *sections;
    struct elfimage_part *parts;
    char *names;
    void *xz;
    uint64_t names_bytes, xz_bytes, xz_at;
};

uint64_t gp_elf_room(void)
{
    uint64_t quarter = (uint64_t)sysconf(_SC_PHYS_PAGES) / 4 * (uint64_t)sysconf(_SC_PAGESIZE);
    return quarter < IMAGE_ROOM ? quarter : IMAGE_ROOM;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static bool image_inside(const struct elfimage *image, uint64_t offset, uint64_t bytes)
{
    return offset <= image->bytes && bytes <= image->bytes - offset;
}

static int image_read(const struct elfimage *image, void *to, uint64_t bytes, uint64_t offset)
{
    if (!image_inside(image, offset, bytes))
        return -ENOEXEC;
    for (uint64_t have = 0; have < bytes;) {
        ssize_t n = pread(image->from, (char *)to + have, bytes - have, (off_t)(offset + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENOEXEC;
        have += (uint64_t)n;
    }
    return 0;
}

static int image_write(const struct elfimage *image, const void *from, uint64_t bytes, uint64_t offset)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(image->to, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (uint64_t)n;
    }
    return 0;
}

/* A hole stays one, as far as it covers a block. */
static int image_copy(const struct elfimage *image, uint64_t offset, uint64_t bytes)
{
    static const uint8_t zeros[IMAGE_BLOCK];
    uint8_t *block = malloc(IMAGE_BLOCK);
    int rc = block ? 0 : -ENOMEM;
    for (uint64_t done = 0; !rc && done < bytes;) {
        uint64_t now = bytes - done < IMAGE_BLOCK ? bytes - done : IMAGE_BLOCK;
        rc = image_read(image, block, now, offset + done);
        if (!rc && memcmp(block, zeros, now) != 0)
            rc = image_write(image, block, now, offset + done);
        done += now;
    }
    free(block);
    return rc;
}

static bool image_same(const struct elfimage *image, const void *wanted, uint64_t bytes, uint64_t offset)
{
    uint8_t block[4096];
    for (uint64_t done = 0; done < bytes;) {
        uint64_t now = bytes - done < sizeof(block) ? bytes - done : sizeof(block);
        if (pread(image->to, block, now, (off_t)(offset + done)) != (ssize_t)now ||
            memcmp(block, (const char *)wanted + done, now) != 0)
            return false;
        done += now;
    }
    return true;
}

static bool image_take(struct elfimage *image, uint64_t bytes)
{
    if (bytes > *image->room)
        return false;
    *image->room -= bytes;
    return true;
}

/* ---- headers ----------------------------------------------------------------------------------------------------- */

/* A copy of a table of the file in memory; NULL with *rc: none. */
static void *image_table(struct elfimage *image, uint64_t offset, uint64_t count, uint64_t item, int *rc)
{
    uint64_t bytes = count * item;
    if (*rc || !count)
        return NULL;
    void *table = image_inside(image, offset, bytes) ? malloc(bytes) : NULL;
    *rc = !image_inside(image, offset, bytes) ? -ENOEXEC : table ? image_read(image, table, bytes, offset) : -ENOMEM;
    return table;
}

static int image_headers(struct elfimage *image)
{
    Elf64_Ehdr *head = &image->head;
    int rc = image_read(image, head, sizeof(*head), 0);
    if (rc)
        return rc;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
        head->e_ident[EI_DATA] != ELFDATA2LSB || head->e_phnum > IMAGE_SEGMENTS || head->e_shnum >= SHN_LORESERVE ||
        (head->e_phnum && head->e_phentsize != sizeof(Elf64_Phdr)) ||
        (head->e_shnum && head->e_shentsize != sizeof(Elf64_Shdr)) || (!head->e_shnum && head->e_shoff))
        return -ENOEXEC;
    image->segments = image_table(image, head->e_phoff, head->e_phnum, sizeof(Elf64_Phdr), &rc);
    image->sections = image_table(image, head->e_shoff, head->e_shnum, sizeof(Elf64_Shdr), &rc);
    if (rc || !head->e_shnum)
        return rc;
    image->parts = calloc(head->e_shnum, sizeof(*image->parts));
    if (!image->parts)
        return -ENOMEM;
    if (head->e_shstrndx >= head->e_shnum)
        return 0;
    const Elf64_Shdr *names = &image->sections[head->e_shstrndx];
    if (!image_take(image, names->sh_size))
        return -EFBIG;
    image->names = image_table(image, names->sh_offset, names->sh_size, 1, &rc);
    image->names_bytes = image->names ? names->sh_size : 0;
    if (image->names)
        image->names[image->names_bytes - 1] = '\0';
    return rc;
}

/* ---- which sections ---------------------------------------------------------------------------------------------- */

static const char *image_name(const struct elfimage *image, unsigned i)
{
    uint64_t at = image->sections[i].sh_name;
    return at < image->names_bytes ? image->names + at : "";
}

static bool image_is(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

static bool image_is_xz(const struct elfimage *image, unsigned i)
{
    return strcmp(image_name(image, i), ".gnu_debugdata") == 0;
}

static bool image_is_debug(const struct elfimage *image, unsigned i)
{
    const char *name = image_name(image, i);
    uint32_t type = image->sections[i].sh_type;
    return type != SHT_NULL && type != SHT_NOBITS &&
           (image_is(name, ".debug_") || image_is(name, ".zdebug_") || image_is_xz(image, i));
}

static bool image_wants(const struct elfimage *image, unsigned i, enum gp_elf_use use)
{
    const char *name = image_name(image, i);
    switch (image->sections[i].sh_type) {
    case SHT_NULL:
    case SHT_NOBITS:
        return false;
    case SHT_SYMTAB:
    case SHT_DYNSYM:
    case SHT_STRTAB:
    case SHT_SYMTAB_SHNDX:
    case SHT_NOTE:
    case SHT_DYNAMIC:
        return true;
    default:
        return image_is(name, ".gnu_debug") || (use == GP_ELF_NAMES && image_is_debug(image, i)) ||
               (use == GP_ELF_FRAMES && (image_is(name, ".eh_frame") || strcmp(name, ".debug_frame") == 0));
    }
}

/* Reads what a packed section says of its size. */
static int image_packed(const struct elfimage *image, const Elf64_Shdr *section, const char *name,
                        struct elfimage_part *part)
{
    Elf64_Chdr packed;
    uint64_t size;
    bool old = image_is(name, ".zdebug_"), new = section->sh_flags &SHF_COMPRESSED;
    part->is_packed = old || new;
    if (!part->is_packed)
        return 0;
    int rc = section->sh_size < sizeof(part->head)
                 ? -ENOEXEC
                 : image_read(image, part->head, sizeof(part->head), section->sh_offset);
    memcpy(&packed, part->head, sizeof(packed));
    memcpy(&size, part->head + 4, sizeof(size)); /* "ZLIB", and the size */
    if (old && new)                              /* libdw unpacks it twice */
        part->unpacked = UINT64_MAX;
    else if (new)
        part->unpacked = packed.ch_size;
    else if (memcmp(part->head, "ZLIB", 4) == 0)
        part->unpacked = be64toh(size);
    return rc;
}

/* Whether xz unpacks to at most `most` bytes. libdw unpacks it without a limit, with the library that
 * is used here; without that it does not unpack it. */
static bool image_unpacks(const void *from, size_t bytes, size_t most)
{
    typedef unsigned decoder(uint64_t *, uint32_t, const void *, const void *, size_t *, size_t, void *, size_t *,
                             size_t);
    decoder *decode = (decoder *)dlsym(RTLD_DEFAULT, "lzma_stream_buffer_decode");
    uint64_t memory = IMAGE_LZMA;
    size_t in = 0, out = 0;
    void *to = decode ? malloc(most) : NULL;
    bool fits = to && decode(&memory, 0, NULL, from, &in, bytes, to, &out, most) == 0;
    free(to);
    return fits;
}

/* Reads the symbols that are packed with xz. */
static bool image_xz(struct elfimage *image, const Elf64_Shdr *section)
{
    uint64_t most = IMAGE_UNPACK + IMAGE_RATIO * section->sh_size;
    int rc = 0;
    if (image->xz || !image_take(image, most))
        return false;
    image->xz = image_table(image, section->sh_offset, section->sh_size, 1, &rc);
    image->xz_bytes = section->sh_size;
    image->xz_at = section->sh_offset;
    if (image->xz && !rc && image_unpacks(image->xz, section->sh_size, most))
        return true;
    free(image->xz);
    image->xz = NULL;
    image->xz_bytes = 0;
    return false;
}

/* What a section costs; 0 or -errno. */
static int image_part(struct elfimage *image, unsigned i, enum gp_elf_use use)
{
    Elf64_Shdr *section = &image->sections[i];
    struct elfimage_part *part = &image->parts[i];
    part->is_debug = image_is_debug(image, i);
    part->is_wanted = section->sh_size && image_wants(image, i, use);
    if (!part->is_wanted)
        return 0;
    if (!image_inside(image, section->sh_offset, section->sh_size))
        return -ENOEXEC;
    int rc = image_packed(image, section, image_name(image, i), part);
    if (rc || part->is_debug)
        return rc;
    bool fits = part->unpacked <= IMAGE_UNPACK + IMAGE_RATIO * section->sh_size &&
                image_take(image, section->sh_size) && image_take(image, part->unpacked);
    return fits ? 0 : -EFBIG;
}

/* elfutils neither reads nor unpacks what is not in the copy. The bytes there may be those of another
 * section, which was counted as it is. */
static void image_hide(Elf64_Shdr *section, struct elfimage_part *part)
{
    *part = (struct elfimage_part){0};
    section->sh_flags &= ~(uint64_t)SHF_COMPRESSED;
    if (section->sh_type != SHT_NULL)
        section->sh_type = SHT_NOBITS;
}

static int image_choose(struct elfimage *image, enum gp_elf_use use, bool *is_cut)
{
    uint64_t debug = 0, packed = 0, unpacked = 0;
    bool over = false;
    for (unsigned i = 0; i < image->head.e_shnum; i++) {
        struct elfimage_part *part = &image->parts[i];
        int rc = image_part(image, i, use);
        if (rc)
            return rc;
        if (!part->is_wanted || !part->is_debug)
            continue;
        over |= __builtin_add_overflow(debug, image->sections[i].sh_size, &debug);
        over |= __builtin_add_overflow(unpacked, part->unpacked, &unpacked);
        packed += part->is_packed ? image->sections[i].sh_size : 0;
    }
    over = over || unpacked > IMAGE_UNPACK + IMAGE_RATIO * packed || !image_take(image, debug) ||
           !image_take(image, unpacked);
    for (unsigned i = 0; i < image->head.e_shnum; i++) {
        struct elfimage_part *part = &image->parts[i];
        bool fits = !over && part->is_wanted && (!image_is_xz(image, i) || image_xz(image, &image->sections[i]));
        if (part->is_debug ? fits : part->is_wanted)
            continue;
        *is_cut |= part->is_wanted;
        image_hide(&image->sections[i], part);
    }
    return 0;
}

/* The names of the only .symtab, if nothing else has names there. */
static void image_leave(struct elfimage *image, struct gp_elf_strings *strings)
{
    unsigned tables = 0, link = 0, users = 0;
    for (unsigned i = 0; i < image->head.e_shnum; i++) {
        const bool symbols = image->parts[i].is_wanted && image->sections[i].sh_type == SHT_SYMTAB;
        tables += symbols;
        link = symbols ? image->sections[i].sh_link : link;
    }
    if (tables != 1 || link >= image->head.e_shnum || link == image->head.e_shstrndx)
        return;
    const Elf64_Shdr *names = &image->sections[link];
    for (unsigned i = 0; i < image->head.e_shnum; i++)
        users += image->sections[i].sh_link == link;
    if (users != 1 || !image->parts[link].is_wanted || image->parts[link].is_packed || names->sh_type != SHT_STRTAB ||
        names->sh_size < IMAGE_STRINGS)
        return;
    image->parts[link].is_left = true;
    *strings = (struct gp_elf_strings){names->sh_offset, names->sh_size};
}

char *gp_elf_string(int fd, const struct gp_elf_strings *strings, uint64_t at)
{
    const uint64_t most = at < strings->bytes ? strings->bytes - at : 0;
    for (uint64_t room = 512; most; room *= 4) {
        char *text = room <= IMAGE_NAME ? malloc(room) : NULL;
        ssize_t n = text ? pread(fd, text, room < most ? room : most, (off_t)(strings->offset + at)) : -1;
        if (n > 0 && memchr(text, '\0', (size_t)n))
            return text;
        free(text);
        if (n <= 0 || room >= most)
            break;
    }
    return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The headers come last, over what overlaps them; then nothing may differ from what was checked. */
static int image_contents(struct elfimage *image)
{
    const Elf64_Ehdr *head = &image->head;
    int rc = 0;
    for (unsigned i = 0; !rc && i < head->e_shnum; i++)
        if (image->parts[i].is_wanted && !image->parts[i].is_left)
            rc = image_copy(image, image->sections[i].sh_offset, image->sections[i].sh_size);
    for (unsigned i = 0; !rc && i < head->e_shnum; i++)
        if (image->parts[i].is_packed)
            rc = image_write(image, image->parts[i].head, IMAGE_HEAD, image->sections[i].sh_offset);
    const struct {
        const void *from;
        uint64_t bytes, offset;
    } tables[] = {{image->xz, image->xz_bytes, image->xz_at},
                  {image->names, image->names_bytes, image->names ? image->sections[head->e_shstrndx].sh_offset : 0},
                  {image->sections, head->e_shnum * sizeof(Elf64_Shdr), head->e_shoff},
                  {image->segments, head->e_phnum * sizeof(Elf64_Phdr), head->e_phoff},
                  {head, sizeof(*head), 0}};
    for (int i = 0; !rc && i < 5; i++)
        rc = image_write(image, tables[i].from, tables[i].bytes, tables[i].offset);
    for (int i = 0; !rc && i < 5; i++)
        rc = image_same(image, tables[i].from, tables[i].bytes, tables[i].offset) ? 0 : -ENOEXEC;
    for (unsigned i = 0; !rc && i < head->e_shnum; i++)
        if (image->parts[i].is_packed &&
            !image_same(image, image->parts[i].head, IMAGE_HEAD, image->sections[i].sh_offset))
            rc = -ENOEXEC;
    return rc;
}

/* Of a file without sections nothing is known but its size. */
static int image_plain(struct elfimage *image)
{
    if (image->bytes > IMAGE_PLAIN || !image_take(image, image->bytes))
        return -EFBIG;
    return image_copy(image, 0, image->bytes);
}

int gp_elf_image(int fd, enum gp_elf_use use, uint64_t *room, bool *is_cut)
{
    return gp_elf_image_lean(fd, use, room, is_cut, NULL);
}

int gp_elf_image_lean(int fd, enum gp_elf_use use, uint64_t *room, bool *is_cut, struct gp_elf_strings *strings)
{
    struct elfimage image = {.from = fd, .to = -1, .room = room};
    struct stat status;
    *is_cut = false;
    if (fstat(fd, &status) != 0)
        return -errno;
    image.bytes = (uint64_t)status.st_size;
    if (!S_ISREG(status.st_mode) || image.bytes > IMAGE_FILE)
        return image.bytes > IMAGE_FILE ? -EFBIG : -ENOEXEC;
    image.to = memfd_create("gpuprof-elf", MFD_CLOEXEC);
    int rc = image.to < 0 || ftruncate(image.to, status.st_size) != 0 ? -errno : 0;
    if (!rc)
        rc = image_headers(&image);
    if (!rc && !image.head.e_shnum)
        rc = image_plain(&image);
    if (!rc)
        rc = image_choose(&image, use, is_cut);
    if (!rc && strings)
        image_leave(&image, strings);
    if (!rc)
        rc = image_contents(&image);
    free(image.segments);
    free(image.sections);
    free(image.parts);
    free(image.names);
    free(image.xz);
    if (rc && image.to >= 0)
        close(image.to);
    return rc ? rc : image.to;
}
