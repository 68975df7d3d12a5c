/* SPDX-License-Identifier: MIT
 *
 * intern.c: strings, each stored once and cleaned for output (internal.h).
 */
#include <symbol/internal.h>

#include <base/text.h>
#include <stdlib.h>
#include <string.h>

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

struct gp_intern_search {
    const char *const *texts;
    const char *text;
};

static bool intern_same(const void *search, uint32_t number)
{
    const struct gp_intern_search *s = search;
    return strcmp(s->texts[number], s->text) == 0;
}

static bool intern_grow(struct gp_intern *intern)
{
    if (intern->map.count < intern->room)
        return true;
    uint32_t room = intern->room ? 2 * intern->room : 512;
    const char **texts = realloc(intern->texts, room * sizeof(*texts));
    if (!texts)
        return false;
    intern->texts = texts;
    intern->room = room;
    return true;
}

const char *gp_intern(struct gp_intern *intern, const char *text)
{
    char clean[GP_SYMBOL_TEXT];
    gp_text_clean(clean, sizeof(clean), text, strlen(text));
    if (!clean[0])
        return "";
    if (!intern_grow(intern))
        return "?";
    bool added;
    const struct gp_intern_search search = {intern->texts, clean};
    const uint32_t *number =
        gp_hash_add(&intern->map, gp_hash_of_text(clean), intern_same, &search, intern->map.count, &added);
    if (!number)
        return "?";
    if (added) {
        size_t bytes = strlen(clean) + 1;
        char *kept = gp_intern_room(intern, bytes);
        intern->texts[*number] = kept ? memcpy(kept, clean, bytes) : "?";
    }
    return intern->texts[*number];
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
    gp_hash_free(&intern->map);
    free(intern->texts);
    *intern = (struct gp_intern){0};
}
