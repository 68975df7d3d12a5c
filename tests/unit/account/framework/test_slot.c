/* SPDX-License-Identifier: MIT
 *
 * test_slot.c: slots of made-up objects are replaced and put back (src/account/framework/slot.c): which ones, from which
 * definition, on pages that are read-only, that will be, or that cannot be changed.
 */
#include "account/framework/internal.h"
#include "base/loader.h"
#include "lib/standin.h"
#include "lib/testclock.h"
#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define JUMP   R_X86_64_JUMP_SLOT
#define GLOBAL R_X86_64_GLOB_DAT
#else
#define JUMP   R_AARCH64_JUMP_SLOT
#define GLOBAL R_AARCH64_GLOB_DAT
#endif
#define OTHER_TYPE 8 /* neither of them on both processors */

#define PAGE   4096u
#define SECOND 1000000000ull

/* ---- an object --------------------------------------------------------------------------------------------------- */

#define SYMBOLS 8u

struct object {
    struct {
        Elf64_Dyn dynamic[10];
        Elf64_Sym symbols[SYMBOLS];
        char strings[256];
        uint32_t hash[4 + 2 + 2 + SYMBOLS]; /* one word of the filter, two buckets */
        Elf64_Rela jumps[4], relas[4];
    } __attribute__((aligned(4096)));
    uint64_t fixed[512];  /* a page that the loader makes read-only */
    uint64_t slots[1024]; /* two that stay writable */
    Elf64_Phdr headers[4];
    const char *path;
    unsigned header_count, symbol_count, string_bytes;
};
static struct object objects[4];
static bool walks;

STANDIN(bool, gp_loader_look, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    for (unsigned i = 0; walks && i < 4; i++) {
        struct dl_phdr_info info = {.dlpi_addr = (uintptr_t)&objects[i],
                                    .dlpi_name = objects[i].path,
                                    .dlpi_phdr = objects[i].headers,
                                    .dlpi_phnum = (Elf64_Half)objects[i].header_count};
        if (visit(&info, sizeof(info), arg))
            break;
    }
    return walks;
}

static char calls[1024];
static const char *mprotect_fails; /* "rw" or "r": the first such call */

STANDIN(int, mprotect, void *at, size_t bytes, int access)
{
    const char *name = access == (PROT_READ | PROT_WRITE) ? "rw" : access == PROT_READ ? "r" : "?";
    size_t used = strlen(calls);
    snprintf(calls + used, sizeof(calls) - used, "%s%zu@%ld ", name, bytes,
             ((long)(uintptr_t)at - (long)(uintptr_t)&objects[1]) / (long)PAGE);
    if (mprotect_fails && strcmp(mprotect_fails, name) == 0) {
        mprotect_fails = NULL;
        errno = EACCES;
        return -1;
    }
    return __real_mprotect(at, bytes, access);
}

static uint32_t add_symbol(struct object *object, const char *name, uint64_t value)
{
    Elf64_Sym *symbol = &object->symbols[object->symbol_count];
    symbol->st_name = object->string_bytes;
    symbol->st_value = value;
    symbol->st_shndx = value ? 1 : SHN_UNDEF;
    strcpy(object->strings + object->string_bytes, name);
    object->string_bytes += (unsigned)strlen(name) + 1;
    return object->symbol_count++;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = (hash << 5) + hash + (unsigned char)*name;
    return hash;
}

/* Symbols from `first` on are in the table, which must be sorted by their buckets. */
static void make_hash(struct object *object, uint32_t first)
{
    uint32_t *hash = object->hash, *buckets = hash + 4 + 2, *chains = buckets + 2;
    hash[0] = 2;
    hash[1] = first;
    hash[2] = 1;
    for (uint32_t i = first; i < object->symbol_count; i++) {
        uint32_t own = hash_of(object->strings + object->symbols[i].st_name);
        bool ends =
            i + 1 == object->symbol_count || hash_of(object->strings + object->symbols[i + 1].st_name) % 2 != own % 2;
        if (!buckets[own % 2])
            buckets[own % 2] = i;
        chains[i - first] = (own & ~1u) | ends;
    }
}

