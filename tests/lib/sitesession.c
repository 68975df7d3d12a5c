/* SPDX-License-Identifier: MIT
 * sitesession.c: see sitesession.h. */
#include <lib/sitesession.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ROWS    256u
#define FRAMES  4096u
#define STRINGS 65536u
#define UP(_x)  (((_x) + 4095u) & ~(uint64_t)4095u)

int gp_test_sites_make(struct gp_test_session *session, struct gp_test_sites *sites, uint32_t modes)
{
    uint64_t offset = UP(session->bytes), rows = UP(sizeof(struct gp_wire_sites));
    uint64_t frames = UP(rows + ROWS * sizeof(struct gp_wire_site));
    uint64_t strings = UP(frames + FRAMES * sizeof(struct gp_wire_frame)), bytes = strings + STRINGS;
    if (ftruncate(session->fd, (off_t)(offset + bytes)) != 0)
        return -errno;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->fd, (off_t)offset);
    if (map == MAP_FAILED)
        return -errno;
    session->header->total_bytes = offset + bytes;
    session->header->sites_offset = offset;
    session->header->sites_bytes = bytes;
    *sites = (struct gp_test_sites){(void *)map, (void *)(map + rows), (void *)(map + frames), map + strings};
    *sites->head = (struct gp_wire_sites){.row_bytes = sizeof(struct gp_wire_site),
                                          .frame_bytes = sizeof(struct gp_wire_frame),
                                          .row_limit = ROWS,
                                          .frame_limit = FRAMES,
                                          .string_limit = STRINGS,
                                          .modes = modes,
                                          .rows_offset = rows,
                                          .frames_offset = frames,
                                          .strings_offset = strings,
                                          .rows = 1,
                                          .strings = 1};
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) /* rows of 0 have not moved since the peak */
        sites->head->devices[i].peak_seq = 1;
    return 0;
}

uint32_t gp_test_sites_string(struct gp_test_sites *sites, const char *text)
{
    uint32_t at = sites->head->strings;
    if (!text[0])
        return 0;
    strcpy(sites->strings + at, text);
    __atomic_store_n(&sites->head->strings, at + (uint32_t)strlen(text) + 1, __ATOMIC_RELEASE);
    return at;
}

static struct gp_wire_frame *add_frame(struct gp_test_sites *sites, uint32_t type)
{
    struct gp_wire_site *row = &sites->rows[sites->head->rows];
    if (row->frame_count == 0)
        row->first_frame = sites->head->frames;
    struct gp_wire_frame *frame = &sites->frames[row->first_frame + row->frame_count++];
    frame->type = type;
    return frame;
}

void gp_test_sites_python(struct gp_test_sites *sites, const char *function, const char *file, uint32_t line)
{
    struct gp_wire_frame *frame = add_frame(sites, GP_FRAME_PYTHON);
    frame->function = gp_test_sites_string(sites, function);
    frame->file = gp_test_sites_string(sites, file);
    frame->line = line;
}

void gp_test_sites_native(struct gp_test_sites *sites, uint64_t pc)
{
    add_frame(sites, GP_FRAME_NATIVE)->pc = pc;
}

uint32_t gp_test_sites_end(struct gp_test_sites *sites, int device, int kind, int64_t live, int64_t peak)
{
    uint32_t index = sites->head->rows;
    struct gp_wire_site *row = &sites->rows[index];
    __atomic_store_n(&sites->head->frames, (uint32_t)row->first_frame + row->frame_count, __ATOMIC_RELEASE);
    row->device = (uint8_t)device;
    row->kind = (uint8_t)kind;
    row->live_bytes = live;
    row->live_count = 1;
    row->peak_bytes = row->allocated_bytes = peak;
    row->calls = 1;
    sites->head->devices[device].live_bytes += live;
    sites->head->devices[device].peak_bytes += peak;
    __atomic_store_n(&sites->head->rows, index + 1, __ATOMIC_RELEASE);
    return index;
}

static void child(int ready)
{
    struct gp_test_session s;
    struct gp_test_sites sites;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "sites");
    if (gp_test_session_make(&s, 64, false) != 0 ||
        gp_test_sites_make(&s, &sites, GP_SITES_NATIVE | GP_SITES_PYTHON) != 0 ||
        fcntl(s.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        _exit(1);
    gp_test_session_device(&s, 0, "Simulated GPU 0", 1 << 20);
    gp_test_session_publish(&s);
    gp_test_drain_start(&s);
    gp_test_sites_python(&sites, "forward", "/home/someone/model.py", 10);
    gp_test_sites_python(&sites, "<module>", "/home/someone/train.py", 20);
    gp_test_sites_end(&sites, 0, GP_KIND_LINEAR, 300 << 20, 400 << 20);
    gp_test_sites_python(&sites, "keep_inner", "/home/someone/model.py", 42);
    gp_test_sites_end(&sites, 0, GP_KIND_LINEAR, 100 << 20, 100 << 20);
    gp_test_sites_python(&sites, "load\033[31m", "/home/someone/data.py", 7);
    gp_test_sites_end(&sites, (int)GP_WIRE_HOST, GP_KIND_PINNED, 64 << 20, 64 << 20);
    gp_test_sites_native(&sites, (uint64_t)(uintptr_t)gp_test_sites_process + 1);
    gp_test_sites_end(&sites, 0, GP_KIND_POOL, 1 << 20, 2 << 20);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    close(ready);
    for (;;) {
        usleep(50000);
        __atomic_fetch_add(&sites.rows[2].calls, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&sites.rows[2].live_count, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&sites.rows[2].live_bytes, 1 << 16, __ATOMIC_RELAXED);
        __atomic_fetch_add(&sites.rows[2].peak_bytes, 1 << 16, __ATOMIC_RELAXED);
        __atomic_fetch_add(&sites.rows[4].calls, 10, __ATOMIC_RELAXED);
    }
}

pid_t gp_test_sites_process(void)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(ends[1]);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], &byte, 1);
    close(ends[0]);
    return n == 1 ? pid : -1;
}
