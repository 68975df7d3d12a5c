/* SPDX-License-Identifier: MIT
 * checks.c: see checks.h.  Checks the requirements of `gpuprof agent` and `gpuprof top --system`. It
 * changes nothing and loads no BPF program.
 */
#include <cmd/checks.h>

#include <agent/maps/maps.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define GP_BPF_FS 0xcafe4a11 /* BPF_FS_MAGIC, linux/magic.h */

/* Reads the first line of a small file.  False: the file cannot be read. */
static bool checks_line(const char *path, char *line, int line_bytes)
{
    FILE *file = fopen(path, "re");
    line[0] = '\0';
    if (!file)
        return false;
    bool read = fgets(line, line_bytes, file) != NULL;
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return read;
}

/* The BPF programs need 5.15.  From 6.6 on one link serves many processes, without
 * CAP_SYS_ADMIN; returns that. */
static bool checks_kernel(struct gp_doctor *doctor)
{
    struct utsname name = {0};
    int major = 0, minor = 0;
    uname(&name);
    bool known = sscanf(name.release, "%d.%d", &major, &minor) == 2;
    bool many = major > 6 || (major == 6 && minor >= 6), enough = many || major == 6 || (major == 5 && minor >= 15);
    if (!known || !enough)
        gp_check(doctor, "bpf", GP_NO, "use Linux 5.15 or later", "%s is too old for the agent's BPF programs",
                 name.release);
    else
        gp_check(doctor, "bpf", GP_OK, NULL, "%s: the agent's BPF programs can run%s", name.release,
                 many ? ", with only CAP_BPF and CAP_PERFMON" : "; before 6.6 the agent needs CAP_SYS_ADMIN");
    return many;
}

static void checks_btf(struct gp_doctor *doctor)
{
    if (access("/sys/kernel/btf/vmlinux", R_OK) == 0)
        gp_check(doctor, "btf", GP_OK, NULL, "/sys/kernel/btf/vmlinux");
    else
        gp_check(doctor, "btf", GP_NO,
                 "use a kernel with CONFIG_DEBUG_INFO_BTF (the kernels of all large distributions have it)",
                 "/sys/kernel/btf/vmlinux: %s: the agent cannot adapt its BPF programs to this kernel",
                 strerror(errno));
}

static void checks_bpffs(struct gp_doctor *doctor)
{
    struct statfs fs;
    if (statfs("/sys/fs/bpf", &fs) == 0 && (unsigned long)fs.f_type == GP_BPF_FS)
        gp_check(doctor, "bpffs", GP_OK, NULL, "mounted on /sys/fs/bpf");
    else
        gp_check(doctor, "bpffs", GP_NO, "mount -t bpf bpf /sys/fs/bpf (as root; systemd does it at boot)",
                 "no BPF file system on /sys/fs/bpf; the agent mounts one if it has CAP_SYS_ADMIN");
}

static void checks_sysctls(struct gp_doctor *doctor)
{
    char line[128];
    if (checks_line("/proc/sys/kernel/perf_event_paranoid", line, sizeof(line)))
        gp_check(doctor, "perf", GP_OK, NULL, "kernel.perf_event_paranoid is %s: %s", line,
                 "it limits users without privileges, and the agent has them");
    else
        gp_check(doctor, "perf", GP_NO, "use a kernel with CONFIG_PERF_EVENTS",
                 "kernel.perf_event_paranoid cannot be read: there are no probes before kernel 6.6");
    if (!checks_line("/proc/sys/kernel/unprivileged_bpf_disabled", line, sizeof(line)))
        gp_check(doctor, "users", GP_UNSURE, NULL, "kernel.unprivileged_bpf_disabled cannot be read");
    else
        gp_check(doctor, "users", GP_OK, NULL, "kernel.unprivileged_bpf_disabled is %s%s", line,
                 line[0] == '0' ? "" : ": before kernel 5.19, 'top --system' needs CAP_BPF");
}

