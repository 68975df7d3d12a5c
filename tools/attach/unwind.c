/* SPDX-License-Identifier: MIT
 *
 * unwind.c: looks at the stack of a stopped thread from outside: where it ends, and whether its
 * frames allow to borrow it.
 */
#include <attach/unwind.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <base/vma.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <read/collect/procfs.h>
#include <read/common/elfimage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ==== where a thread's stack ends ================================================================================= */
/* Where a thread's own stack ends.  Called by inject.c and seize.c.
 *
 * A stack pointer alone does not tell: a fibre's stack is often a piece of the heap, of a larger
 * mapping or of another thread's stack, with data right below it.  Two stacks are known for sure:
 * the main thread's, which the kernel names, and that of a thread of the C library's, which has the
 * thread's control block at its upper end, in the same mapping, and a guard page at its lower end. */

#define GP_STACKS_FRESH_NS 100000000ull
#define GP_STACKS_AREAS    65536u
#define GP_STACK_PAGE      4096ull
#define GP_STACK_PAGES     16384u       /* 64 MiB: how far a guard page is looked for */
#define GP_STACK_GROWTH    (1ull << 20) /* less than the distance that the kernel keeps between this stack and others */
#define GP_STACK_GUARD     (1ull << 58) /* in pagemap: MADV_GUARD_INSTALL, from Linux 6.15 on */

struct stack_area {
    uint64_t start, end;
    bool is_guarded; /* below it is a mapping that may not be touched */
    bool is_main;
};

struct gp_stacks {
    pid_t pid;
    uint64_t looked_ns;
    struct stack_area *areas;
    size_t count, room;
    uint64_t guard_end; /* of the mapping that was looked at last; 0: it is no guard */
};

struct gp_stacks *gp_unwind_stacks_new(pid_t pid)
{
    struct gp_stacks *stacks = calloc(1, sizeof(*stacks));
    if (stacks)
        stacks->pid = pid;
    return stacks;
}

void gp_unwind_stacks_free(struct gp_stacks *stacks)
{
    if (stacks)
        free(stacks->areas);
    free(stacks);
}

static void stacks_add(struct gp_stacks *stacks, const struct stack_area *area)
{
    if (stacks->count == stacks->room) {
        size_t room = stacks->room ? 2 * stacks->room : 256;
        struct stack_area *more = room <= GP_STACKS_AREAS ? realloc(stacks->areas, room * sizeof(*more)) : NULL;
        if (!more)
            return;
        stacks->areas = more;
        stacks->room = room;
    }
    stacks->areas[stacks->count++] = *area;
}

static bool stacks_mapping(void *context, const struct gp_vma *mapping)
{
    struct gp_stacks *stacks = context;
    const struct stack_area area = {mapping->start, mapping->end, stacks->guard_end == mapping->start,
                                    strcmp(mapping->path, "[stack]") == 0};
    stacks->guard_end = strncmp(mapping->rights, "---", 3) == 0 ? mapping->end : 0;
    if (!mapping->inode && strncmp(mapping->rights, "rw", 2) == 0)
        stacks_add(stacks, &area);
    return true;
}

void gp_unwind_stacks_look(struct gp_stacks *stacks)
{
    if (stacks->looked_ns && gp_clock_ns() - stacks->looked_ns < GP_STACKS_FRESH_NS)
        return;
    stacks->count = 0;
    stacks->guard_end = 0;
    gp_proc_mapped_each(stacks->pid, stacks_mapping, stacks);
    stacks->looked_ns = gp_clock_ns();
}

/* The end of the last guard page in [from, to) that was made by advice and is no mapping of its own; 0: none. */
static uint64_t stack_advised(pid_t pid, uint64_t from, uint64_t to)
{
    char path[64], folder[GP_PROC_FOLDER];
    uint64_t found = 0, first = from / GP_STACK_PAGE, count = to / GP_STACK_PAGE - first;
    if (count > GP_STACK_PAGES) {
        first += count - GP_STACK_PAGES;
        count = GP_STACK_PAGES;
    }
    snprintf(path, sizeof(path), "%s/pagemap", gp_proc_folder(pid, folder));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t *pages = calloc(count + 1, sizeof(*pages));
    ssize_t got = fd >= 0 && pages ? pread(fd, pages, count * sizeof(*pages), (off_t)(first * sizeof(*pages))) : 0;
    for (ssize_t i = got / (ssize_t)sizeof(*pages); i-- > 0 && !found;)
        if (pages[i] & GP_STACK_GUARD)
            found = (first + (uint64_t)i + 1) * GP_STACK_PAGE;
    free(pages);
    if (fd >= 0)
        close(fd);
    return found;
}