static void make_object(unsigned i, const char *path, bool absolute)
{
    struct object *o = &objects[i];
    uint64_t base = absolute ? (uintptr_t)o : 0;
    syscall(SYS_mprotect, o->fixed, sizeof(o->fixed), PROT_READ | PROT_WRITE);
    memset(o, 0, sizeof(*o));
    o->path = path;
    add_symbol(o, "", 0);
    const Elf64_Dyn dynamic[] = {{DT_SYMTAB, {base + offsetof(struct object, symbols)}},
                                 {DT_STRTAB, {base + offsetof(struct object, strings)}},
                                 {DT_GNU_HASH, {base + offsetof(struct object, hash)}},
                                 {DT_JMPREL, {base + offsetof(struct object, jumps)}},
                                 {DT_PLTRELSZ, {sizeof(o->jumps)}},
                                 {DT_RELA, {base + offsetof(struct object, relas)}},
                                 {DT_RELASZ, {sizeof(o->relas)}},
                                 {DT_SONAME, {77}},
                                 {DT_NULL, {0}}};
    memcpy(o->dynamic, dynamic, sizeof(dynamic));
    o->headers[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = offsetof(struct object, fixed), .p_memsz = 3 * PAGE};
    o->headers[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = 0, .p_memsz = PAGE};
    o->headers[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC, .p_vaddr = offsetof(struct object, dynamic)};
    o->headers[3] =
        (Elf64_Phdr){.p_type = PT_GNU_RELRO, .p_vaddr = offsetof(struct object, fixed), .p_memsz = sizeof(o->fixed)};
    o->header_count = 4;
}

static Elf64_Rela rela(uint64_t place, uint32_t symbol, uint32_t type)
{
    return (Elf64_Rela){.r_offset = place, .r_info = ELF64_R_INFO((uint64_t)symbol, type)};
}

#define SLOT(_n)  (offsetof(struct object, slots) + 8 * (_n))
#define FIXED(_n) (offsetof(struct object, fixed) + 8 * (_n))

static struct gp_slot_import import;

/* Object 0 defines the function at 0x1230; object 1 imports it through a jump slot and a pointer, beside others; 2 has
 * another name and 3 nothing. */
static void prepare(bool absolute)
{
    make_object(0, "/x/libdef.so.2", absolute);
    make_object(1, "/x/libimp_cuda.so", absolute);
    make_object(2, "/libimp/other.so", absolute);
    make_object(3, NULL, absolute);
    struct object *def = &objects[0];
    add_symbol(def, "undefined", 0);
    static const char *const names[] = {"wanted", "wanted1", "wanted2", "wantee", "x"};
    for (unsigned bucket = 0; bucket < 2; bucket++)
        for (unsigned i = 0; i < 5; i++)
            if (hash_of(names[i]) % 2 == bucket)
                add_symbol(def, names[i], 0x1230 + i);
    make_hash(def, 2);
    for (unsigned i = 1; i < 3; i++) {
        struct object *o = &objects[i];
        uint32_t other = add_symbol(o, "other", 0), wanted = add_symbol(o, "wanted", 0);
        o->jumps[0] = rela(SLOT(0), other, JUMP);
        o->jumps[1] = rela(SLOT(1), wanted, JUMP);
        o->jumps[2] = rela(SLOT(2), wanted, OTHER_TYPE);
        o->jumps[3] = rela(SLOT(3), other, GLOBAL);
        o->relas[0] = rela(SLOT(4), 0, OTHER_TYPE);
        o->relas[1] = rela(SLOT(5), other, GLOBAL);
        o->relas[2] = rela(SLOT(6), 0, JUMP);
        o->relas[3] = rela(SLOT(7), wanted, GLOBAL);
        for (unsigned k = 0; k < 8; k++)
            o->slots[k] = 0x7000000000000ull + k;
    }
    import = (struct gp_slot_import){
        .name = "wanted", .replacement = &import, .definer = "libdef.so", .importer = "libimp_cuda"};
    walks = true;
    calls[0] = '\0';
    mprotect_fails = NULL;
    test_now = 0;
}

#define OURS ((uint64_t)(uintptr_t)&import)

static void *original(void)
{
    return (char *)&objects[0] + 0x1230;
}

