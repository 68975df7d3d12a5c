/* SPDX-License-Identifier: MIT
 *
 * A program that gpuprof is attached to and detached from while it runs: late_attach WHAT LIBRARY [N]
 *
 *   hold     memory from before, attach, more memory, and the end
 *   live     memory from before, and allocations for N seconds under gpuprof
 *   mixed    memory of every kind on two devices and in three contexts, before the attach and after it; what gpuprof
 *            says is compared with what the program did
 *   cycles   N times attach and detach, while 8 threads allocate
 *   again    memory of the program lies where the session of the last attach was, and the next attach leaves it alone
 *   slots    the calls of FOLDER/libc10_cuda.so (N is the folder) go where they went before, once detached
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <link.h>

#include "finish.h"

#include "attach.h"
#include "threads.h"
#include "vmm.h"

#define THREADS 8

static int hold(void)
{
    CUdeviceptr before[3];
    for (int i = 0; i < 3; i++)
        before[i] = program_alloc((size_t)(i + 1) * 3 * MIB);
    REPORT("attach", attach_on(""));
    CUdeviceptr after = program_alloc(5 * MIB), other = program_alloc(MIB);
    (void)after;
    CHECK(cuMemFree(before[1]));
    CHECK(cuMemFree(other));
    return finish();
}

/* ---- every kind --------------------------------------------------------------------------------------------------- */

static CUdeviceptr pool_alloc(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAllocAsync(&pointer, bytes, NULL));
    return pointer;
}

static CUdeviceptr managed_alloc(size_t bytes)
{
    CUdeviceptr pointer = 0;
    CHECK(cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL));
    return pointer;
}

static CUdeviceptr mapped_alloc(CUdevice device, size_t bytes)
{
    CUmemGenericAllocationHandle handle = vmm_create(device, bytes);
    CUdeviceptr at = vmm_reserve(4 * bytes) + bytes; /* between holes, as in PyTorch's expandable segments */
    CHECK(cuMemMap(at, bytes, 0, handle, 0));
    vmm_allow(device, at, bytes);
    CHECK(cuMemRelease(handle));
    return at;
}

static void mapped_free(CUdeviceptr at, size_t bytes)
{
    CHECK(cuMemUnmap(at, bytes));
    CHECK(cuMemAddressFree(at - bytes, 4 * bytes));
}

static void expect(const char *what, int64_t have, int64_t want)
{
    if (have == want)
        return;
    printf("%s: %lld, not %lld\n", what, (long long)have, (long long)want);
    program_failures++;
}

/* allocated: since the attach; before: what is left from before it. */
static void expect_numbers(const char *step, int device, int64_t allocated, int64_t before, uint64_t unknown)
{
    size_t bytes = 0;
    const struct gp_wire_header *header = attach_map(&bytes);
    char what[80];
    if (!header || attach_ask(header, GP_COMMAND_SNAPSHOT) != 0) {
        printf("%s: no answer\n", step);
        program_failures++;
        return;
    }
    const struct gp_wire_device *row = (const void *)((const char *)header + header->devices_offset);
    const struct gp_wire_before *kept = (const void *)((const char *)header + header->before_offset);
    snprintf(what, sizeof(what), "%s: device %d: allocated", step, device);
    expect(what, row[device].stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, allocated);
    snprintf(what, sizeof(what), "%s: device %d: before", step, device);
    expect(what, kept->devices[device].bytes, before);
    snprintf(what, sizeof(what), "%s: unknown frees", step);
    expect(what, (int64_t)header->lost[GP_LOST_UNKNOWN_FREE], (int64_t)unknown);
    expect("source", kept->devices[device].source, GP_BEFORE_DRIVER);
    munmap((void *)(uintptr_t)header, bytes);
}

