/* SPDX-License-Identifier: MIT
 *
 * test_rulewatch.c: how a change of the loaded objects is noticed, with a loader whose state and numbers the test writes: which
 * words are watched, when the loader is asked instead, and when rules are forgotten.
 */
#include "base/loader.h"
#include "base/opener.h"
#include "lib/standin.h"
#include "stack/internal.h"
#include <criterion/criterion.h>
#include <dlfcn.h>

#define WORDS 8192u             /* the most that is looked at */
#define PC    0x200000001238ull /* in no object */

#if defined(__x86_64__)

static uint64_t state[WORDS + 8];
static ElfW(Sym) symbol;
static uint64_t adds, subs;
static unsigned looked, looks_left = ~0u;
static bool has_state = true, is_elsewhere;
static void (*meanwhile)(void);

STANDIN(void *, gp_opener_symbol, void *handle, const char *name)
{
    cr_assert(handle == RTLD_DEFAULT);
    cr_assert_str_eq(name, "_rtld_global");
    return has_state ? state : NULL;
}

STANDIN(bool, gp_opener_is_free, void)
{
    return true;
}

int dladdr1(const void *address, Dl_info *info, void **extra, int flags)
{
    cr_assert(address == state && flags == RTLD_DL_SYMENT);
    *info = (Dl_info){.dli_saddr = is_elsewhere ? &state[1] : state};
    *extra = &symbol;
    return 1;
}

STANDIN(bool, gp_loader_look, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    struct dl_phdr_info info = {.dlpi_adds = adds, .dlpi_subs = subs};
    if (looks_left == 0)
        return false;
    looks_left--;
    looked++;
    visit(&info, sizeof(info), arg);
    if (meanwhile)
        meanwhile();
    return true;
}

static void start(uint64_t words)
{
    adds = 70, subs = 20;
    symbol.st_size = 8 * words;
    cr_assert_eq(gp_rules_start(), 0);
    gp_rules_watch();
}

/* Whether the loader is asked. */
static bool asks(void)
{
    unsigned before = looked;
    cr_assert(gp_rules_fresh());
    cr_assert_leq(looked - before, 1);
    return looked != before;
}

static bool keeps(void)
{
    return gp_rule_look(PC) != 0;
}

static void learn(void)
{
    struct gp_cfi_rule wide;
    cr_assert_eq(gp_rule_way(gp_rule_learn(PC, &wide)), GP_RULE_CHAIN);
    cr_assert(keeps());
}

TestSuite(rulewatch, .timeout = 60);

/* A change of any one watched word is noticed, of any number of them up to 16; with more the loader is asked each time. */
Test(rulewatch, each_watched_word_counts)
{
    for (unsigned count = 1; count <= 18; count++) {
        unsigned at[18];
        for (unsigned i = 0; i < WORDS; i++)
            state[i] = (1ull << 40) + i;
        start(WORDS);
        adds += 1000 * count; /* nothing is as it was */
        for (unsigned i = 0; i < count; i++) {
            at[i] = i == 0 ? 0 : i == count - 1 ? WORDS - 1 : 13 * i;
            state[at[i]] = i % 3 == 1 ? adds - subs : adds;
        }
        state[WORDS] = adds; /* behind the end */
        cr_assert(asks());
        if (count > 16) {
            cr_assert(asks() && asks(), "%u", count);
            continue;
        }
        cr_assert(!asks() && !asks(), "%u", count);
        uint64_t changes = gp_rules_changes();
        learn();
        cr_assert_not(asks());
        for (unsigned i = 0; i < count; i++) {
            uint64_t value = state[at[i]];
            state[at[i]] = value + 1;
            cr_assert(asks(), "word %u of %u", i, count);
            cr_assert_eq(asks(), count == 1, "without that word the others are watched");
            cr_assert(keeps(), "the loader's numbers are as before");
            state[at[i]] = value;
            adds += 2, subs++;
            for (unsigned k = 0; k < count; k++)
                state[at[k]] = k % 3 == 1 ? adds - subs : adds;
            gp_rules_fresh(); /* now all of them are watched again, if any one was */
            if (count == 1)
                continue;
            cr_assert_eq(gp_rules_changes(), ++changes);
            cr_assert_not(keeps());
            learn();
            cr_assert_not(asks());
        }
        state[WORDS] = adds + 1;
        cr_assert(count == 1 || !asks());
    }
}

/* Where nothing can be watched the loader is asked each time, and rules stay as long as its numbers do. */
Test(rulewatch, without_a_word_the_loader_is_asked)
{
    state[3] = 70;
    symbol.st_value = 0;
    has_state = false;
    start(WORDS);
    cr_assert(asks() && asks());
    learn();
    cr_assert(asks() && keeps());
    subs++;
    cr_assert(asks() && !keeps());
}

Test(rulewatch, a_state_of_another_form_is_not_watched)
{
    state[3] = 70;
    start(WORDS + 1);
    cr_assert(asks() && asks(), "too large");
    is_elsewhere = true;
    start(WORDS);
    cr_assert(asks() && asks(), "not the symbol itself");
    is_elsewhere = false;
    start(3);
    cr_assert(asks() && asks(), "the word lies behind it");
    start(4);
    cr_assert(asks() && !asks(), "the first look begins to watch");
    adds++;
    state[3]++;
    cr_assert(asks() && !asks());
}

/* A change that the words did not show makes them worthless. */
Test(rulewatch, words_that_miss_a_change)
{
    struct gp_cfi_rule wide;
    state[5] = 70;
    start(WORDS);
    cr_assert(asks() && !asks());
    learn();
    adds++; /* and no word */
    cr_assert_not(asks());
    gp_rule_learn(PC + 4096, &wide);
    cr_assert_not(keeps());
    cr_assert(asks() && asks(), "from now on it is asked");
    state[5] = adds;
    adds++;
    cr_assert(asks() && asks());
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

static void an_object_comes(void)
{
    adds++;
}

Test(rulewatch, rules_are_not_kept_across_a_change)
{
    struct gp_cfi_rule wide;
    state[5] = 70;
    start(WORDS);
    cr_assert(asks());
    meanwhile = an_object_comes;
    cr_expect_eq(gp_rule_way(gp_rule_learn(PC, &wide)), GP_RULE_CHAIN);
    cr_expect_not(keeps(), "an object was loaded between the two looks");
    meanwhile = NULL;
    learn();
}

Test(rulewatch, while_the_process_forks)
{
    struct gp_cfi_rule wide;
    state[5] = 70;
    start(WORDS);
    looks_left = 0;
    cr_expect_not(gp_rules_fresh());
    cr_expect_eq(gp_rule_learn(PC, &wide), 0);
    cr_expect_neq(gp_rule_learn(5, &wide), 0, "no object lies there");
    looks_left = 1;
    cr_expect_neq(gp_rule_learn(PC, &wide), 0);
    cr_expect_not(keeps());
}

#endif