/* Those with these bits are ours, the others as they were. */
static void expect_slots(unsigned ours)
{
    for (unsigned i = 1; i < 3; i++)
        for (unsigned k = 0; k < 8; k++)
            cr_expect_eq(objects[i].slots[k], i == 1 && ours >> k & 1 ? OURS : 0x7000000000000ull + k, "%u %u", i, k);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

Test(slot, slots_are_replaced_and_put_back)
{
    for (int absolute = 0; absolute < 2; absolute++) {
        prepare(absolute);
        for (unsigned turn = 0; turn < 2; turn++) {
            cr_expect(gp_slots_replace(&import, 1, NULL));
            cr_expect_eq(import.x_original, original());
            cr_expect(import.slots == 2 && import.refused == 0 && import.early == 0, "%u", import.slots);
            expect_slots(1u << 1 | 1u << 7);
        }
        objects[1].slots[7] = 0x7000000000007ull; /* another tool has it */
        cr_expect(gp_slots_restore(&import, 1));
        cr_expect_eq(objects[1].slots[1], (uint64_t)(uintptr_t)original());
        objects[1].slots[1] = 0x7000000000001ull;
        expect_slots(0);
        cr_expect_str_eq(calls, "");
    }
}

/* Several imports, each by its own name. */
Test(slot, each_name_by_itself)
{
    static const char *const names[] = {"wanted1", "wanted2", "wantee", "x", "wante", "undefined", "wantedd", ""};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        prepare(false);
        struct gp_slot_import two[2] = {import, import};
        two[0].name = names[i];
        cr_expect(gp_slots_replace(two, 2, NULL));
        cr_expect_eq(two[0].x_original, i < 4 ? (char *)original() + i + 1 : NULL, "%s", names[i]);
        cr_expect_eq(two[1].x_original, original());
        cr_expect(two[0].slots == 0 && two[1].slots == 2);
        expect_slots(1u << 1 | 1u << 7);
    }
}

/* Without a definition nothing is replaced; a later one is found, and the first of two counts. */
Test(slot, definitions_come_and_go)
{
    prepare(false);
    objects[0].path = "/x/liddef.so";
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_null(import.x_original);
    cr_expect_eq(import.slots, 0);
    expect_slots(0);
    objects[0].path = "libdef.so";
    objects[3] = objects[0];
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_eq(import.x_original, original());
    expect_slots(1u << 1 | 1u << 7);
    objects[0].hash[0] = 0; /* a table without buckets */
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_eq(import.x_original, (char *)&objects[3] + 0x1230);
    objects[3].dynamic[2].d_tag = DT_SONAME; /* no table */
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_null(import.x_original);
    walks = false;
    cr_expect(!gp_slots_replace(&import, 1, NULL));
    cr_expect(!gp_slots_restore(&import, 1));
}

/* Objects that lack a part of what is read. */
Test(slot, objects_without_tables)
{
    for (unsigned way = 0; way < 5; way++) {
        prepare(false);
        if (way == 0)
            objects[1].headers[2].p_type = PT_NOTE;
        if (way == 1)
            objects[1].dynamic[0].d_tag = DT_SONAME;
        if (way == 2)
            objects[1].dynamic[1].d_tag = DT_SONAME;
        if (way == 3)
            objects[1].headers[0].p_type = objects[1].headers[1].p_type = PT_NOTE;
        if (way == 4)
            objects[1].header_count = 0;
        cr_expect(gp_slots_replace(&import, 1, NULL));
        cr_expect_eq(import.x_original, original());
        cr_expect_eq(import.slots, 0, "%u", way);
        expect_slots(0);
    }
    prepare(false);
    objects[1].dynamic[4].d_un.d_val = sizeof(Elf64_Rela) + 23; /* one jump, and a piece */
    objects[1].dynamic[6].d_un.d_val = 4 * sizeof(Elf64_Rela) - 1;
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_eq(import.slots, 0);
    expect_slots(0);
}

/* A slot that holds a small number is not relocated yet; it is looked at again, for a second. */
Test(slot, slots_that_are_not_relocated)
{
    const uint64_t size = 4 * PAGE;
    prepare(false);
    test_now = 50 * SECOND;
    objects[1].slots[1] = size - 1;
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect(import.slots == 2 && import.early == 1);
    cr_expect(objects[1].slots[1] == size - 1 && objects[1].slots[7] == OURS);
    test_now += SECOND - 1;
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_eq(import.early, 1);
    test_now += 1;
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_eq(import.early, 0, "it belongs to a weak symbol");
    cr_expect_eq(objects[1].slots[1], size - 1);
    objects[1].slots[1] = size;
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect(objects[1].slots[1] == OURS && import.early == 0);
    objects[1].slots[1] = size - 1; /* the time begins again */
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect_eq(import.early, 1);
}

