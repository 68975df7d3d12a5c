/* SPDX-License-Identifier: MIT
 *
 * doornames.c: see internal.h. Reads the symbols of objects as they lie in memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "account/framework/internal.h"
#include "base/image.h"
#include "base/loader.h"
#include <stdlib.h>
#include <string.h>

/* ==== forms of names ============================================================================================== */
/* The forms of names. */

/* The length of the name of an inline namespace for a version, with its count of characters; 0: none is there. */
static size_t form_namespace(const char *name)
{
    size_t digits = strspn(name, "0123456789"), length = digits && digits < 3 ? (size_t)strtoul(name, NULL, 10) : 0;
    bool is = length && name[digits] == '_' && strnlen(name + digits, length) == length;
    for (size_t i = 0; is && i < length; i++) {
        char c = name[digits + i];
        is = c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
    }
    return is ? digits + length : 0;
}

bool gp_door_form(const char *form, const char *name)
{
    for (; *form; form++) {
        if (*form == '#') {
            name += form_namespace(name);
            continue;
        }
        if (!*name || (*form != '*' && *form != *name))
            return false;
        name++;
    }
    return !*name;
}

/* ==== symbols of objects ========================================================================================== */

struct names_look {
    const char *library;
    const char *const *forms;
    unsigned count, objects;
    char (*names)[GP_DOOR_NAME];
};

/* Of a symbol that the object defines. */
static bool names_take(struct names_look *look, const char *symbol)
{
    bool taken = false;
    for (unsigned i = 0; i < look->count; i++) {
        if (!gp_door_form(look->forms[i], symbol) || strlen(symbol) >= GP_DOOR_NAME)
            continue;
        strcpy(look->names[i], symbol);
        taken = true;
    }
    return taken;
}

static int names_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct names_look *look = arg;
    struct gp_image image;
    struct gp_image_hash table;
    bool any = false;
    (void)size;
    if (!gp_image_read(&image, info) || !gp_image_is(&image, look->library) || !gp_image_hash(&image, &table))
        return 0;
    for (uint32_t bucket = 0; bucket < table.count; bucket++) {
        uint32_t index = table.buckets[bucket], end = 0;
        for (; index >= table.first && index && !end; index++) {
            const ElfW(Sym) *symbol = &image.symbols[index];
            if (symbol->st_shndx != SHN_UNDEF)
                any |= names_take(look, image.strings + symbol->st_name);
            end = table.chains[index - table.first] & 1;
        }
    }
    look->objects += any;
    return 0;
}

unsigned gp_door_names(const char *library, const char *const *forms, unsigned count, char (*names)[GP_DOOR_NAME])
{
    struct names_look look = {.library = library, .forms = forms, .count = count, .names = names};
    memset(names, 0, count * sizeof(*names));
    return gp_loader_look(names_visit, &look) ? look.objects : 0;
}
