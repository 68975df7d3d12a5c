/* SPDX-License-Identifier: MIT
 * Code images: how long they are and which names they hold.  PTX is read as text, ELF and fat
 * binaries by their headers; anything else is taken as a 0-terminated blob.  Called by module.c and
 * library.c; keeps nothing. */
#define _GNU_SOURCE
#include "module.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header of a fat binary: magic, version, header size, bytes after the header. */
struct sim_fatbin {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size;
};
#define SIM_FATBIN_MAGIC 0xba55ed50u
_Static_assert(sizeof(struct sim_fatbin) == SIM_FATBIN_HEADER, "as module.h says");

void sim_image_fat_header(char *image, size_t size)
{
    struct sim_fatbin header = {SIM_FATBIN_MAGIC, 1, sizeof header, size};
    memcpy(image, &header, sizeof header);
}

/* The largest end of header tables and sections. */
static size_t sim_elf_size(const char *image)
{
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    size_t end = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
    size_t programs = header.e_phoff + (size_t)header.e_phnum * header.e_phentsize;
    if (programs > end)
        end = programs;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + header.e_shoff + (size_t)i * header.e_shentsize, sizeof section);
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    return end;
}

bool sim_image_fat(const char *image)
{
    const uint32_t magic = SIM_FATBIN_MAGIC;
    return strnlen(image, sizeof magic) == sizeof magic && !memcmp(image, &magic, sizeof magic);
}

size_t sim_image_size(const char *image)
{
    if (!image || !*image)
        return 0;
    if (strncmp(image, ELFMAG, SELFMAG) == 0)
        return sim_elf_size(image);
    if (sim_image_fat(image)) {
        struct sim_fatbin header;
        memcpy(&header, image, sizeof header);
        return header.header + header.size;
    }
    return strlen(image) + 1;
}

bool sim_image_text(const char *image)
{
    while (*image == ' ' || *image == '\n' || *image == '\t' || *image == '\r')
        image++;
    return (*image == '/' || *image == '.') && strstr(image, ".version");
}

int sim_text_target(const char *text, int capability)
{
    const char *target = strstr(text, ".target");
    const char *generation = target ? strstr(target, "sm_") : NULL;
    int found = generation ? atoi(generation + 3) : 0;
    return found > 0 && found <= capability ? found : capability;
}

static bool sim_name_char(char c)
{
    return c == '_' || c == '$' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Where the text of that kernel goes on after its name; NULL: it has none of that name. */
static const char *sim_text_kernel(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = strstr(text, ".entry"); at; at = strstr(at + 6, ".entry")) {
        const char *word = at + 6 + strspn(at + 6, " \t\r\n");
        if (strncmp(word, name, length) == 0 && !sim_name_char(word[length]))
            return word + length;
    }
    return NULL;
}

/* The compiler puts the local variables of a kernel into one array, "__local_depotN[BYTES]".  What is compiled of it may need
 * less, or more where registers do not suffice. */
uint32_t sim_text_stack(const char *text, const char *kernel)
{
    static const char depot[] = "__local_depot";
    const char *at = sim_text_kernel(text, kernel), *end = at ? strstr(at, ".entry") : NULL;
    at = at ? strstr(at, depot) : NULL;
    at = at && (!end || at < end) ? strchr(at, '[') : NULL;
    const unsigned long bytes = at ? strtoul(at + 1, NULL, 10) : 0;
    return bytes <= SIM_STACK_MOST ? (uint32_t)bytes : 0;
}

/* ELF keeps a section .text.NAME for each kernel; of other binaries the names cannot be seen, so
 * any is taken. */
bool sim_image_kernel(const char *image, size_t size, const char *name)
{
    char section[512];
    if (!name || !*name)
        return false;
    if (sim_image_text(image))
        return sim_text_kernel(image, name);
    if (strncmp(image, ELFMAG, SELFMAG) != 0)
        return true;
    int length = snprintf(section, sizeof section, ".text.%s", name);
    return length < (int)sizeof section && memmem(image, size, section, (size_t)length + 1);
}

bool sim_image_section(const char *cubin, size_t size, const char *prefix, size_t *at, struct sim_section *section)
{
    const size_t length = strlen(prefix);
    Elf64_Ehdr header;
    Elf64_Shdr names, one;
    if (size < sizeof header || memcmp(cubin, ELFMAG, SELFMAG) != 0)
        return false;
    memcpy(&header, cubin, sizeof header);
    if (header.e_shoff > size || header.e_shnum > (size - header.e_shoff) / sizeof one ||
        header.e_shstrndx >= header.e_shnum)
        return false;
    memcpy(&names, cubin + header.e_shoff + header.e_shstrndx * sizeof names, sizeof names);
    if (names.sh_offset > size || names.sh_size > size - names.sh_offset)
        return false;
    const char *text = cubin + names.sh_offset;
    while (*at < header.e_shnum) {
        memcpy(&one, cubin + header.e_shoff + (*at)++ * sizeof one, sizeof one);
        if (one.sh_name >= names.sh_size || one.sh_offset > size || one.sh_size > size - one.sh_offset ||
            !memchr(text + one.sh_name, 0, names.sh_size - one.sh_name) ||
            strncmp(text + one.sh_name, prefix, length) != 0)
            continue;
        *section = (struct sim_section){text + one.sh_name + length, cubin + one.sh_offset, one.sh_size};
        return true;
    }
    return false;
}

