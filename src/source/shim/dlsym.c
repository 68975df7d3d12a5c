/* SPDX-License-Identifier: MIT
 *
 * dlsym.c: dlsym, for programs that open the driver by name, as every CUDA runtime does, and dlopen,
 * for libraries that must not be bound to what this one exports (source/variable.c).
 *
 * The answer of dlsym(RTLD_NEXT) and dlsym(RTLD_DEFAULT) depends on the caller: libc reads the
 * return address.  So the function below is a jump that keeps registers, stack and return address of
 * the caller; gp_shim_pick chooses its target.  A lookup by handle does not depend on the caller and
 * may be answered by a function of ours.
 *
 * It runs in any process, from the first constructor on, on any thread, so it must not allocate or
 * take a lock of ours.
 */
#include "base/compiler.h"
#include "inject/shimtable.h"
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ==== without symbol versions ===================================================================================== */
/* Finds a function of a C library without symbol versions, which is musl, for dlsym.c.
 *
 * A preload reaches every program of a system, and this library's dlsym then precedes libc's.  By
 * name only dlsym itself finds the next one, so this file reads libc's table of symbols. */

struct preload_symbols {
    const ElfW(Sym) * at;
    const char *names;
    uint32_t count;
};

/* A table in GNU's format does not have the number of symbols: the last one ends the chain of the last bucket. */
static uint32_t plain_count(const uint32_t *gnu)
{
    uint32_t buckets = gnu[0], first = gnu[1], last = 0;
    const uint32_t *bucket = gnu + 4 + gnu[2] * (sizeof(ElfW(Addr)) / 4);
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    const uint32_t *chain = bucket + buckets;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static void plain_read(struct preload_symbols *symbols, ElfW(Addr) base, const ElfW(Dyn) * entry)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        /* glibc adds the base to these addresses in memory, musl does not. */
        const void *at = (const void *)(entry->d_un.d_ptr + (entry->d_un.d_ptr < base ? base : 0));
        if (entry->d_tag == DT_SYMTAB)
            symbols->at = at;
        else if (entry->d_tag == DT_STRTAB)
            symbols->names = at;
        else if (entry->d_tag == DT_HASH)
            symbols->count = ((const uint32_t *)at)[1];
        else if (entry->d_tag == DT_GNU_HASH && !symbols->count)
            symbols->count = plain_count(at);
    }
}

struct preload_search {
    const char *name;
    void *found;
};

static int plain_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    struct preload_search *search = arg;
    const ElfW(Dyn) *dynamic = NULL;
    bool is_libc = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)dlerror - info->dlpi_addr - part->p_vaddr < part->p_memsz)
            is_libc = true;
        else if (part->p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + part->p_vaddr);
    }
    if (!is_libc || !dynamic)
        return 0;
    struct preload_symbols symbols = {0};
    plain_read(&symbols, info->dlpi_addr, dynamic);
    for (uint32_t i = 0; symbols.at && symbols.names && i < symbols.count; i++) {
        const ElfW(Sym) *symbol = &symbols.at[i];
        if (symbol->st_shndx != SHN_UNDEF && !strcmp(symbols.names + symbol->st_name, search->name))
            search->found = (void *)(info->dlpi_addr + symbol->st_value);
    }
    return 1;
}

/* libc's function of that name in a C library whose symbols have no versions, or NULL.  Any thread;
 * takes the loader's lock, as dlsym does. */
static void *shim_plain(const char *name)
{
    struct preload_search search = {.name = name};
    dl_iterate_phdr(plain_visit, &search);
    return search.found;
}

/* ==== dlsym ======================================================================================================= */

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif
#define GP_ASM_TEXT_(_x) #_x
#define GP_ASM_TEXT(_x)  GP_ASM_TEXT_(_x)

typedef void *(*gp_dlsym_fn)(void *handle, const char *name);

static void *preload_nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

/* libc's own, found by version, because ours has none; NULL: there is none.  dlvsym is weak (base/glibc.h): musl has no
 * versions. */
static void *preload_find(const char *name, void **x_real)
{
    static const char *const versions[] = {GP_HOOKS_DLSYM_VERSIONS};
    void *real = __atomic_load_n(x_real, __ATOMIC_RELAXED); /* a code address: needs no order */
    for (size_t i = 0; dlvsym && !real && i < GP_COUNT(versions); i++)
        real = dlvsym(RTLD_NEXT, name, versions[i]);
    if (!dlvsym && !real)
        real = shim_plain(name);
    __atomic_store_n(x_real, real, __ATOMIC_RELAXED);
    return real;
}

static gp_dlsym_fn preload_real(void)
{
    static void *x_real;
    void *real = preload_find("dlsym", &x_real);
    return real ? (gp_dlsym_fn)real : preload_nothing;
}

/* Searches after this library.  The barrier keeps the call from becoming a jump, which would show
 * libc another caller. */
static void *preload_after(void *handle, const char *name)
{
    (void)handle;
    void *found = preload_real()(RTLD_NEXT, name);
    __asm__ volatile("" : "+r"(found));
    return found;
}