uint64_t gp_unwind_stack_low(const struct gp_stacks *stacks, pid_t tid, uint64_t sp, uint64_t thread_pointer)
{
    for (size_t i = 0; i < stacks->count; i++) {
        const struct stack_area *area = &stacks->areas[i];
        uint64_t start = area->is_main ? area->start - GP_STACK_GROWTH : area->start;
        if (sp < start || sp >= area->end)
            continue;
        if (tid == stacks->pid || area->is_main)
            return tid == stacks->pid && area->is_main ? start : 0;
        if (thread_pointer <= sp || thread_pointer >= area->end)
            return 0;
        uint64_t advised = stack_advised(stacks->pid, area->start, thread_pointer);
        if (advised)
            return advised > sp ? 0 : advised;
        return area->is_guarded ? area->start : 0;
    }
    return 0;
}

/* ==== what its frames allow ======================================================================================= */
/* Looks at the stack of a stopped thread from outside (libdw).  Called by inject.c.
 *
 * The borrowed thread starts a thread, which takes locks of malloc, of the loader and of the thread
 * library.  If this very thread holds one of them, it would wait for itself.  So a thread is refused
 * if any of its frames lies in the loader, in an allocator, in a function that holds such a lock, or
 * in a signal handler, which may have interrupted any of these.  A stack that cannot be read to its
 * end is refused too.
 *
 * Everything slow (opening files, reading symbols) is done before a thread is stopped. */

#define GP_UNWIND_FRAMES 512
#define GP_UNWIND_RANGES 256

struct unwind_range {
    uint64_t start, end;
    const char *name;
};

struct gp_unwind {
    pid_t pid;
    Dwfl *dwfl;
    struct gp_vma *files; /* each with a path of its own */
    size_t file_count, file_room;
    struct unwind_range ranges[GP_UNWIND_RANGES];
    size_t range_count;
    uint64_t room; /* bytes that the files of the process may still take */
};

/* dwfl's callbacks get no pointer of ours. */
static struct gp_unwind *unwind_now;

/* Functions that hold a lock that the start of a thread needs, or that may not be interrupted so. */
static const char *const unwind_names[] = {
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_trim",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "malloc_info",
    "dl_iterate_phdr",
    "dlopen",
    "dlclose",
    "dlsym",
    "dlvsym",
    "dlmopen",
    "dladdr",
    "dlerror",
    "fork",
    "vfork",
    "_Fork",
    "exit",
    "_exit",
    "quick_exit",
    "abort",
    "pthread_create",
    "pthread_exit",
    "pthread_atfork",
    "__libc_freeres",
    "__cxa_finalize",
    "__call_tls_dtors",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "clone",
    "__clone",
    "__register_atfork",
    /* These hold the lock of the list of stacks while they wait for each thread. */
    "setuid",
    "setgid",
    "seteuid",
    "setegid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "initgroups",
    "__setuid",
    "__setgid",
    "__setreuid",
    "__setregid",
    "__setresuid",
    "__setresgid",
    "__nptl_setxid",
    "pthread_setattr_default_np",
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool unwind_mapping(void *context, const struct gp_vma *mapping)
{
    struct gp_unwind *unwind = context;
    if (mapping->path[0] != '/')
        return true;
    if (unwind->file_count == unwind->file_room) {
        size_t room = unwind->file_room ? 2 * unwind->file_room : 64;
        struct gp_vma *more = realloc(unwind->files, room * sizeof(*more));
        if (!more)
            return false;
        unwind->files = more;
        unwind->file_room = room;
    }
    struct gp_vma file = *mapping;
    if ((file.path = strdup(mapping->path)))
        unwind->files[unwind->file_count++] = file;
    return true;
}

static int unwind_find(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, char **found, Elf **elf)
{
    struct gp_unwind *unwind = unwind_now;
    char proc[GP_PROC_FOLDER];
    if (strcmp(name, "[vdso]") == 0)
        return dwfl_linux_proc_find_elf(module, userdata, name, base, found, elf);
    gp_proc_folder(unwind->pid, proc);
    for (size_t i = 0; i < unwind->file_count; i++) {
        const struct gp_vma *file = &unwind->files[i];
        if (file->start != base)
            continue;
        bool is_cut;
        int mapped = gp_proc_mapped_open(proc, file), fd = mapped;
        if (mapped >= 0)
            fd = gp_elf_image(mapped, GP_ELF_FRAMES, &unwind->room, &is_cut);
        if (mapped >= 0)
            close(mapped);
        *found = fd >= 0 ? strdup(file->path) : NULL;
        return fd >= 0 ? fd : -1;
    }
    return -1;
}

/* No search for debug information, which may even ask a server. */
static int unwind_no_debug(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, const char *file,
                           const char *link, GElf_Word crc, char **found)
{
    (void)module, (void)userdata, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)found;
    return -1;
}

static const char *unwind_base(const char *path)
{
    const char *base = strrchr(path, '/');
    return base ? base + 1 : path;
}

static const char *unwind_listed(const char *name)
{
    for (size_t i = 0; name && i < GP_COUNT(unwind_names); i++)
        if (strcmp(name, unwind_names[i]) == 0)
            return unwind_names[i];
    return NULL;
}

/* Reads the unwind tables of a module and, if it may define an allocator, where its functions are.
 * An allocator in a library of another name is not known. */
