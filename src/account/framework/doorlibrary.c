/* SPDX-License-Identifier: MIT
 *
 * doorlibrary.c: a library with pools of its own: the names of its functions, read from the symbols of
 * objects as they lie in memory, and its pieces; see internal.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "account/feed/door.h"
#include "account/framework/internal.h"
#include "base/compiler.h"
#include "base/image.h"
#include "base/loader.h"
#include "base/log.h"
#include "stack/stack.h"
#include <stdlib.h>
#include <string.h>

/* ==== forms of names ============================================================================================== */
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

/* Takes the name of a symbol that the object defines, if it has one of the forms. */
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

/* ==== pieces ====================================================================================================== */

static GP_COLD void door_say_off(const struct gp_door_library *library, const char *why)
{
    gp_feed_door_say(library->door, GP_WIRE_DOOR_OFF, why);
    gp_log(GP_LOG_WARN, "%s's pools: %s: each counts as a whole", library->name, why);
}

bool gp_door_open(struct gp_door_library *library, const char *why)
{
    uint8_t owner = why ? 0 : gp_owner_named(library->owner, library->file);
    if (!why && owner == GP_OWNER_OTHER)
        why = "there are too many owners of memory";
    library->told = true;
    if (why) {
        door_say_off(library, why);
        return false;
    }
    gp_feed_door_open(library->door, owner);
    gp_feed_door_say(library->door, GP_WIRE_DOOR_EXACT, "");
    __atomic_store_n(&library->x_open, 1, __ATOMIC_RELAXED);
    gp_log(GP_LOG_INFO, "%s's pools: their pieces are counted", library->name);
    return true;
}

GP_COLD void gp_door_shut(struct gp_door_library *library, const char *why)
{
    if (!__atomic_exchange_n(&library->x_open, 0, __ATOMIC_RELAXED))
        return;
    gp_feed_door_end(library->door);
    door_say_off(library, why);
}

void gp_door_piece(struct gp_door_library *library, uint64_t pool, uint64_t address, uint64_t bytes)
{
    if (!gp_feed_piece(library->door, pool, address, bytes))
        gp_door_shut(library, "a piece lies where another one is");
}

void gp_door_piece_back(struct gp_door_library *library, uint64_t pool, uint64_t address)
{
    if (!gp_feed_piece_back(library->door, pool, address))
        gp_door_shut(library, "a piece came back that was not handed out");
}