GP_EXPORT void *gpuprof_preload_next(const char *name);
void *gpuprof_preload_next(const char *name)
{
    void *found = preload_after(RTLD_NEXT, name);
    if (!found)
        dlerror();
    return found;
}

static bool preload_is_mine(const void *address)
{
    Dl_info theirs, mine;
    return dladdr(address, &theirs) && dladdr((void *)preload_nothing, &mine) && theirs.dli_fbase == mine.dli_fbase;
}

static void *preload_by_handle(void *handle, const char *name)
{
    void *found = preload_real()(handle, name);
    if (!found || name[0] != 'c' || name[1] != 'u')
        return found;
    if (preload_is_mine(found)) /* the driver does not have it, so the next library answers */
        return gpuprof_private.is_missing(name) ? preload_after(handle, name) : found;
    return gpuprof_private.wrap_symbol(name, found, __builtin_return_address(0));
}

/* Whether the caller's RTLD_NEXT finds this library: only for objects that precede it in the search
 * order.  Objects before this one never change, later ones may at any time, so the walk goes
 * backwards. */
static bool preload_is_next(const void *caller)
{
    Dl_info info;
    struct link_map *theirs, *mine;
    if (!dladdr1 || !dladdr1(caller, &info, (void **)&theirs, RTLD_DL_LINKMAP))
        return true; /* code that belongs to no library counts as the program's */
    if (!dladdr1((void *)preload_nothing, &info, (void **)&mine, RTLD_DL_LINKMAP))
        return false;
    while (mine && mine != theirs)
        mine = mine->l_prev;
    return mine != NULL;
}

/* caller: dlsym's return address. */
__attribute__((used)) gp_dlsym_fn gp_shim_pick(void *handle, const char *name, const void *caller);
gp_dlsym_fn gp_shim_pick(void *handle, const char *name, const void *caller)
{
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT)
        return preload_by_handle;
    /* As above. */
    if (name && name[0] == 'c' && name[1] == 'u' && gpuprof_private.is_missing(name) &&
        (handle == RTLD_DEFAULT || preload_is_next(caller)))
        return preload_after;
    return preload_real();
}

/* dlopen searches the folders of the caller's RUNPATH: a jump for the same reason. */
__attribute__((used)) void *gp_shim_open(const char *name, long flags, const void *caller);
void *gp_shim_open(const char *name, long flags, const void *caller)
{
    static void *x_real;
    void *real = preload_find("dlopen", &x_real);
    gpuprof_private.opening(name, (int)flags, caller);
    return real ? real : (void *)preload_nothing;
}

/* clang-format off */
#if defined(__x86_64__)
/* The stack is aligned to 16 bytes at a call. */
#define GP_SHIM_JUMP(_name, _pick) \
    __asm__(".text\n" \
    ".globl " #_name "\n" \
    ".type " #_name ", @function\n" \
    "" #_name ":\n" \
    "   .cfi_startproc\n" \
    "   " GP_ASM_TEXT(_CET_ENDBR) "\n" \
    "   movq (%rsp), %rdx\n" \
    "   pushq %rdi\n" \
    "   .cfi_adjust_cfa_offset 8\n" \
    "   pushq %rsi\n" \
    "   .cfi_adjust_cfa_offset 8\n" \
    "   subq $8, %rsp\n" \
    "   .cfi_adjust_cfa_offset 8\n" \
    "   call " #_pick "\n" \
    "   addq $8, %rsp\n" \
    "   .cfi_adjust_cfa_offset -8\n" \
    "   popq %rsi\n" \
    "   .cfi_adjust_cfa_offset -8\n" \
    "   popq %rdi\n" \
    "   .cfi_adjust_cfa_offset -8\n" \
    "   jmp *%rax\n" \
    "   .cfi_endproc\n" \
    ".size " #_name ", .-" #_name "\n");
#elif defined(__aarch64__)
/* hint #34: bti c. */
#define GP_SHIM_JUMP(_name, _pick) \
    __asm__(".text\n" \
    ".globl " #_name "\n" \
    ".type " #_name ", %function\n" \
    "" #_name ":\n" \
    "   .cfi_startproc\n" \
    "   hint #34\n" \
    "   stp x29, x30, [sp, #-32]!\n" \
    "   .cfi_adjust_cfa_offset 32\n" \
    "   .cfi_rel_offset x29, 0\n" \
    "   .cfi_rel_offset x30, 8\n" \
    "   stp x0, x1, [sp, #16]\n" \
    "   mov x2, x30\n" \
    "   mov x29, sp\n" \
    "   bl " #_pick "\n" \
    "   mov x16, x0\n" \
    "   ldp x0, x1, [sp, #16]\n" \
    "   ldp x29, x30, [sp], #32\n" \
    "   .cfi_restore x29\n" \
    "   .cfi_restore x30\n" \
    "   .cfi_adjust_cfa_offset -32\n" \
    "   br x16\n" \
    "   .cfi_endproc\n" \
    ".size " #_name ", .-" #_name "\n");
#else
#error "no dlsym for this processor: write the jump"
#endif
GP_SHIM_JUMP(dlsym, gp_shim_pick)
GP_SHIM_JUMP(dlopen, gp_shim_open)
/* clang-format on */