static int mixed(void)
{
    CUcontext first = NULL, second = NULL, other = NULL;
    CUdeviceptr linear[4], later[4], pooled, mapped;
    CHECK(cuCtxGetCurrent(&first));
    for (int i = 0; i < 4; i++)
        linear[i] = program_alloc(((size_t)i + 1) * MIB + 700); /* 10 MiB + 2800 */
    for (int i = 0; i < 20; i++)
        program_alloc(1000); /* 20000, in pages that they share */
    pool_alloc(5000);        /* the first of its page: gpuprof does not look for a small block behind a free place */
    pooled = pool_alloc(3 * MIB);
    mapped = mapped_alloc(0, 4 * STEP);
    managed_alloc(7 * MIB); /* in no total of a device */
    CHECK(cuCtxCreate(&second, NULL, 0, 0));
    program_alloc(11 * MIB);
    CHECK(cuCtxCreate(&other, NULL, 0, 1));
    CUdeviceptr foreign = program_alloc(13 * MIB + 1);
    CHECK(cuCtxSetCurrent(first));
    int64_t before = 10 * MIB + 2800 + 20000 + 3 * MIB + 5000 + 4 * STEP + 11 * MIB;

    REPORT("attach", attach_on("GPUPROF_STACKS=native"));
    expect_numbers("attached", 0, 0, before, 0);
    expect_numbers("attached", 1, 0, 13 * MIB + 1, 0);
    for (int i = 0; i < 4; i++)
        later[i] = program_alloc(((size_t)i + 1) * 3 * MIB);
    CUdeviceptr pool_later = pool_alloc(2 * MIB), mapped_later = mapped_alloc(0, 3 * STEP),
                managed = managed_alloc(MIB);
    int64_t now = 30 * MIB + 2 * MIB + 3 * STEP;
    expect_numbers("allocated", 0, now, before, 0);
    CHECK(cuMemFree(linear[2]));
    CHECK(cuMemFree(later[1]));
    CHECK(cuMemFreeAsync(pooled, NULL));
    CHECK(cuMemFreeAsync(pool_later, NULL));
    before -= 3 * MIB + 700 + 3 * MIB;
    now -= 6 * MIB + 2 * MIB;
    expect_numbers("freed", 0, now, before, 0);
    mapped_free(mapped, 4 * STEP);
    mapped_free(mapped_later, 3 * STEP);
    CHECK(cuMemFree(managed));
    before -= 4 * STEP;
    now -= 3 * STEP;
    expect_numbers("unmapped", 0, now, before, 0);
    CHECK(cuCtxDestroy(second));
    before -= 11 * MIB;
    expect_numbers("context destroyed", 0, now, before, 0);
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuMemFree(foreign));
    program_alloc(9 * MIB);
    expect_numbers("the other device", 1, 9 * MIB, 0, 0);
    CHECK(cuCtxSetCurrent(first));
    REPORT("attach again", attach_on(""));
    REPORT("detach", attach_off(NULL, 0));
    for (int i = 0; i < 100 && attach_threads(); i++)
        usleep(10000);
    expect("threads", attach_threads(), 0);
    expect("session", attach_session(), -1);
    REPORT("attach", attach_on(""));
    expect_numbers("the second time", 0, 0, before + now, 0);
    CHECK(cuMemFree(later[0]));
    expect_numbers("the second time, freed", 0, 0, before + now - 3 * MIB, 0);
    REPORT("detach", attach_off(NULL, 0));
    printf("mixed done\n");
    return finish();
}

/* ---- slots of a framework -------------------------------------------------------------------------------------------- */

#define SLOTS 512

static struct {
    uint64_t *at;
    char access[5];
} slots[SLOTS];
static unsigned slot_count;

static void slot_access(const void *at, char access[5])
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    strcpy(access, "none");
    while (maps && fgets(line, sizeof(line), maps))
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)at >= from && (uintptr_t)at < to)
            sscanf(line, "%*s %4s", access);
    if (maps)
        fclose(maps);
}

