/* SPDX-License-Identifier: MIT
 *
 * test_turns.c: whose turn it is to be attached to (tools/agent/turns.c).
 */
#include <agent/attacher.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct gp_turns *turns;

static void begin(void)
{
    turns = gp_attacher_turns_new();
    cr_assert(turns);
}

static void end(void)
{
    gp_attacher_turns_free(turns);
}

TestSuite(turns, .init = begin, .fini = end, .timeout = 60);

static enum gp_turn_met meet(const char *container, pid_t pid)
{
    char name[80];
    const struct gp_turn_process process = {.pid = pid, .start = 7, .stack = 9};
    snprintf(name, sizeof(name), "name of %s", container);
    return gp_attacher_turns_meet(turns, &process, container, name);
}

/* One look that meets processes 1 to count of a container. */
static void look(const char *container, int count)
{
    gp_attacher_turns_look(turns);
    for (pid_t pid = 1; pid <= count; pid++)
        cr_assert_eq(meet(container, pid), GP_TURN_MET);
    gp_attacher_turns_looked(turns);
}

static pid_t next(struct gp_turn *turn)
{
    return gp_attacher_turns_next(turns, turn) ? turn->process.pid : 0;
}

/* "a" has many programs, and was there first. */
Test(turns, containers_take_turns)
{
    static const char *const wanted[] = {"a", "b", "c", "a", "b", "a", "a", "a"};
    struct gp_turn turn;
    gp_attacher_turns_look(turns);
    for (pid_t pid = 1; pid <= 5; pid++)
        meet("a", pid);
    meet("b", 6), meet("b", 7), meet("c", 8);
    gp_attacher_turns_looked(turns);
    for (unsigned i = 0; i < 8; i++) {
        cr_assert(gp_attacher_turns_next(turns, &turn), "%u", i);
        cr_expect_str_eq(turn.key, wanted[i], "%u: %s", i, turn.key);
        cr_expect_str_eq(turn.name + 8, wanted[i]);
        gp_attacher_turns_end(turns, &turn, GP_TURN_DONE);
    }
    cr_expect_not(gp_attacher_turns_next(turns, &turn));
}

/* However many turns there are at once. */
Test(turns, a_container_has_one_turn_at_a_time)
{
    struct gp_turn a, b, none;
    gp_attacher_turns_look(turns);
    meet("a", 1), meet("a", 2), meet("b", 3);
    gp_attacher_turns_looked(turns);
    cr_expect_eq(next(&a), 1);
    cr_expect_eq(next(&b), 3);
    cr_expect_eq(next(&none), 0);
    gp_attacher_turns_end(turns, &b, GP_TURN_DONE);
    cr_expect_eq(next(&none), 0);
    gp_attacher_turns_end(turns, &a, GP_TURN_DONE);
    cr_expect_eq(next(&a), 2);
}

/* It does not come back before those that waited meanwhile. */
Test(turns, a_container_that_was_away_waits_behind_the_others)
{
    struct gp_turn turn;
    look("a", 1);
    cr_expect_eq(next(&turn), 1);
    gp_attacher_turns_end(turns, &turn, GP_TURN_DONE);
    gp_attacher_turns_look(turns);
    meet("b", 2), meet("c", 3);
    gp_attacher_turns_looked(turns);
    gp_attacher_turns_look(turns);
    meet("a", 4), meet("b", 2), meet("c", 3);
    gp_attacher_turns_looked(turns);
    for (pid_t pid = 2; pid <= 4; pid++) {
        cr_expect_eq(next(&turn), pid);
        gp_attacher_turns_end(turns, &turn, GP_TURN_DONE);
    }
}

