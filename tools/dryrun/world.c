/* SPDX-License-Identifier: MIT
 * world.c: see world.h: the options, the ranks that run, and which others they stand for. */
#include <base/text.h>
#include <common/messages.h>
#include <common/values.h>
#include <dryrun/world.h>
#include <read/common/parse.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_WORLD_FILE  (8u << 20) /* bytes that are read of what the ranks wrote */
#define GP_WORLD_ONCE  64         /* ranks that run at a time without --jobs */
#define GP_WORLD_GROUP 64         /* of larger groups only the rank itself is added */

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bool world_has(const struct gp_world *world, int64_t rank)
{
    uint32_t low = 0, high = world->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (world->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < world->count && world->ranks[low] == rank;
}

/* Room for all is there. */
static bool world_add(struct gp_world *world, int64_t rank)
{
    uint32_t at = world->count;
    if (rank < 0 || rank >= world->size || world_has(world, rank))
        return false;
    while (at > 0 && world->ranks[at - 1] > rank) {
        world->ranks[at] = world->ranks[at - 1];
        at--;
    }
    world->ranks[at] = (int32_t)rank;
    world->count++;
    return true;
}

char *gp_world_list(const int32_t *ranks, uint32_t count)
{
    char *text = malloc((size_t)count * 12 + 1);
    size_t at = 0;
    for (uint32_t i = 0, last; text && i < count; i = last + 1) {
        last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        at += (size_t)sprintf(text + at, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", ranks[i], ranks[last]);
    }
    return text;
}

/* "0,8-15" */
static int world_list(struct gp_world *world, const char *text)
{
    char *copy = strdup(text), *rest = copy, *part;
    int rc = copy ? GP_EXIT_OK : gp_memory_error("dryrun");
    while (!rc && (part = strsep(&rest, ","))) {
        int64_t first, last;
        char *dash = strchr(part, '-');
        if (dash)
            *dash++ = '\0';
        if (gp_parse_number(part, 0, INT_MAX, &first) != 0 ||
            gp_parse_number(dash ? dash : part, 0, INT_MAX, &last) != 0 || last < first)
            rc = gp_usage_error("dryrun", "--ranks=%s: not 'auto', 'all' or a list of ranks like 0,8-15", text);
        else if (last >= world->size)
            rc = gp_usage_error("dryrun", "--ranks=%s: rank %lld: a job of %lld has the ranks 0 to %lld", text,
                                (long long)last, (long long)world->size, (long long)world->size - 1);
        for (int64_t i = rc ? 1 : first; i <= last && !rc; i++)
            world_add(world, i);
    }
    free(copy);
    return rc;
}

/* What the launcher in front was told, beside what gpuprof was told. */
static int world_counts(struct gp_world *world, int64_t local)
{
    const struct gp_launcher *l = &world->launcher;
    int64_t size = l->size ? l->size : l->nodes && l->local ? l->nodes * l->local : 0;
    if (local && l->local && local != l->local)
        return gp_usage_error("dryrun", "--local-world=%lld, and %s starts %lld ranks on a node: which is it?",
                              (long long)local, l->name, (long long)l->local);
    if (size && size != world->size)
        return gp_usage_error("dryrun", "--world=%lld, and %s starts %lld ranks: which is it?", (long long)world->size,
                              l->name, (long long)size);
    world->local = local ? local : l->local;
    if (!world->local && l->nodes)
        world->local = (world->size + l->nodes - 1) / l->nodes;
    if (!world->local)
        world->local = world->size < GP_WORLD_LOCAL ? world->size : GP_WORLD_LOCAL;
    if (world->local > world->size)
        return gp_usage_error("dryrun", "--local-world=%lld: the job has %lld ranks", (long long)world->local,
                              (long long)world->size);
    return GP_EXIT_OK;
}

static int world_at_once(const struct gp_world *world)
{
    if (world->jobs || world->automatic || world->count <= GP_WORLD_ONCE)
        return GP_EXIT_OK;
    return gp_usage_error(
        "dryrun",
        "--ranks: %u ranks would run at the same time, each with the host memory of CMD: say how many "
        "may, with --jobs=J",
        world->count);
}

int gp_world_begin(struct gp_world *world, int64_t size, int64_t local, const char *ranks, int64_t jobs, char **argv)
{
    *world = (struct gp_world){.size = size, .jobs = jobs, .argv = argv};
    int rc = gp_launcher_read(&world->launcher, argv, size);
    if (!rc)
        rc = world_counts(world, local);
    if (!rc && world->launcher.argv)
        world->argv = world->launcher.argv;
    world->ranks = rc ? NULL : malloc((size_t)size * sizeof(*world->ranks));
    if (!rc && !world->ranks)
        rc = gp_memory_error("dryrun");
    if (rc)
        return rc;
    world->automatic = !ranks || strcmp(ranks, "auto") == 0;
    if (!world->automatic && strcmp(ranks, "all") != 0) {
        rc = world_list(world, ranks);
        return rc ? rc : world_at_once(world);
    }
    for (int64_t i = 0; i < size; i++) /* the first, one beside it, the last */
        if (!world->automatic || i < 2 || i == size - 1)
            world_add(world, i);
    if (world->automatic && world->jobs)
        return gp_usage_error("dryrun",
                              "--jobs: with --ranks=auto ranks that send to each other run at the same time: name "
                              "the ranks with --ranks=LIST or --ranks=all");
    return world_at_once(world);
}

void gp_world_end(struct gp_world *world)
{
    gp_launcher_free(&world->launcher);
    free(world->ranks);
    world->ranks = NULL;
}

/* ---- which others run -------------------------------------------------------------------------------------------- */

/* The members are that far apart; 0: not all. */
static int32_t grow_distance(const int32_t *members, uint32_t count)
{
    int32_t distance = count > 1 ? members[1] - members[0] : 0;
    for (uint32_t i = 2; i < count; i++)
        if (members[i] - members[i - 1] != distance)
            return 0;
    return distance > 0 ? distance : 0;
}

static void grow_line(struct gp_world *world, int32_t ranks, int32_t distance)
{
    for (uint32_t i = 0; i < world->line_count; i++)
        if (world->lines[i].ranks == ranks && world->lines[i].distance == distance)
            return;
    if (world->line_count < GP_WORLD_LINES)
        world->lines[world->line_count++] = (struct gp_world_line){ranks, distance};
}

/* A line "RANK<TAB>PEER<TAB>MEMBER,..".  Groups of the same number and distance do the same at the same place, so that of rank 0
 * is enough for all. */
static bool grow_from(struct gp_world *world, char *line)
{
    int32_t members[GP_WORLD_GROUP];
    uint32_t count = 0;
    int64_t peer, member;
    char *own = strsep(&line, "\t"), *to = strsep(&line, "\t"), *word;
    bool more = false, all = true;
    if (!own || !to || !line || gp_parse_number(to, 0, world->size - 1, &peer) != 0)
        return false;
    while ((word = strsep(&line, ",")) && all) {
        all = count < GP_WORLD_GROUP && gp_parse_number(word, 0, world->size - 1, &member) == 0;
        if (all)
            members[count++] = (int32_t)member;
    }
    int32_t distance = all ? grow_distance(members, count) : 0;
    if (!distance || count == world->size)
        return world_add(world, peer);
    grow_line(world, (int32_t)count, distance);
    for (uint32_t i = 0; i < count; i++)
        more |= world_add(world, (int64_t)i * distance);
    return more;
}

bool gp_world_grow(struct gp_world *world, const char *file)
{
    char *line = NULL;
    size_t room = 0, bytes = 0;
    bool more = false;
    if (!world->automatic || world->rounds >= GP_WORLD_ROUNDS)
        return false;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !in)
        close(fd);
    ssize_t n;
    while (in && bytes < GP_WORLD_FILE && (n = getline(&line, &room, in)) > 0) {
        bytes += (size_t)n;
        line[strcspn(line, "\n")] = '\0';
        more |= grow_from(world, line);
    }
    free(line);
    if (in)
        fclose(in);
    world->rounds += more;
    return more;
}

/* ---- ranks that are alike ---------------------------------------------------------------------------------------- */

static bool kinds_equal(const struct gp_need *one, const struct gp_need *other)
{
    return one->allocated_peak_bytes == other->allocated_peak_bytes &&
           one->reserved_peak_bytes == other->reserved_peak_bytes && one->needed_bytes == other->needed_bytes &&
           one->smallest_bytes == other->smallest_bytes && memcmp(one->uses, other->uses, sizeof(one->uses)) == 0;
}

/* Both have the same place in the groups whose members send to each other: in a pipeline, the same stage. */
static bool kinds_same_place(const struct gp_world *world, int64_t one, int64_t other)
{
    for (uint32_t i = 0; i < world->line_count; i++)
        if (one / world->lines[i].distance % world->lines[i].ranks !=
            other / world->lines[i].distance % world->lines[i].ranks)
            return false;
    return true;
}

/* The rank that ran whose place the absent one has.  The first and the last of the job stand for others only where no other
 * has the place: rank 0 may do more than the rest, and the last may have a smaller part. */
static uint32_t kinds_of(const struct gp_world *world, const struct gp_dryrun_run *run, int64_t rank)
{
    uint32_t found = UINT32_MAX;
    bool end = false;
    for (uint32_t i = 0; i < run->need_count; i++) {
        const int32_t its = run->needs[i].rank;
        const bool at_end = its == 0 || its == world->size - 1;
        if (its < 0 || !kinds_same_place(world, its, rank) || (found != UINT32_MAX && (at_end || !end)))
            continue;
        found = i;
        end = at_end;
    }
    return found;
}

static bool kinds_add(struct gp_need *need, int32_t rank)
{
    if (need->stands_count % 64 == 0) {
        int32_t *grown = realloc(need->stands_for, (need->stands_count + 64ul) * sizeof(*grown));
        if (!grown)
            return false;
        need->stands_for = grown;
    }
    need->stands_for[need->stands_count++] = rank;
    return true;
}

/* Ranks whose figures are equal share the row of the first of them. */
static uint32_t kinds_row(const struct gp_dryrun_run *run, uint32_t of)
{
    for (uint32_t i = 0; i < of; i++)
        if (run->needs[i].rank >= 0 && run->needs[i].rank != run->needs[of].rank &&
            kinds_equal(&run->needs[i], &run->needs[of]))
            return i;
    return of;
}

/* The row that an answer of elsewhere has for the rank: its own figures, or what they were taken to stand for. */
static uint32_t kinds_given(const struct gp_dryrun_run *run, int32_t *const *given, const uint32_t *counts,
                            int64_t rank)
{
    for (uint32_t i = 0; i < run->need_count; i++)
        for (uint32_t k = 0; k < counts[i]; k++)
            if (given[i][k] == rank)
                return i;
    return UINT32_MAX;
}

/* The row of a process that is the rank, else of one that stands for it; UINT32_MAX: there is none. */
static uint32_t kinds_find(const struct gp_world *world, const struct gp_dryrun_run *run, int32_t *const *given,
                           const uint32_t *counts, int64_t rank, bool failed)
{
    for (uint32_t i = 0; i < run->need_count; i++)
        if (run->needs[i].rank == rank)
            return i;
    if (failed)
        return UINT32_MAX;
    return world->automatic && !world_has(world, rank) ? kinds_of(world, run, rank)
                                                       : kinds_given(run, given, counts, rank);
}

bool gp_world_kinds(const struct gp_world *world, struct gp_dryrun_run *run)
{
    int32_t **given = calloc(run->need_count + 1ul, sizeof(*given));
    uint32_t *counts = calloc(run->need_count + 1ul, sizeof(*counts));
    const bool failed = gp_dryrun_failed(run); /* how far a rank came tells nothing of another */
    bool ok = given && counts;
    run->job_ranks = (uint32_t)world->size;
    run->node_ranks = (int32_t)world->local;
    for (uint32_t i = 0; ok && i < run->need_count; i++) {
        given[i] = run->needs[i].stands_for;
        counts[i] = run->needs[i].stands_count;
        run->needs[i].stands_for = NULL;
        run->needs[i].stands_count = 0;
    }
    for (int64_t rank = 0; ok && rank < world->size; rank++) {
        uint32_t at = kinds_find(world, run, given, counts, rank, failed);
        ok = at == UINT32_MAX || kinds_add(&run->needs[failed ? at : kinds_row(run, at)], (int32_t)rank);
        run->unanswered += at == UINT32_MAX;
    }
    for (uint32_t i = 0; given && i < run->need_count; i++)
        free(given[i]);
    free(given);
    free(counts);
    return ok;
}