/* Notes every slot of the object, for functions and for data, and every word of a table that the loader has written. */
static int slots_note(struct dl_phdr_info *info, size_t size, void *arg)
{
    const ElfW(Dyn) *dynamic = NULL;
    uint64_t tables[2] = {0, 0}, bytes[2] = {0, 0};
    (void)size;
    if (!strstr(info->dlpi_name, (const char *)arg))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        tables[0] = dynamic->d_tag == DT_JMPREL ? dynamic->d_un.d_ptr : tables[0];
        bytes[0] = dynamic->d_tag == DT_PLTRELSZ ? dynamic->d_un.d_val : bytes[0];
        tables[1] = dynamic->d_tag == DT_RELA ? dynamic->d_un.d_ptr : tables[1];
        bytes[1] = dynamic->d_tag == DT_RELASZ ? dynamic->d_un.d_val : bytes[1];
    }
    for (int t = 0; t < 2; t++)
        for (uint64_t i = 0; i < bytes[t] / sizeof(ElfW(Rela)) && slot_count < SLOTS; i++) {
            const ElfW(Rela) *rela = (const ElfW(Rela) *)tables[t] + i;
            slots[slot_count].at = (uint64_t *)(info->dlpi_addr + rela->r_offset);
            slot_access(slots[slot_count].at, slots[slot_count].access);
            slot_count++;
        }
    return 1;
}

/* A slot that had not been bound may be bound now. */
static int slot_is_ours(uint64_t value)
{
    Dl_info info;
    return dladdr((void *)value, &info) && info.dli_fname && strstr(info.dli_fname, "libgpuprof.so") != NULL;
}

static unsigned slots_changed(void)
{
    unsigned changed = 0;
    for (unsigned i = 0; i < slot_count; i++) {
        char access[5];
        slot_access(slots[i].at, access);
        changed += slot_is_ours(*slots[i].at) || strcmp(access, slots[i].access) != 0;
    }
    return changed;
}

static int framework_slots(const char *folder)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/libc10_cuda.so", folder);
    void *torch = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    snprintf(path, sizeof(path), "%s/libtorch_cuda.so", folder);
    dlopen(path, RTLD_NOW | RTLD_LOCAL); /* in some folders: names the functions of a table of libc10_cuda */
    void *(*alloc)(int, size_t) = NULL;
    void (*give)(int, void *) = NULL;
    if (torch) {
        *(void **)&alloc = dlsym(torch, "torch_alloc");
        *(void **)&give = dlsym(torch, "torch_free");
    }
    if (!alloc || !give)
        return 2;
    for (size_t i = 3; i < 12; i += 2) /* binds every slot that is used below */
        give(0, alloc(0, i * MIB));
    void *kept = alloc(0, 5 * MIB);
    dl_iterate_phdr(slots_note, (void *)"libc10_cuda");
    for (int i = 0; i < 3; i++) {
        REPORT("attach", attach_on(""));
        printf("slots: %s\n", slots_changed() ? "changed" : "as before");
        give(0, kept);
        kept = alloc(0, 7 * MIB);
        REPORT("detach", attach_off(NULL, 0));
        printf("slots: %s\n", slots_changed() ? "changed" : "as before");
        give(0, kept);
        kept = alloc(0, 9 * MIB);
    }
    return finish();
}

/* ---- cycles ------------------------------------------------------------------------------------------------------- */

static int x_stop;
static uint64_t x_calls;

static void busy(unsigned number)
{
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        CUdeviceptr pointers[4];
        for (unsigned i = 0; i < 4; i++)
            pointers[i] = program_alloc((number + 1) * 4096 * (i + 1));
        for (unsigned i = 0; i < 4; i++)
            CHECK(cuMemFree(pointers[i]));
        __atomic_fetch_add(&x_calls, 8, __ATOMIC_RELAXED);
        usleep(200); /* the library's threads must get a turn on a machine with few processors */
    }
}

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Kilobytes of memory and address space in use, from /proc/self/statm. */
static long resident(void)
{
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4;
}

/* The library's thread ends a little after a detach, and the memory of the session with it. */
static void attach_settle(void)
{
    for (int i = 0; i < 1000 && attach_threads(); i++)
        usleep(10000);
}

