/* SPDX-License-Identifier: MIT
 *
 * test_hooks_resource.c: what the hooks derive from entry points where CUPTI has resource callbacks: contexts, also primary
 * and green ones, modules by their images, and nodes of captures.  The driver is made up, and each call succeeds or fails.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/tap.h"
#include "base/thread.h"
#include "lib/accounts.h"
#include "lib/build.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <source/hooks_number.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static void **current;
static int *device_now, *active, *status;
static unsigned *fails, *depends;
static uint64_t next_address = 0x10000000;

static void setup(void)
{
    char *folder = build_folder(), path[256];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    cr_assert_eq(build_shared(folder, "fakehooks.c", "libcuda.so.1", "-Wl,-soname,libcuda.so.1"), 0);
    void *library = dlopen(path, RTLD_NOW);
    cr_assert_not_null(library, "%s", dlerror());
    build_remove(folder);
    current = dlsym(library, "fake_current");
    device_now = dlsym(library, "fake_device");
    active = dlsym(library, "fake_active");
    fails = dlsym(library, "fake_fails");
    depends = dlsym(library, "fake_number");
    status = dlsym(library, "fake_status");
    accounts_start(8, (struct gp_feed_setup){.map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
    gp_hooks_resource_start();
}

TestSuite(hooks_resource, .init = setup, .timeout = 60);

static struct gp_hooks_call made;

static void begin(enum gp_hooks_row row, const void *params)
{
    made = (struct gp_hooks_call){.call = {.params = params, .ctx = 1}};
    made.resource = &gp_hooks_resources[row];
    if (made.resource->before)
        made.resource->before(&made);
}

static void end(uint32_t result)
{
    made.call.result = result;
    if (made.resource->after)
        made.resource->after(&made);
}

static void call(enum gp_hooks_row row, const void *params, uint32_t result)
{
    begin(row, params);
    end(result);
}

static uint32_t number_of(uint64_t handle)
{
    return gp_hooks_number_of(&gp_hooks_contexts, handle);
}

static int64_t live(unsigned device, enum gp_wire_kind kind)
{
    struct gp_wire_device is;
    return gp_tap_device(device, &is) ? is.kinds[kind].live : 0;
}

static int64_t bytes_of(unsigned device, enum gp_wire_kind kind)
{
    struct gp_wire_device is;
    return gp_tap_device(device, &is) ? is.kinds[kind].current_bytes : 0;
}

static void allocate(uint64_t handle, int device)
{
    struct gp_allocation block = {.space = GP_SPACE_DEVICE,
                                  .kind = GP_KIND_LINEAR,
                                  .device = device,
                                  .ctx = number_of(handle),
                                  .address = next_address += MIB,
                                  .bytes = MIB,
                                  .requested_bytes = MIB};
    cr_assert_neq(block.ctx, 0);
    gp_feed_alloc(&block);
}

/* Where libgpuprof-shim.so is not loaded, as here, no call arrives. */
Test(hooks_resource, without_the_shim_hooks_are_no_source)
{
    struct gp_source_status is = {.source = GP_SOURCE_NONE};
    for (int again = 0; again < 2; again++) {
        cr_expect_not(gp_hooks_present());
        cr_expect_not(gp_hooks_start(&is));
    }
    cr_expect_str_eq(is.detail, "libgpuprof-shim.so is not preloaded");
    cr_expect(is.source == GP_SOURCE_NONE && !is.enabled);
    cr_expect_null(gp_hooks_driver("cuNothing"));
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

Test(hooks_resource, contexts_come_and_go)
{
    void *handle = (void *)0xc100;
    struct gp_params_cuCtxCreate_v2 create = {&handle, 0, 1};
    struct gp_params_cuCtxDestroy_v2 destroy = {handle};
    call(GP_HOOKS_cuCtxCreate_v2, &create, 2);
    cr_assert_eq(number_of(0xc100), 0, "the call failed");
    call(GP_HOOKS_cuCtxCreate_v2, &create, 0);
    uint32_t number = number_of(0xc100);
    cr_assert_eq(gp_feed_context_device(number), 1);
    allocate(0xc100, 1);
    begin(GP_HOOKS_cuCtxDestroy_v2, &destroy);
    cr_assert_eq(number_of(0xc100), 0, "the handle may come again at once");
    end(201);
    cr_assert_eq(number_of(0xc100), number, "the call failed");
    cr_assert_eq(live(1, GP_KIND_LINEAR), 1);
    call(GP_HOOKS_cuCtxDestroy_v2, &destroy, 0);
    cr_assert_eq(number_of(0xc100), 0);
    cr_assert_eq(live(1, GP_KIND_LINEAR), 0);
    cr_assert_eq(gp_feed_context_device(number), -1);
    call(GP_HOOKS_cuCtxDestroy_v2, &destroy, 0);
    call(GP_HOOKS_cuCtxCreate_v2, &create, 0);
    cr_assert_gt(number_of(0xc100), number);
}

/* A context from before the hooks gets its number when it is current; one whose device is not known gets none. */
Test(hooks_resource, the_current_context)
{
    struct gp_call is = {0};
    *current = (void *)0xc200;
    static const int devices[] = {-1, (int)GP_WIRE_GPUS, 2, (int)GP_WIRE_GPUS - 1, 0};
    for (unsigned i = 0; i < 5; i++) {
        *current = (void *)(uintptr_t)(0xc200 + 16 * i);
        *device_now = devices[i];
        for (unsigned k = 0; k < 4; k++) {
            unsigned bits = k ^ 3; /* both fail at first, and none at last */
            *fails = bits;
            is = (struct gp_call){0};
            gp_hooks_current(&is);
            bool knows = !bits && devices[i] >= 0 && devices[i] < (int)GP_WIRE_GPUS;
            cr_expect_eq(is.ctx != 0, knows, "device %d, %u fails", devices[i], bits);
            cr_expect_eq(is.context, bits & 1 ? NULL : *current);
            cr_expect_eq(number_of((uint64_t)(uintptr_t)*current), is.ctx);
            if (knows)
                cr_expect_eq(gp_feed_context_device(is.ctx), devices[i]);
        }
    }
    *fails = 0;
    *current = NULL;
    is = (struct gp_call){0};
    gp_hooks_current(&is);
    cr_assert(!is.context && !is.ctx);
}

/* Retains, releases and resets of two primary contexts, of which some fail: memory is there as long as a reference. */
Test(hooks_resource, primary_contexts)
{
    unsigned refs[2] = {0};
    int64_t blocks[2] = {0};
    srand(20251123);
    for (unsigned step = 0; step < 20000; step++) {
        int device = rand() % 2, what = rand() % 12;
        uint32_t result = rand() % 4 ? 0 : 201;
        uint64_t handle = 0xd000 + 0x100 * (uint64_t)device;
        void *context = (void *)(uintptr_t)handle;
        if (what < 4) {
            active[device] |= !result;
            refs[device] += !result;
            call(GP_HOOKS_cuDevicePrimaryCtxRetain, &(struct gp_params_cuDevicePrimaryCtxRetain){&context, device},
                 result);
        } else if (what < 8 && refs[device]) {
            struct gp_params_cuDevicePrimaryCtxRelease_v2 params = {device};
            begin(GP_HOOKS_cuDevicePrimaryCtxRelease_v2, &params);
            refs[device] -= !result;
            active[device] = refs[device] != 0;
            blocks[device] = refs[device] ? blocks[device] : 0;
            end(result);
        } else if (what == 8 && refs[device]) {
            struct gp_params_cuDevicePrimaryCtxReset_v2 params = {device};
            begin(GP_HOOKS_cuDevicePrimaryCtxReset_v2, &params);
            refs[device] = result ? refs[device] : 0;
            active[device] = refs[device] != 0;
            blocks[device] = result ? blocks[device] : 0;
            end(result);
        } else if (refs[device]) {
            allocate(handle, device);
            blocks[device]++;
        }
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(live((unsigned)i, GP_KIND_LINEAR), blocks[i], "step %u, what %d: %lld, not %lld", step, what,
                         (long long)live((unsigned)i, GP_KIND_LINEAR), (long long)blocks[i]);
            uint32_t number = number_of(0xd000 + 0x100 * (uint64_t)i);
            cr_assert_eq(number != 0, refs[i] != 0, "step %u, what %d", step, what);
            cr_assert(!number || gp_feed_context_device(number) == i);
        }
    }
    void *none = (void *)0xe000;
    call(GP_HOOKS_cuDevicePrimaryCtxRetain, &(struct gp_params_cuDevicePrimaryCtxRetain){&none, -1}, 0);
    call(GP_HOOKS_cuDevicePrimaryCtxRetain, &(struct gp_params_cuDevicePrimaryCtxRetain){&none, (int)GP_WIRE_GPUS}, 0);
    cr_assert_eq(number_of(0xe000), 0);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static struct {
    Elf64_Ehdr header;
    Elf64_Shdr sections[4];
    char rest[256];
} image;

static void image_make(void)
{
    memset(&image, 0, sizeof(image));
    memcpy(image.header.e_ident, ELFMAG, SELFMAG);
    image.header.e_ident[EI_CLASS] = ELFCLASS64;
    image.header.e_shentsize = sizeof(Elf64_Shdr);
    image.header.e_phentsize = sizeof(Elf64_Phdr);
    image.header.e_shoff = sizeof(Elf64_Ehdr);
    image.header.e_shnum = 4;
    image.sections[1] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_offset = 1000, .sh_size = 234};
    image.sections[2] = (Elf64_Shdr){.sh_type = SHT_NOBITS, .sh_offset = 1234, .sh_size = 100000};
    image.sections[3] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_offset = 500, .sh_size = 20};
}

