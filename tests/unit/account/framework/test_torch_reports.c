/* SPDX-License-Identifier: MIT
 *
 * test_torch_reports.c: when the blocks of PyTorch's allocator are counted, and what the log says of it
 * (src/account/framework/torch.c). The slots, the accounts and the owners are stand-ins. That reports reach the accounts and
 * PyTorch's own functions, integration/test_framework judges.
 */
#include "account/feed/framework.h"
#include "account/framework/framework.h"
#include "account/framework/internal.h"
#include "base/loader.h"
#include "base/log.h"
#include "base/thread.h"
#include "lib/standin.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(torch_reports, .timeout = 30);

static char notes[2048];

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    size_t used = strlen(notes);
    va_list args;
    va_start(args, format);
    vsnprintf(notes + used, sizeof(notes) - used, format, args);
    va_end(args);
}

static struct gp_slot_import *imports;
static unsigned import_count;
static bool looks = true;
static uint32_t slots[16], refused[16], early[16];
static bool (*on_change)(const uint64_t *, unsigned);

STANDIN(bool, gp_slots_replace, struct gp_slot_import *given, unsigned count, const struct gp_slot_caller *caller)
{
    imports = given;
    import_count = count;
    for (unsigned i = 0; i < count; i++) {
        given[i].slots = slots[i];
        given[i].refused = refused[i];
        given[i].early = early[i];
    }
    (void)caller;
    return true;
}

STANDIN_SAYS(bool, gp_doors_find, true, const uint64_t *pcs, unsigned count);
STANDIN_IDLE(gp_doors_restore, void);
STANDIN_SAYS(bool, gp_loader_look, false, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg);

STANDIN(bool, gp_loader_with, void (*work)(void *), void *arg)
{
    if (looks)
        work(arg);
    return looks;
}

STANDIN(bool, gp_slots_restore, struct gp_slot_import *given, unsigned count)
{
    cr_expect(given == imports && count == import_count);
    note("restore\n");
    return true;
}

STANDIN(void, gp_owner_on_change, bool (*changed)(const uint64_t *, unsigned))
{
    on_change = changed;
}

STANDIN(uint8_t, gp_owner_named, const char *name, const char *library)
{
    note("owner %s %s\n", name, library);
    return 9;
}

STANDIN(void, gp_owner_segments_of, const char *library)
{
    note("segments %s\n", library ? library : "-");
}

STANDIN_IDLE(gp_feed_framework_conf, const struct gp_framework_conf *conf);

STANDIN(void, gp_feed_framework_start, const char *name)
{
    note("start %s\n", name);
}

#define EXPECT(_text)                                                                                                  \
    do {                                                                                                               \
        cr_expect_str_eq(notes, _text, "%s", notes);                                                                   \
        notes[0] = '\0';                                                                                               \
    } while (0)

/* Blocks are counted if their reports are found, all of them can be led here, and there is a cache. */
Test(torch_reports, when_blocks_are_counted)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    gp_framework_start();
    EXPECT("owner pytorch libc10_cuda.so\nsegments -\n"); /* nothing is loaded */
    for (unsigned i = 0; i < 5; i++) {
        memset(slots, 0, sizeof(slots));
        memset(refused, 0, sizeof(refused));
        slots[i] = 1;
        cr_expect(on_change(NULL, 0));
        EXPECT(i < 3 ? "start pytorch\nsegments libc10_cuda\n" : "segments -\n");
        refused[(i + 2) % 5] = 1;
        cr_expect(on_change(NULL, 0));
        EXPECT("segments -\n");
    }
    memset(refused, 0, sizeof(refused));
    slots[0] = early[4] = 1;
    cr_expect(!on_change(NULL, 0), "it must be looked at again");
    EXPECT("start pytorch\nsegments libc10_cuda\n");
    early[4] = 0;
    setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "0", 1);
    cr_expect(on_change(NULL, 0));
    EXPECT("segments -\n");
    unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    looks = false;
    cr_expect(!on_change(NULL, 0));
    EXPECT("");
    looks = true;
    cr_expect(on_change(NULL, 0), "the lock is free");
    EXPECT("start pytorch\nsegments libc10_cuda\n");
    gp_framework_stop();
    gp_framework_stop();
    EXPECT("restore\nrestore\n");
}

/* What became of it is logged once, when the slots are found. */
static void logged(uint32_t is_refused, const char *uncached, const char *want)
{
    char path[] = "/tmp/gpuprof-test-reports-XXXXXX", line[512] = "";
    close(mkstemp(path));
    cr_assert_eq(gp_log_open(GP_LOG_INFO, path), 0);
    unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    gp_framework_start();
    slots[1] = 1;
    refused[1] = is_refused;
    if (uncached)
        setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", uncached, 1);
    for (unsigned i = 0; i < 3; i++)
        on_change(NULL, 0);
    gp_log_close();
    FILE *file = fopen(path, "r");
    cr_assert_not_null(fgets(line, sizeof(line), file));
    cr_expect_str_eq(strchr(line, ':') + 2, want);
    cr_expect_null(fgets(line, sizeof(line), file), "once");
    fclose(file);
    unlink(path);
}

Test(torch_reports, counted_blocks_are_logged)
{
    logged(0, NULL, "info: PyTorch's allocator: its blocks are counted\n");
}

Test(torch_reports, calls_that_cannot_be_changed_are_logged)
{
    logged(1, NULL, "warning: PyTorch's allocator: its calls cannot be changed: only its segments are counted\n");
}

Test(torch_reports, a_missing_cache_is_logged)
{
    logged(0, "1",
           "warning: PyTorch's allocator: PYTORCH_NO_CUDA_MEMORY_CACHING is set: it has no blocks of its own\n");
}