static int cycles(int count)
{
    struct thread_arg threads[THREADS];
    int bad = 0, descriptors_before = 0;
    long first = 0;
    CUdeviceptr keep = program_alloc(MIB);
    threads_start(threads, THREADS, busy);
    for (int i = 0; i < count; i++) {
        struct gp_wire_device last;
        if (i == 10) {
            attach_settle();
            first = resident();
            descriptors_before = descriptors();
        }
        int on = attach_on("");
        for (int again = 0; on == -EBUSY && again < 50; again++) {
            fprintf(stderr, "cycle %d: busy (%s)\n", i, attach_state->text);
            usleep(100000);
            on = attach_on("");
        }
        int off = on ? -1 : attach_off(&last, 0);
        if (on || off) {
            printf("cycle %d: attach %d (%s), detach %d\n", i, on, attach_state->text, off);
            bad++;
            break;
        }
    }
    attach_settle();
    long grown = resident() - first;
    int more = descriptors() - descriptors_before;
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    threads_join(threads, THREADS);
    printf("threads of gpuprof: %d\n", attach_threads());
    if (count > 10) {
        printf("descriptors: %d more\n", more);
        fprintf(stderr, "%ld KiB more\n", grown); /* the simulated CUPTI keeps 7 KiB of each subscription */
        if (grown < 4096 + count * 16)
            printf("memory: not grown\n");
        else
            printf("memory: grown by %ld KiB\n", grown);
    }
    fprintf(stderr, "%llu calls\n", (unsigned long long)x_calls);
    CHECK(cuMemFree(keep));
    printf("cycles: %s\n", bad ? "failed" : "done");
    return finish() || bad;
}

/* The library's mapping of its session. */
static char *session_map(size_t *bytes)
{
    char line[512];
    unsigned long from = 0, to = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    *bytes = 0;
    while (maps && *bytes == 0 && fgets(line, sizeof(line), maps))
        if (strstr(line, "memfd:" GP_WIRE_SESSION_NAME) && sscanf(line, "%lx-%lx", &from, &to) == 2)
            *bytes = to - from;
    if (maps)
        fclose(maps);
    return (char *)(*bytes ? from : 0);
}

static int again(void)
{
    size_t bytes = 0, left = 0, wrong = 0;
    REPORT("attach", attach_on(""));
    char *at = session_map(&bytes);
    REPORT("detach", attach_off(NULL, 0));
    for (int i = 0; i < 1000 && (attach_threads() || session_map(&left)); i++)
        usleep(10000);
    char *own = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (!at || own != at) {
        printf("the place of the session is not free: %p\n", (void *)own);
        return 1;
    }
    memset(own, 0x5a, bytes);
    REPORT("attach again", attach_on(""));
    REPORT("detach again", attach_off(NULL, 0));
    for (size_t i = 0; i < bytes; i += 4096)
        wrong += own[i] != 0x5a; /* a page that was unmapped ends the program here */
    printf("pages changed: %zu\n", wrong);
    return finish() || wrong;
}

/* Allocates for some seconds under an attached gpuprof, for a viewer. */
static int live(int seconds)
{
    double end = attach_seconds() + seconds;
    for (int i = 0; i < 4; i++)
        program_alloc(16 * MIB);
    REPORT("attach", attach_on("GPUPROF_STACKS=native"));
    while (attach_seconds() < end) {
        CUdeviceptr block = program_alloc(MIB);
        usleep(1000);
        CHECK(cuMemFree(block));
    }
    REPORT("detach", attach_off(NULL, 0));
    return finish();
}

int main(int argc, char **argv)
{
    program_start();
    if (argc < 3 || attach_load(argv[2]) != 0)
        return 2;
    if (strcmp(argv[1], "hold") == 0)
        return hold();
    if (strcmp(argv[1], "live") == 0)
        return live(argc > 3 ? atoi(argv[3]) : 5);
    if (strcmp(argv[1], "mixed") == 0)
        return mixed();
    if (strcmp(argv[1], "again") == 0)
        return again();
    if (argc > 3 && strcmp(argv[1], "slots") == 0)
        return framework_slots(argv[3]);
    if (strcmp(argv[1], "cycles") == 0)
        return cycles(argc > 3 ? atoi(argv[3]) : 10);
    return 2;
}
