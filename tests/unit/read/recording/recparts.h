/* SPDX-License-Identifier: MIT
 *
 * recparts.h: makes a recording of one process, block by block and number by number, and reads it.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/recfile.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>

#include <unit/analyze/train_fixture.h>

/* ---- making and reading ------------------------------------------------------------------------------------------ */

static struct recfile file;
static struct gp_pack *pack;

static inline void begin(void)
{
    const struct gp_format_head head = recfile_head_of(321, 777);
    free(file.at);
    recfile_begin(&file);
    recfile_head(&file, &head);
    recfile_block(&file, (enum gp_format_type)999, 0, "", 0); /* sound, so that the file is accepted */
}

static inline void put(const uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gp_pack_number(pack, numbers[i]);
}
#define ROWS(...)                                                                                                      \
    do {                                                                                                               \
        pack = recfile_rows(&file);                                                                                    \
        PUT(__VA_ARGS__);                                                                                              \
    } while (0)
#define PUT(...)      put((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8)
#define SIGNED(_what) gp_pack_fold(_what)

static inline void put_text(const char *text)
{
    gp_pack_string(pack, text, strlen(text));
}

static inline void block(enum gp_format_type type, uint32_t count)
{
    recfile_block_rows(&file, type, count);
}

/* Valid until the next one is read. */
static inline struct gp_recording *parse(void)
{
    static struct gp_recording *r;
    gp_recording_free(r);
    char why[256];
    uint8_t *exact = malloc(file.size);
    memcpy(exact, file.at, file.size);
    int rc = gp_recording_parse(&r, exact, file.size, why, sizeof(why));
    free(exact);
    cr_assert_eq(rc, 0, "%s", why);
    return r;
}