Test(turns, a_program_is_tried_once_unless_it_was_not_ready)
{
    /* In looks 1, 2, 4, 8 and so on, of a program that is never ready. */
    static const bool wanted[] = {true, true, false, true, false, false, false, true, false};
    struct gp_turn turn;
    for (unsigned i = 0; i < sizeof(wanted); i++) {
        look("a", 1);
        cr_expect_eq(next(&turn), wanted[i], "look %u", i);
        if (wanted[i]) {
            cr_expect_eq(turn.is_again, i > 0);
            gp_attacher_turns_end(turns, &turn, GP_TURN_LATER);
        }
    }
    while (look("a", 1), !next(&turn))
        ;
    gp_attacher_turns_end(turns, &turn, GP_TURN_DONE);
    for (int i = 0; i < 40; i++) {
        look("a", 1);
        cr_expect_eq(next(&turn), 0);
    }
    const struct gp_turn_process other = {.pid = 1, .start = 7, .stack = 10}; /* it called exec */
    gp_attacher_turns_look(turns);
    gp_attacher_turns_meet(turns, &other, "a", "a");
    cr_expect_eq(next(&turn), 1);
    cr_expect(!turn.is_again && turn.process.stack == 10);
}

/* Programs without CUDA are looked at again and again, and cost their container no turn, up to 256. */
Test(turns, programs_with_nothing_to_do)
{
    struct gp_turn turn;
    gp_attacher_turns_look(turns);
    for (pid_t pid = 1; pid <= 600; pid++)
        meet("a", pid);
    for (pid_t pid = 1001; pid <= 1003; pid++)
        meet("b", pid);
    gp_attacher_turns_looked(turns);
    for (pid_t pid = 1; pid <= 256; pid++) {
        cr_assert_eq(next(&turn), pid);
        gp_attacher_turns_end(turns, &turn, GP_TURN_UNUSED);
    }
    for (pid_t pid = 1001; pid <= 1003; pid++) {
        cr_assert_eq(next(&turn), pid);
        gp_attacher_turns_end(turns, &turn, GP_TURN_UNUSED);
    }
    for (pid_t pid = 257; pid <= 600; pid++) {
        cr_assert_eq(next(&turn), pid);
        gp_attacher_turns_end(turns, &turn, GP_TURN_UNUSED);
    }
    cr_expect_eq(next(&turn), 0);
    look("a", 3);
    cr_expect_eq(next(&turn), 1);
}

Test(turns, programs_that_end)
{
    struct gp_turn turn, other;
    look("a", 3);
    cr_expect_eq(next(&turn), 1);
    look("b", 1); /* all of "a" ended, during its turn */
    cr_expect_eq(next(&other), 1);
    cr_expect_str_eq(other.key, "b");
    gp_attacher_turns_end(turns, &turn, GP_TURN_LATER);
    gp_attacher_turns_end(turns, &other, GP_TURN_DONE);
    cr_expect_eq(next(&turn), 0);
    look("c", 0);
    gp_attacher_turns_end(turns, &turn, GP_TURN_DONE); /* of a container that is gone */
    look("a", 2);
    cr_expect_eq(next(&turn), 1);
}

Test(turns, limits)
{
    char name[32];
    struct gp_turn turn;
    gp_attacher_turns_look(turns);
    for (unsigned i = 1; i <= GP_TURNS_PROCESSES; i++)
        cr_assert_eq(meet("a", (pid_t)i), GP_TURN_MET);
    cr_expect_eq(meet("a", 5000), GP_TURN_MANY_PROCESSES);
    cr_expect_eq(meet("a", 5), GP_TURN_MET);
    for (unsigned i = 1; i < GP_TURNS_CONTAINERS; i++) {
        snprintf(name, sizeof(name), "c%u", i);
        cr_assert_eq(meet(name, 1), GP_TURN_MET);
    }
    cr_expect_eq(meet("z", 1), GP_TURN_MANY_CONTAINERS);
    gp_attacher_turns_looked(turns);
    look("a", 0);
    look("z", 1);
    cr_expect_eq(next(&turn), 1);
    cr_expect_str_eq(turn.key, "z");
}
