/* SPDX-License-Identifier: MIT
 *
 * wait.c: `gpuprof wait`: starts a program when a GPU has the memory that it needs.  The command stays
 * the program's parent: it watches how much of its reservation the program has allocated, and passes
 * signals on.  docs/forecast.md has the rules.  Called by commands.c.
 */
#include <base/clock.h>
#include <cmd/cmd.h>
#include <errno.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <show/text/write.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* NVML takes some milliseconds, and a driver without a program in it some hundred. */
#define GP_WAIT_POLL_NS 250000000ull
/* Pause while another command decides. */
#define GP_WAIT_BUSY_NS 10000000ull
/* Longer than a new file takes to be complete (gp_reserve_is_new): until then nothing was tried. */
#define GP_WAIT_FIRST_NS 2000000000ull
/* Decisions take less than a second. */
#define GP_WAIT_STUCK_NS 10000000000ull

struct gp_wait_options {
    struct gp_launch launch;
    int64_t need;
    const char *device, *folder;
    uint64_t timeout_ns, hold_ns; /* timeout UINT64_MAX: none */
    struct gp_target target;      /* --device */
};

struct gp_wait {
    const struct gp_wait_options *options;
    struct gp_reserve reserve;
    struct gp_nvml_gpu *gpus; /* the last answer */
    int gpu_count;
    char uuid[48]; /* of the chosen device */
    bool host_pids;
};

static int wait_seconds(void *options, const struct gp_command_option *option, const char *text)
{
    uint64_t *ns = (uint64_t *)((char *)options + option->offset);
    char unit[64];
    /* A number alone is seconds. */
    snprintf(unit, sizeof(unit), "%ss", text);
    if (gp_parse_duration(text, ns) == 0 || gp_parse_duration(unit, ns) == 0)
        return GP_EXIT_OK;
    return gp_usage_error("wait", "--%s %s: not a time (like 90, 2.5s or 10min)", option->name, text);
}

static int wait_device(void *options, const struct gp_command_option *option, const char *text)
{
    struct gp_wait_options *o = options;
    int64_t number;
    (void)option;
    if (strcasecmp(text, "any") == 0)
        o->target.device = -1;
    else if (gp_parse_number(text, 0, INT_MAX, &number) == 0)
        o->target.device = (int)number;
    else
        return gp_usage_error("wait", "--device %s: neither a number of nvidia-smi nor 'any'", text);
    return GP_EXIT_OK;
}

static int wait_check(void *options)
{
    const struct gp_wait_options *o = options;
    if (o->need <= 0)
        return gp_usage_error("wait", "--need SIZE is missing: how much GPU memory the program needs");
    if (!o->launch.argv || !o->launch.argv[0])
        return gp_usage_error("wait", "no program given");
    return GP_EXIT_OK;
}

/* Looks for the program now, because a mistyped name should not be found after hours.
 * GP_EXIT_OK, or 126 or 127 after a message. */
static int wait_program(const char *name)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    int error = ENOENT;
    if (strchr(name, '/')) {
        error = access(name, X_OK) == 0 ? 0 : errno;
    } else {
        for (path = path ? path : "/bin:/usr/bin"; error; path++) {
            size_t length = strcspn(path, ":");
            snprintf(file, sizeof(file), "%.*s%s%s", (int)length, path, length ? "/" : "./", name);
            if (access(file, X_OK) == 0)
                error = 0;
            else if (access(file, F_OK) == 0)
                error = EACCES;
            path += length;
            if (!*path)
                break;
        }
    }
    if (!error)
        return GP_EXIT_OK;
    gp_error("wait", "%s: %s", name, strerror(error));
    return error == ENOENT ? GP_EXIT_NOT_FOUND : GP_EXIT_CANNOT_RUN;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static int wait_read(struct gp_wait *wait)
{
    char problem[GP_NVML_PROBLEM_BYTES];
    gp_nvml_free(wait->gpus, wait->gpu_count);
    wait->gpus = NULL;
    wait->gpu_count = 0;
    int rc = gp_nvml_read(&wait->gpus, &wait->gpu_count, problem);
    if (rc == 0)
        return GP_EXIT_OK;
    gp_error("wait", "how much memory is free is not known: %s", rc == -ENOMEM ? "out of memory" : problem);
    return rc == -ENOMEM ? GP_EXIT_FAILED : GP_EXIT_IMPOSSIBLE;
}

