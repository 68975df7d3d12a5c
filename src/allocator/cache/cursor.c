/* SPDX-License-Identifier: MIT
 *
 * cursor.c: the positions of running iterations (iterate.c). An iteration releases the lock now and
 * then. Functions that drop a record in that time (block.c, segment.c) call here, so that no cursor
 * points to it afterwards. Everything here runs under the cache's lock.
 */
#include "allocator/cache/internal.h"

void gp_cursor_enter(struct gp_cache *cache, struct gp_cursor *cursor)
{
    cursor->next = cache->cursors;
    cache->cursors = cursor;
}

void gp_cursor_leave(struct gp_cache *cache, struct gp_cursor *cursor)
{
    struct gp_cursor **place = &cache->cursors;
    while (*place != cursor)
        place = &(*place)->next;
    *place = cursor->next;
}

void gp_cursor_block_removed(struct gp_cache *cache, const struct gp_block *block, struct gp_block *into)
{
    for (struct gp_cursor *cursor = cache->cursors; cursor; cursor = cursor->next)
        if (cursor->block == block)
            cursor->block = into;
}

void gp_cursor_segment_removed(struct gp_cache *cache, const struct gp_segment *segment)
{
    for (struct gp_cursor *cursor = cache->cursors; cursor; cursor = cursor->next) {
        if (cursor->block && cursor->block->segment == segment)
            cursor->block = NULL;
        if (cursor->segment == segment)
            cursor->segment = segment->next;
    }
}