/* "none [integrity] confidentiality": brackets mark the active mode. */
static void checks_lockdown(struct gp_doctor *doctor)
{
    char line[128];
    if (!checks_line("/sys/kernel/security/lockdown", line, sizeof(line)))
        gp_check(doctor, "lockdown", GP_UNSURE, NULL, "/sys/kernel/security/lockdown cannot be read: %s",
                 strerror(errno));
    else if (strstr(line, "[confidentiality]"))
        gp_check(doctor, "lockdown", GP_NO, "boot with lockdown=integrity, or without lockdown",
                 "confidentiality: BPF programs may not read the memory of processes");
    else
        gp_check(doctor, "lockdown", GP_OK, NULL, "%s", line);
}

static uint64_t checks_capabilities(void)
{
    char line[256];
    unsigned long long mask = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "CapEff: %llx", &mask) == 1)
            break;
    }
    if (file)
        fclose(file);
    return mask;
}

static void checks_rights(struct gp_doctor *doctor, bool many)
{
    static const struct {
        int bit; /* linux/capability.h */
        const char *name, *what;
    } needed[] = {{39, "CAP_BPF", "maps and programs"},
                  {38, "CAP_PERFMON", "probes"},
                  {19, "CAP_SYS_PTRACE", "libraries in containers"},
                  {2, "CAP_DAC_READ_SEARCH", "libraries in containers"}};
    const uint64_t admin = 1ull << 21, mask = checks_capabilities();
    char missing[256] = "";
    for (size_t i = 0; i < GP_COUNT(needed); i++) {
        size_t used = strlen(missing);
        bool covered = i < 2 && (mask & admin);
        if (!covered && !(mask >> needed[i].bit & 1))
            snprintf(missing + used, sizeof(missing) - used, "%s%s (%s)", used ? ", " : "", needed[i].name,
                     needed[i].what);
    }
    if (!many && !(mask & admin)) {
        size_t used = strlen(missing);
        snprintf(missing + used, sizeof(missing) - used, "%sCAP_SYS_ADMIN (probes before 6.6)", used ? ", " : "");
    }
    bool may_open = mask & (admin | 1ull << 40);
    if (missing[0])
        gp_check(doctor, "rights", GP_NO, "run the agent as root, or as its systemd unit does",
                 "this user cannot run the agent, for lack of %s", missing);
    else
        gp_check(doctor, "rights", GP_OK, NULL, "this user may run the agent%s",
                 may_open ? "" : "; without CAP_CHECKPOINT_RESTORE it does not find libraries whose file was deleted");
}

static void checks_agent(struct gp_doctor *doctor)
{
    struct gp_system_view *view;
    char why[GP_SYSTEM_WHY];
    int err = gp_system_view_read(&view, doctor->pins, why, sizeof(why));
    if (err) {
        gp_check(doctor, "agent", err == -EACCES ? GP_UNSURE : GP_NO,
                 "only 'top --system', containers and metrics need it", "%s", why);
        return;
    }
    const struct gp_map_meta *meta = &view->meta;
    if (!view->alive)
        gp_check(doctor, "agent", GP_NO, "start it: gpuprof agent, or systemctl start gpuprof-agent",
                 "no agent is running; its tables in %s are not updated", doctor->pins);
    else
        gp_check(doctor, "agent", GP_OK, NULL, "pid %u: %llu batches, %llu events, %u GPUs, %u containers%s",
                 meta->agent_pid, (unsigned long long)meta->batches, (unsigned long long)meta->events,
                 view->device_count, view->container_count,
                 view->processes_seen ? "" : "; this user may not list the processes of other users");
    if (meta->map_full || meta->refused_batches)
        gp_check(doctor, "tables", GP_NO,
                 "use larger tables (--max-processes, --max-containers), or newer libraries if batches are refused",
                 "%llu updates found their table full, %llu batches were refused", (unsigned long long)meta->map_full,
                 (unsigned long long)meta->refused_batches);
    gp_system_view_free(view);
}

void gp_checks_system(struct gp_doctor *doctor)
{
    bool many = checks_kernel(doctor);
    checks_btf(doctor);
    checks_bpffs(doctor);
    checks_sysctls(doctor);
    checks_lockdown(doctor);
    checks_rights(doctor, many);
    checks_agent(doctor);
}