bool sim_image_kernel_next(const char *image, size_t size, size_t *at, char name[512])
{
    struct sim_section section;
    if (!sim_image_text(image)) {
        /* Functions that kernels call have a .text too, but only a kernel has parameters. */
        if (!sim_image_section(image, size, ".nv.constant0.", at, &section))
            return false;
        snprintf(name, 512, "%s", section.name);
        return true;
    }
    for (const char *entry; (entry = strstr(image + *at, ".entry"));) {
        const char *word = entry + 6 + strspn(entry + 6, " \t\r\n");
        size_t length = 0;
        while (length < 511 && sim_name_char(word[length]))
            length++;
        *at = (size_t)(word + length - image);
        if (!length)
            continue;
        memcpy(name, word, length);
        name[length] = 0;
        return true;
    }
    return false;
}

char *sim_image_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *image = NULL;
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) > 0) {
        *size = (size_t)ftell(file);
        rewind(file);
        image = calloc(1, *size + 1);
        if (image && fread(image, 1, *size, file) != *size) {
            free(image);
            image = NULL;
        }
    }
    fclose(file);
    if (!image)
        errno = EINVAL;
    return image;
}

/* ".b32" and the like; 0: no type. */
static size_t sim_type_size(const char *word, size_t length)
{
    if (length < 3 || !strchr("busf", word[1]))
        return 0;
    int bits = atoi(word + 2);
    return bits >= 8 && bits <= 128 && bits % 8 == 0 ? (size_t)bits / 8 : 0;
}

/* One declaration after ".global": directives, a type, a name and perhaps [count]. */
static bool sim_variable_read(const char *at, struct sim_variable *variable)
{
    size_t element = 0;
    *variable = (struct sim_variable){.size = 0};
    for (;;) {
        at += strspn(at, " \t\r\n");
        size_t length = strcspn(at, " \t\r\n;=[");
        if (*at == '.') {
            if (length >= 10 && !strncmp(at, ".attribute", 10))
                variable->managed = memmem(at, strcspn(at, ")"), ".managed", 8) != NULL;
            else if (sim_type_size(at, length))
                element = sim_type_size(at, length);
            at += length;
            if (!strncmp(at - length, ".align", 6)) {
                at += strspn(at, " \t\r\n");
                at += strspn(at, "0123456789");
            }
            continue;
        }
        if (!element || length == 0 || length >= sizeof variable->name)
            return false;
        memcpy(variable->name, at, length);
        const char *count = at + length + strspn(at + length, " \t");
        variable->size = element * (*count == '[' ? strtoull(count + 1, NULL, 0) : 1);
        return variable->size > 0;
    }
}

/* "ld.global.f32 ..." is an instruction: declarations stand at the beginning of a word. */
static bool sim_text_variable(const char *image, size_t *at, struct sim_variable *variable)
{
    for (const char *dot; (dot = strchr(image + *at, '.'));) {
        size_t word = !strncmp(dot, ".global", 7) ? 7 : !strncmp(dot, ".const", 6) ? 6 : 1;
        *at = (size_t)(dot - image) + word;
        if (word > 1 && dot > image && strchr(" \t\r\n", dot[-1]) && sim_variable_read(dot + word, variable))
            return true;
    }
    return false;
}

/* A cubin's variables are data symbols of its sections; managed ones have a bit of NVIDIA's. */
#define SIM_STO_MANAGED 4

static bool sim_elf_variable(const char *image, size_t size, size_t *at, struct sim_variable *variable)
{
    Elf64_Ehdr header;
    Elf64_Shdr symbols = {.sh_type = SHT_NULL}, names;
    memcpy(&header, image, sizeof header);
    for (unsigned i = 0; i < header.e_shnum && symbols.sh_type != SHT_SYMTAB; i++)
        memcpy(&symbols, image + header.e_shoff + (size_t)i * header.e_shentsize, sizeof symbols);
    if (symbols.sh_type != SHT_SYMTAB || symbols.sh_link >= header.e_shnum)
        return false;
    memcpy(&names, image + header.e_shoff + (size_t)symbols.sh_link * header.e_shentsize, sizeof names);
    if (symbols.sh_offset + symbols.sh_size > size || names.sh_offset + names.sh_size > size)
        return false;
    while (*at < symbols.sh_size / sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, image + symbols.sh_offset + (*at)++ * sizeof symbol, sizeof symbol);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !symbol.st_shndx || !symbol.st_size ||
            symbol.st_name >= names.sh_size || image[names.sh_offset + symbol.st_name] == '.')
            continue;
        *variable = (struct sim_variable){.size = symbol.st_size, .managed = symbol.st_other & SIM_STO_MANAGED};
        strncpy(variable->name, image + names.sh_offset + symbol.st_name, sizeof variable->name - 1);
        return true;
    }
    return false;
}

bool sim_image_variable(const char *image, size_t size, size_t *at, struct sim_variable *variable)
{
    if (sim_image_text(image))
        return sim_text_variable(image, at, variable);
    return strncmp(image, ELFMAG, SELFMAG) == 0 && size >= sizeof(Elf64_Ehdr) &&
           sim_elf_variable(image, size, at, variable);
}
