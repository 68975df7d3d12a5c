/* SPDX-License-Identifier: MIT
 * intern.c: see intern.h. */
#include <symbol/intern.h>

#include <base/text.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/demangle.h>

#define GP_INTERN_PAGE 65536u

struct gp_intern_page {
    struct gp_intern_page *next;
    char bytes[];
};

void *gp_intern_room(struct gp_intern *intern, size_t bytes)
{
    bytes = (bytes + 7) & ~(size_t)7;
    size_t page_bytes = bytes > GP_INTERN_PAGE ? bytes : GP_INTERN_PAGE;
    if (!intern->pages || intern->left < bytes) {
        struct gp_intern_page *page = malloc(sizeof(*page) + page_bytes);
        if (!page)
            return NULL;
        page->next = intern->pages;
        intern->pages = page;
        intern->left = page_bytes;
    }
    /* A page is filled from its end: the bytes in front are free. */
    intern->left -= bytes;
    return intern->pages->bytes + intern->left;
}

static uint64_t intern_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a; crafted collisions only cost time, in proportion to the input */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    return hash ^ hash >> 29;
}

static const char **intern_slot(const struct gp_intern *intern, const char *text)
{
    uint32_t at = (uint32_t)intern_hash(text) & (intern->slot_count - 1);
    while (intern->slots[at] && strcmp(intern->slots[at], text) != 0)
        at = (at + 1) & (intern->slot_count - 1);
    return &intern->slots[at];
}

static int intern_grow(struct gp_intern *intern)
{
    struct gp_intern larger = *intern;
    if (intern->slot_count && intern->used < intern->slot_count / 2)
        return 0;
    larger.slot_count = intern->slot_count ? 2 * intern->slot_count : 1024;
    larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
    if (!larger.slots)
        return -1;
    for (uint32_t i = 0; i < intern->slot_count; i++)
        if (intern->slots[i])
            *intern_slot(&larger, intern->slots[i]) = intern->slots[i];
    free(intern->slots);
    *intern = larger;
    return 0;
}

const char *gp_intern(struct gp_intern *intern, const char *text)
{
    char clean[GP_SYMBOL_TEXT];
    gp_text_clean(clean, sizeof(clean), text, strlen(text));
    if (!clean[0])
        return "";
    if (intern_grow(intern) != 0)
        return "?";
    const char **slot = intern_slot(intern, clean);
    if (*slot)
        return *slot;
    size_t bytes = strlen(clean) + 1;
    char *kept = gp_intern_room(intern, bytes);
    if (!kept)
        return "?";
    memcpy(kept, clean, bytes);
    intern->used++;
    *slot = kept;
    return kept;
}

const char *gp_intern_name(struct gp_intern *intern, const char *name)
{
    char plain[GP_SYMBOL_TEXT];
    return gp_intern(intern, gp_demangle(name, plain, sizeof(plain)) ? plain : name);
}

void gp_intern_free(struct gp_intern *intern)
{
    while (intern->pages) {
        struct gp_intern_page *page = intern->pages;
        intern->pages = page->next;
        free(page);
    }
    free(intern->slots);
    *intern = (struct gp_intern){0};
}