/* Slots on a page that the loader has made read-only: written, and read-only again. */
static void fix(uint64_t place)
{
    objects[1].jumps[1] = rela(place, 2, JUMP);
    *(uint64_t *)(void *)((char *)&objects[1] + place) = 0x7000000000001ull;
}

static uint64_t value_of(uint64_t place)
{
    return *(uint64_t *)(void *)((char *)&objects[1] + place);
}

static void make_read_only(void)
{
    cr_assert_eq(syscall(SYS_mprotect, objects[1].fixed, (size_t)PAGE, PROT_READ), 0);
}

Test(slot, read_only_pages)
{
    static const unsigned places[] = {0, 511};
    for (unsigned i = 0; i < 2; i++) {
        prepare(false);
        fix(FIXED(places[i]));
        make_read_only();
        cr_expect(gp_slots_replace(&import, 1, NULL));
        cr_expect(import.slots == 2 && !import.refused && !import.early);
        cr_expect_eq(value_of(FIXED(places[i])), OURS);
        cr_expect_str_eq(calls, "rw4096@1 r4096@1 ", "%s", calls);
        calls[0] = '\0';
        cr_expect(gp_slots_restore(&import, 1));
        cr_expect_str_eq(calls, "rw4096@1 r4096@1 ");
        cr_expect_eq(value_of(FIXED(places[i])), (uint64_t)(uintptr_t)original());
    }
}

/* A page that will be read-only and is not yet is left alone, for a second: it may belong to another tool. */
Test(slot, pages_that_will_be_read_only)
{
    prepare(false);
    test_now = 50 * SECOND;
    fix(FIXED(3));
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect(import.slots == 2 && import.early == 1);
    cr_expect_eq(value_of(FIXED(3)), 0x7000000000001ull);
    test_now += SECOND;
    cr_expect(gp_slots_replace(&import, 1, NULL));
    cr_expect(import.early == 0 && value_of(FIXED(3)) == OURS);
    cr_expect_str_eq(calls, "", "it stays writable");
    cr_expect(gp_slots_restore(&import, 1));
    cr_expect_eq(value_of(FIXED(3)), (uint64_t)(uintptr_t)original());
    cr_expect_str_eq(calls, "");
}

/* Code of an object that is on the stack runs after the object's relocation: another tool has left the page writable. */
Test(slot, pages_that_another_tool_has_left_writable)
{
    const uint64_t low = (uintptr_t)&objects[1], pcs[] = {(uintptr_t)prepare, low + PAGE};
    const struct gp_slot_caller elsewhere = {pcs, 1}, inside = {pcs, 2};
    prepare(false);
    test_now = 50 * SECOND;
    fix(FIXED(3));
    cr_expect(gp_slots_replace(&import, 1, &elsewhere));
    cr_expect_eq(import.early, 1);
    cr_expect_eq(value_of(FIXED(3)), 0x7000000000001ull);
    cr_expect(gp_slots_replace(&import, 1, &inside));
    cr_expect(import.slots == 2 && import.early == 0);
    cr_expect_eq(value_of(FIXED(3)), OURS);
    cr_expect_str_eq(calls, "", "it stays writable");
}

Test(slot, pages_that_cannot_be_changed)
{
    static const char *const fails[] = {"rw", "r"};
    for (unsigned i = 0; i < 2; i++) {
        prepare(false);
        fix(FIXED(3));
        make_read_only();
        mprotect_fails = fails[i];
        cr_expect(gp_slots_replace(&import, 1, NULL));
        cr_expect_eq(import.refused, 1, "%s", fails[i]);
        cr_expect_eq(value_of(FIXED(3)), i ? OURS : 0x7000000000001ull);
        make_read_only();
        cr_expect(gp_slots_replace(&import, 1, NULL)); /* next time it can */
        cr_expect_eq(import.refused, 0);
        cr_expect_eq(value_of(FIXED(3)), OURS);
        make_read_only();
        mprotect_fails = fails[i];
        cr_expect(gp_slots_restore(&import, 1));
        cr_expect_eq(import.refused, 1, "%s", fails[i]);
    }
}