static int unwind_warm(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, void *arg)
{
    struct gp_unwind *unwind = arg;
    Dwarf_Addr bias;
    (void)userdata;
    dwfl_module_eh_cfi(module, &bias);
    const char *file = unwind_base(name);
    bool first = unwind->file_count && base == unwind->files[0].start; /* mostly the program */
    if (!first && strncmp(file, "libc.so", 7) != 0 && strncmp(file, "libc-2.", 7) != 0 &&
        strncmp(file, "libpthread", 10) != 0)
        return DWARF_CB_OK;
    int count = dwfl_module_getsymtab(module);
    for (int i = 1; i < count && unwind->range_count < GP_UNWIND_RANGES; i++) {
        GElf_Sym symbol;
        GElf_Addr address;
        const char *listed = unwind_listed(dwfl_module_getsym_info(module, i, &symbol, &address, NULL, NULL, NULL));
        if (listed && symbol.st_size && symbol.st_shndx != SHN_UNDEF)
            unwind->ranges[unwind->range_count++] = (struct unwind_range){address, address + symbol.st_size, listed};
    }
    return DWARF_CB_OK;
}

struct gp_unwind *gp_unwind_new(pid_t pid)
{
    static const Dwfl_Callbacks callbacks = {.find_elf = unwind_find, .find_debuginfo = unwind_no_debug};
    struct gp_unwind *unwind = calloc(1, sizeof(*unwind));
    if (!unwind)
        return NULL;
    unwind->pid = pid;
    unwind->room = gp_elf_room();
    unwind_now = unwind;
    gp_proc_mapped_each(unwind->pid, unwind_mapping, unwind);
    pid_t thread = gp_proc_thread(pid);
    unwind->dwfl = dwfl_begin(&callbacks);
    if (unwind->dwfl && dwfl_linux_proc_report(unwind->dwfl, thread) == 0 &&
        dwfl_report_end(unwind->dwfl, NULL, NULL) == 0 && dwfl_getmodules(unwind->dwfl, unwind_warm, unwind, 0) == 0 &&
        dwfl_linux_proc_attach(unwind->dwfl, thread, true) == 0)
        return unwind;
    gp_unwind_free(unwind);
    return NULL;
}

void gp_unwind_free(struct gp_unwind *unwind)
{
    if (!unwind)
        return;
    if (unwind->dwfl)
        dwfl_end(unwind->dwfl);
    for (size_t i = 0; i < unwind->file_count; i++)
        free((char *)unwind->files[i].path);
    free(unwind->files);
    free(unwind);
}

/* ---- one stack --------------------------------------------------------------------------------------------------- */

struct unwind_walk {
    struct gp_unwind *unwind;
    int frames;
    char *why; /* "" nothing found */
    size_t why_bytes;
};

static void unwind_look(struct unwind_walk *walk, uint64_t pc)
{
    const struct gp_unwind *unwind = walk->unwind;
    const char *name = NULL;
    Dwfl_Module *module = dwfl_addrmodule(unwind->dwfl, pc);
    if (module)
        name = dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    const char *base = name ? unwind_base(name) : "";
    for (size_t i = 0; i < unwind->range_count; i++)
        if (pc >= unwind->ranges[i].start && pc < unwind->ranges[i].end)
            snprintf(walk->why, walk->why_bytes, "it is in %s()", unwind->ranges[i].name);
    if (strncmp(base, "ld-linux", 8) == 0 || strncmp(base, "ld-2.", 5) == 0 || strncmp(base, "ld.so", 5) == 0)
        snprintf(walk->why, walk->why_bytes, "it is in the loader");
    else if (strstr(base, "malloc"))
        snprintf(walk->why, walk->why_bytes, "it is in the allocator %.60s", base);
}

static int unwind_frame(Dwfl_Frame *frame, void *arg)
{
    struct unwind_walk *walk = arg;
    Dwarf_Addr pc;
    bool interrupted;
    if (!dwfl_frame_pc(frame, &pc, &interrupted) || walk->frames >= GP_UNWIND_FRAMES) {
        snprintf(walk->why, walk->why_bytes, "its stack is too deep or cannot be read");
        return DWARF_CB_ABORT;
    }
    if (walk->frames > 0 && interrupted)
        snprintf(walk->why, walk->why_bytes, "it is in a signal handler");
    walk->frames++;
    if (!walk->why[0])
        unwind_look(walk, interrupted ? pc : pc - 1);
    return walk->why[0] ? DWARF_CB_ABORT : DWARF_CB_OK;
}

bool gp_unwind_allows(struct gp_unwind *unwind, pid_t tid, char *why, size_t why_bytes)
{
    struct unwind_walk walk = {.unwind = unwind, .why = why, .why_bytes = why_bytes};
    why[0] = '\0';
    unwind_now = unwind;
    int rc = dwfl_getthread_frames(unwind->dwfl, tid, unwind_frame, &walk);
    if (!why[0] && (rc != 0 || walk.frames == 0))
        snprintf(why, why_bytes, "its stack cannot be read to its end (%s after %d frames)",
                 rc < 0 ? dwfl_errmsg(-1) : "stop", walk.frames);
    return !why[0];
}