/* CUDA_VISIBLE_DEVICES names the devices that the program may use: UUIDs or the start of one, or numbers.
 * The list ends at the first wrong entry, as in the driver. */
static bool wait_visible(const struct gp_wait *wait, int index)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    const struct gp_nvml_gpu *gpu = &wait->gpus[index];
    while (list && *list) {
        size_t length = strcspn(list, ",");
        char *end;
        long number = strtol(list, &end, 10);
        if (end == list + length && length) {
            if (number == index)
                return true;
            if (number < 0 || number >= wait->gpu_count)
                return false;
        } else if (length >= 4 && strncasecmp(list, gpu->uuid, length) == 0) {
            return true;
        }
        list += length;
        list += *list == ',';
    }
    return !list || !getenv("CUDA_VISIBLE_DEVICES");
}

static bool wait_wanted(const struct gp_wait *wait, int index)
{
    int device = wait->options->target.device;
    const struct gp_nvml_gpu *gpu = &wait->gpus[index];
    return gpu->uuid[0] && gpu->used_bytes >= 0 && gpu->total_bytes > 0 &&
           (device < 0 ? wait_visible(wait, index) : device == index);
}

/* What is free and not reserved on a device. */
static int64_t wait_free(struct gp_wait *wait, int index)
{
    const struct gp_nvml_gpu *gpu = &wait->gpus[index];
    int64_t outstanding = gp_reserve_outstanding(&wait->reserve, gpu->uuid);
    int64_t left = gpu->total_bytes - gpu->used_bytes;
    return left > outstanding ? left - outstanding : 0;
}

/* The device that the program gets: with "any" the fullest one that has enough, so that large requests
 * find an empty one.  -1: none has.  *most: the largest of these devices. */
static int wait_choose(struct gp_wait *wait, int64_t *most)
{
    int best = -1;
    int64_t best_free = 0;
    *most = -1;
    for (int i = 0; i < wait->gpu_count; i++) {
        if (!wait_wanted(wait, i))
            continue;
        *most = wait->gpus[i].total_bytes > *most ? wait->gpus[i].total_bytes : *most;
        int64_t left = wait_free(wait, i);
        if (left >= wait->options->need && (best < 0 || left < best_free)) {
            best = i;
            best_free = left;
        }
    }
    return best;
}

static void wait_say(struct gp_wait *wait)
{
    char need[GP_SIZE_TEXT], left[GP_SIZE_TEXT], kept[GP_SIZE_TEXT];
    gp_error("wait", "waiting for %s", gp_size_text(need, wait->options->need));
    for (int i = 0; i < wait->gpu_count; i++) {
        const struct gp_nvml_gpu *gpu = &wait->gpus[i];
        if (wait_wanted(wait, i))
            gp_error("wait", "device %d: %s free, %s of it reserved by others that wait or have just started", i,
                     gp_size_text(left, gpu->total_bytes - gpu->used_bytes),
                     gp_size_text(kept, gp_reserve_outstanding(&wait->reserve, gpu->uuid)));
    }
}

/* Reads the devices and reserves memory on one.  The lock is held from before the reading, so no other waiter
 * decides from the same free bytes.  *chosen: its index, -1 none.  GP_EXIT_OK, or an exit status after
 * a message. */