static void image_takes(int64_t want, const char *what)
{
    void *module = (void *)0xa000;
    int64_t before = bytes_of(0, GP_KIND_MODULE);
    struct gp_params_cuModuleLoadData load = {&module, &image};
    struct gp_params_cuModuleUnload unload = {module};
    call(GP_HOOKS_cuModuleLoadData, &load, 218);
    cr_expect_eq(bytes_of(0, GP_KIND_MODULE), before, "%s: the call failed", what);
    call(GP_HOOKS_cuModuleLoadData, &load, 0);
    cr_expect_eq(bytes_of(0, GP_KIND_MODULE) - before, want, "%s: %lld", what,
                 (long long)(bytes_of(0, GP_KIND_MODULE) - before));
    call(GP_HOOKS_cuModuleUnload, &unload, 1);
    cr_expect_eq(bytes_of(0, GP_KIND_MODULE) - before, want, "%s: the call failed", what);
    call(GP_HOOKS_cuModuleUnload, &unload, 0);
    call(GP_HOOKS_cuModuleUnload, &unload, 0);
    cr_expect_eq(bytes_of(0, GP_KIND_MODULE), before, "%s", what);
}

Test(hooks_resource, modules)
{
    gp_feed_context_created(1, 0);
    image_make();
    image_takes(1234, "the last section");
    image.sections[1].sh_size = 0;
    image.sections[1].sh_offset = 0;
    image_takes(520, "another section");
    image.header.e_shnum = 2;
    image_takes((int64_t)(sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Shdr)), "the table of sections");
    image.header.e_phoff = 4000;
    image.header.e_phnum = 3;
    image_takes((int64_t)(4000 + 3 * sizeof(Elf64_Phdr)), "the table of segments");
    image.header.e_shentsize = 63;
    image_takes(0, "sections of another size");
    image_make();
    image.header.e_ident[EI_CLASS] = ELFCLASS32;
    image_takes(0, "32 bits");
    image_make();
    image.header.e_ident[3] = 'f';
    image_takes(0, "no ELF");
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */

Test(hooks_resource, nodes_of_a_capture)
{
    uint64_t address;
    struct gp_params_cuMemAllocAsync params = {&address, MIB, (void *)0xb000};
    *status = 1;
    call(GP_HOOKS_cuMemAllocAsync, &params, 0);
    cr_expect_eq(gp_thread.node_type, 0, "no capture has begun, so the driver is not asked");
    gp_call_x_captures = 1;
    for (unsigned i = 0; i < 64; i++) {
        *fails = i & 1 ? 16 : 0;
        *status = i >> 1 & 3;
        *depends = i >> 3 & 3;
        uint32_t result = i >> 5 & 1;
        gp_thread.node_type = 0;
        gp_thread.node = gp_thread.graph = 77;
        call(GP_HOOKS_cuMemAllocAsync, &params, result);
        bool captured = !*fails && *status == 1 && !result;
        cr_expect_eq(gp_thread.node_type, captured ? GP_CU_NODE_ALLOC + 1 : 0, "%u", i);
        cr_expect_eq(gp_thread.graph, captured ? 0xb002 : 77, "%u", i);
        cr_expect_eq(gp_thread.node, !captured ? 77 : *depends == 1 ? 0x900d : 0, "%u", i);
    }
    gp_thread.node_type = 0;
}