static int wait_decide(struct gp_wait *wait, bool say, int *chosen)
{
    int64_t most;
    char need[GP_SIZE_TEXT], size[GP_SIZE_TEXT];
    int rc = wait_read(wait);
    *chosen = -1;
    if (rc)
        return rc;
    *chosen = wait_choose(wait, &most);
    if (most < 0) {
        gp_error("wait", "no such device: NVML reports %d", wait->gpu_count);
        return GP_EXIT_IMPOSSIBLE;
    }
    if (wait->options->need > most) {
        gp_error("wait", "%s: no device has so much: the largest has %s", gp_size_text(need, wait->options->need),
                 gp_size_text(size, most));
        return GP_EXIT_IMPOSSIBLE;
    }
    if (*chosen < 0) {
        if (say)
            wait_say(wait);
        return GP_EXIT_OK;
    }
    snprintf(wait->uuid, sizeof(wait->uuid), "%s", wait->gpus[*chosen].uuid);
    rc = gp_reserve_take(&wait->reserve, wait->uuid, wait->options->need, wait->options->hold_ns);
    if (rc == 0)
        return GP_EXIT_OK;
    gp_error("wait", "%s: cannot reserve: %s", wait->reserve.path,
             rc == -ENOSPC ? "too many reservations" : strerror(-rc));
    return GP_EXIT_FAILED;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* What the program and its descendants have on the device.  0 in a container, whose pids NVML does not
 * know: then the reservation ends after --hold. */
static int64_t wait_had(const struct gp_wait *wait, pid_t pid)
{
    int64_t sum = 0;
    for (int i = 0; wait->host_pids && i < wait->gpu_count; i++) {
        const struct gp_nvml_gpu *gpu = &wait->gpus[i];
        for (int k = 0; strcmp(gpu->uuid, wait->uuid) == 0 && k < gpu->process_count; k++) {
            if (gpu->processes[k].bytes > 0 && gp_reserve_descends((pid_t)gpu->processes[k].pid, pid))
                sum += gpu->processes[k].bytes;
        }
    }
    return sum;
}

static void wait_follow(struct gp_wait *wait, struct gp_child *child)
{
    char problem[GP_NVML_PROBLEM_BYTES];
    bool reserved = true, first = true;
    uint64_t next = gp_clock_ns();
    while (!child->ended) {
        if (reserved && gp_clock_ns() >= next) {
            /* Read before the lock: a command that decides later sees at least these bytes. */
            gp_nvml_free(wait->gpus, wait->gpu_count);
            wait->gpus = NULL;
            wait->gpu_count = 0;
            if (!first)
                gp_nvml_read(&wait->gpus, &wait->gpu_count, problem);
            bool locked = gp_reserve_lock(&wait->reserve);
            if (locked)
                reserved = gp_reserve_update(&wait->reserve, child->pid, wait_had(wait, child->pid));
            if (locked)
                gp_reserve_unlock(&wait->reserve);
            first = first && !locked; /* the first update tells the pid, and must not wait for NVML */
            next = gp_clock_ns() + (locked ? GP_WAIT_POLL_NS : GP_WAIT_BUSY_NS);
        }
        gp_launch_child_wait(child, reserved ? (first ? GP_WAIT_BUSY_NS : GP_WAIT_POLL_NS) : 3600000000000ull);
    }
}

static int wait_start(struct gp_wait *wait)
{
    struct gp_child child;
    /* The program cannot know which device has the memory. */
    if (wait->options->target.device < 0 && setenv("CUDA_VISIBLE_DEVICES", wait->uuid, 1) != 0)
        return GP_EXIT_FAILED;
    int rc = gp_launch_child_start(&child, &wait->options->launch);
    if (rc) {
        gp_error("wait", "cannot start a process: %s", strerror(-rc));
        return GP_EXIT_FAILED;
    }
    wait_follow(wait, &child);
    return child.status;
}

/* The lock, once the file has the reservations of all. *since: since when it is not free. */
static bool wait_lock(struct gp_wait *wait, uint64_t *since)
{
    bool locked = gp_reserve_lock(&wait->reserve);
    if (locked) {
        *since = gp_clock_ns();
    } else if (*since != UINT64_MAX && gp_clock_ns() - *since > GP_WAIT_STUCK_NS) {
        gp_error("wait", "%s: another 'gpuprof wait' has had the lock for %llu s: it may be stopped, and has to go on",
                 wait->reserve.path, GP_WAIT_STUCK_NS / 1000000000);
        *since = UINT64_MAX; /* reported once */
    }
    if (locked && gp_reserve_is_new(&wait->reserve)) {
        gp_reserve_unlock(&wait->reserve);
        locked = false;
    }
    return locked;
}

static int wait_until(struct gp_wait *wait)
{
    uint64_t begin = gp_clock_ns(), since = begin;
    int chosen = -1;
    bool said = false;
    for (;;) {
        bool locked = wait_lock(wait, &since);
        if (locked) {
            int rc = wait_decide(wait, !said, &chosen);
            gp_reserve_unlock(&wait->reserve);
            said = true;
            if (rc || chosen >= 0)
                return rc ? rc : wait_start(wait);
        }
        uint64_t waited = gp_clock_ns() - begin, pause = locked ? GP_WAIT_POLL_NS : GP_WAIT_BUSY_NS;
        if (waited >= wait->options->timeout_ns && (said || waited - wait->options->timeout_ns > GP_WAIT_FIRST_NS)) {
            char need[GP_SIZE_TEXT];
            gp_error("wait", "timed out: %s were not free at one time, so the program was not started",
                     gp_size_text(need, wait->options->need));
            return GP_EXIT_TIMEOUT;
        }
        if (wait->options->timeout_ns - waited < pause && waited < wait->options->timeout_ns)
            pause = wait->options->timeout_ns - waited;
        struct timespec time = {(time_t)(pause / 1000000000u), (long)(pause % 1000000000u)};
        nanosleep(&time, NULL);
    }
}

static int wait_run(void *options)
{
    struct gp_wait_options *o = options;
    struct gp_wait wait = {.options = o, .host_pids = gp_proc_host_pids()};
    int rc = wait_program(o->launch.argv[0]);
    if (rc)
        return rc;
    rc = gp_reserve_open(&wait.reserve, o->folder);
    if (rc) {
        gp_error("wait", "%s: %s", wait.reserve.path, rc == -EPERM ? "it belongs to another user" : strerror(-rc));
        return GP_EXIT_FAILED;
    }
    rc = wait_until(&wait);
    gp_reserve_close(&wait.reserve);
    gp_nvml_free(wait.gpus, wait.gpu_count);
    return rc;
}

static const struct gp_command_option wait_options[] = {
    GP_OPTION(struct gp_wait_options, need, 0, "need", "SIZE", GP_ARG_SIZE,
              "how much memory CMD needs on one device, as nvidia-smi counts it: with its context", .low = 1),
    {.name = "device",
     .argument = "N",
     .type = GP_ARG_TEXT,
     .parse = wait_device,
     .help =
         "the number of the device in nvidia-smi, or 'any' (default): then CUDA_VISIBLE_DEVICES tells CMD which one"},
    GP_OPTION(struct gp_wait_options, timeout_ns, 0, "timeout", "SECS", GP_ARG_TEXT,
              "give up after this time, with exit status 75 (default: never); 0 tries once", .parse = wait_seconds),
    GP_OPTION(
        struct gp_wait_options, hold_ns, 0, "hold", "SECS", GP_ARG_TEXT,
        "the reservation ends this long after the start, even if CMD has not allocated the memory (default 10min)",
        .parse = wait_seconds),
    GP_OPTION(struct gp_wait_options, folder, 0, "reservations", "DIR", GP_ARG_FILE,
              "share reservations with all commands that name the same folder (default: with your own)"),
    {0}};

static const struct gp_command_option wait_operands[] = {
    GP_OPERAND(struct gp_wait_options, launch.argv, "CMD", GP_ARG_PROGRAM, "the program and its arguments"), {0}};

const struct gp_command_spec gp_command_wait = {
    .name = "wait",
    .summary = "start a program when the GPU memory that it needs is free",
    .group = GP_GROUP_MACHINE,
    .usage = GP_LIST("--need=SIZE [--device=N|any] [--timeout=SECS] [--hold=SECS] [--reservations=DIR] -- CMD..."),
    .about = GP_LIST(
        "Waits until a device has SIZE of free memory, reserves it, and starts CMD. Two commands never take the "
        "same bytes: what one has reserved and its program has not allocated yet is not free for the others.",
        "A reservation ends when CMD and its descendants have allocated SIZE, when CMD has ended, or after "
        "'--hold'. CMD is not profiled: use 'gpuprof wait ... -- gpuprof run CMD' for that.",
        "The exit status is that of CMD: 128 + N if signal N killed it, 126 if it could not be run, 127 if it "
        "was not found. It is 75 if the time has passed and CMD was not started, and 77 if free memory is not "
        "known or no device is large enough. Signals are forwarded to CMD."),
    .details =
        GP_LIST("Free memory is what NVML reports. Reservations are records in a file in /run/lock/gpuprof-UID, or, if "
                "that folder cannot be used, in /run/user/UID/gpuprof or /tmp/gpuprof-UID. The kernel ends the "
                "reservation of a command that is killed before CMD has started. Of several devices the fullest one "
                "that has enough is chosen."),
    .options = wait_options,
    .operands = wait_operands,
    .examples = GP_EXAMPLES({"gpuprof wait --need 12GiB -- python train.py", "Start when any device has 12 GiB."},
                            {"gpuprof wait --need 40GiB --device 1 --timeout 3600 -- gpuprof run python train.py",
                             "Wait an hour at most for device 1, and profile the program."}),
    GP_DEFAULTS(struct gp_wait_options, .timeout_ns = UINT64_MAX, .hold_ns = 600000000000ull,
                .target = GP_TARGET_INIT("wait"), .launch = {.command = "wait", .limit = -1}),
    .operand_ends = true,
    .check = wait_check,
    .run = wait_run,
};
