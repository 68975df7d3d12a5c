/* SPDX-License-Identifier: MIT
 * test_container.c: tests the names of cgroups, from files as each runtime writes them. */
#include <agent/maps/maps.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define A16  "0123456789abcdef"
#define ID   A16 A16 A16 A16
#define B16  "fedcba9876543210"
#define ID2  B16 B16 B16 B16
#define UID  "11112222-3333-4444-5555-666677778888"
#define UID_ "11112222_3333_4444_5555_666677778888"

static char root[64];

static void begin(void)
{
    snprintf(root, sizeof(root), "/tmp/gpuprof-test-container-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

static void make_folders(const char *path)
{
    char full[PATH_MAX];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    mkdir(full, 0755);
}

static void put(const char *path, const char *text)
{
    char full[PATH_MAX];
    snprintf(full, sizeof(full), "%s", path);
    *strrchr(full, '/') = '\0';
    make_folders(full);
    snprintf(full, sizeof(full), "%s%s", root, path);
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

/* Creates a cgroup of version 2 at this path; returns its number. */
static uint64_t cgroup(const char *path)
{
    char full[PATH_MAX];
    struct stat st;
    put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    snprintf(full, sizeof(full), "/sys/fs/cgroup%s", path);
    make_folders(full);
    snprintf(full, sizeof(full), "%s/sys/fs/cgroup%s", root, path);
    cr_assert_eq(stat(full, &st), 0);
    return st.st_ino;
}

static struct gp_container_name look(uint64_t id, pid_t hint)
{
    struct gp_container_name name;
    memset(&name, 0x5a, sizeof(name));
    cr_assert_eq(gp_container_lookup(root, id, hint, &name), 0);
    return name;
}

static void expect(const struct gp_container_name *name, const char *namespace_, const char *pod, const char *container)
{
    cr_assert_str_eq(name->namespace_, namespace_);
    cr_assert_str_eq(name->pod, pod);
    cr_assert_str_eq(name->container, container);
}

#define KUBE_SYSTEMD                                                                                                   \
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope"
#define KUBE_FS "/kubepods/besteffort/pod" UID "/" ID

TestSuite(container, .init = begin, .fini = end, .timeout = 60);

Test(container, containerd_with_both_cgroup_drivers)
{
    put("/run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json",
        "{\"ociVersion\":\"1.1\",\"annotations\":{\"io.kubernetes.cri.sandbox-name\":\"trainer-0\","
        "\"io.kubernetes.cri.sandbox-namespace\":\"ml\",\"io.kubernetes.cri.container-name\":\"worker\","
        "\"io.kubernetes.cri.container-type\":\"container\"}}");
    struct gp_container_name name = look(cgroup(KUBE_SYSTEMD), 0);
    expect(&name, "ml", "trainer-0", "worker");
    cr_assert_str_eq(name.id, ID);
    cr_assert_str_eq(name.path, KUBE_SYSTEMD);
    name = look(cgroup(KUBE_FS), 0);
    expect(&name, "ml", "trainer-0", "worker");
    name = look(cgroup(KUBE_SYSTEMD "/inner/init.scope"), 0);
    expect(&name, "ml", "trainer-0", "worker");
}

Test(container, k3s_keeps_its_files_elsewhere)
{
    put("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json",
        "{\"annotations\":{\"io.kubernetes.cri.sandbox-name\":\"p\",\"io.kubernetes.cri.sandbox-namespace\":\"n\","
        "\"io.kubernetes.cri.container-name\":\"c\"}}");
    struct gp_container_name name = look(cgroup(KUBE_SYSTEMD), 0);
    expect(&name, "n", "p", "c");
}

Test(container, crio_and_its_monitor)
{
    put("/run/containers/storage/overlay-containers/" ID "/userdata/config.json",
        "{\"annotations\":{\"io.kubernetes.pod.name\":\"infer-7\",\"io.kubernetes.pod.namespace\":\"prod\","
        "\"io.kubernetes.container.name\":\"model\"}}");
    struct gp_container_name name = look(cgroup("/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope"), 0);
    expect(&name, "prod", "infer-7", "model");
    name = look(cgroup("/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope"), 0);
    cr_assert_str_eq(name.id, "", "the monitor counts as the container");
}

Test(container, docker_by_name_and_by_pod)
{
    put("/var/lib/docker/containers/" ID "/config.v2.json",
        "{\"Name\":\"/web-1\",\"Config\":{\"Labels\":{\"a\":\"b\"}}}");
    put("/var/lib/docker/containers/" ID2 "/config.v2.json",
        "{\"Name\":\"/k8s_c_p_n_u_0\",\"Config\":{\"Labels\":{\"io.kubernetes.pod.name\":\"p\","
        "\"io.kubernetes.pod.namespace\":\"n\",\"io.kubernetes.container.name\":\"c\"}}}");
    struct gp_container_name name = look(cgroup("/system.slice/docker-" ID ".scope"), 0);
    expect(&name, "", "", "web-1");
    name = look(cgroup("/docker/" ID2), 0);
    expect(&name, "n", "p", "c");
}

Test(container, podman_of_root)
{
    put("/var/lib/containers/storage/overlay-containers/containers.json",
        "[{\"id\":\"" ID2 "\",\"names\":[\"db\"]},{\"id\":\"" ID "\",\"names\":[\"jupyter\"],\"layer\":\"x\"}]");
    struct gp_container_name name = look(cgroup("/machine.slice/libpod-" ID ".scope/container"), 0);
    expect(&name, "", "", "jupyter");
}

Test(container, the_kubelets_logs_when_there_is_no_bundle)
{
    put("/var/log/containers/other_ns_c-" ID2 ".log", "");
    put("/var/log/containers/rubbish.log", "");
    put("/var/log/containers/train-er-1_team-a_main-gpu-" ID ".log", "");
    struct gp_container_name name = look(cgroup(KUBE_SYSTEMD), 0);
    expect(&name, "team-a", "train-er-1", "main-gpu");
}

Test(container, the_pods_folder_names_only_the_pod)
{
    make_folders("/var/log/pods/team-b_serve-2_" UID);
    struct gp_container_name name = look(cgroup(KUBE_SYSTEMD), 0);
    expect(&name, "team-b", "serve-2", "");
    cr_assert_str_eq(name.id, ID);
}

Test(container, a_systemd_slice_has_a_path_and_no_names)
{
    struct gp_container_name name = look(cgroup("/user.slice/user-1000.slice/session-3.scope"), 0);
    expect(&name, "", "", "");
    cr_assert_str_eq(name.id, "");
    cr_assert_str_eq(name.path, "/user.slice/user-1000.slice/session-3.scope");
}

/* A cluster in a container (kind): the innermost id has no files on this machine, the outer one
 * has. */
Test(container, an_inner_container_without_files_has_the_outer_name)
{
    put("/var/lib/docker/containers/" ID2 "/config.v2.json", "{\"Name\":\"/kind-worker\"}");
    char path[600];
    snprintf(path, sizeof(path), "/docker/%s/kubelet.slice/kubelet%s", ID2, KUBE_SYSTEMD);
    struct gp_container_name name = look(cgroup(path), 0);
    expect(&name, "", "", "kind-worker");
    cr_assert_str_eq(name.id, ID2);
    cr_assert_eq(strncmp(name.path, "...", 3), 0, "a long path does not keep its end: %s", name.path);
    cr_assert_str_eq(name.path + strlen(name.path) - 70, ID ".scope");
}

Test(container, version_1_goes_by_the_process)
{
    put("/proc/77/cgroup", "12:pids:/\n4:memory:/docker/" ID "\n1:name=systemd:/docker/" ID "\n0::/\n");
    put("/proc/78/cgroup", "4:memory:/user.slice\n0::/\n");
    put("/var/lib/docker/containers/" ID "/config.v2.json", "{\"Name\":\"/old\"}");
    struct gp_container_name name = look(0, 77);
    expect(&name, "", "", "old");
    name = look(0, 78);
    cr_assert_str_eq(name.path, "/user.slice");
    cr_assert_eq(gp_container_lookup(root, 0, 79, &name), -ENOENT, "a process that does not exist");
}

/* Creates a cgroup of version 1 at this path; returns its marked number. */
static uint64_t old_cgroup(const char *controller, const char *path, uint64_t mark)
{
    char full[PATH_MAX];
    struct stat st;
    snprintf(full, sizeof(full), "/sys/fs/cgroup/%s/cgroup.procs", controller);
    put(full, "");
    snprintf(full, sizeof(full), "/sys/fs/cgroup/%s%s", controller, path);
    make_folders(full);
    snprintf(full, sizeof(full), "%s/sys/fs/cgroup/%s%s", root, controller, path);
    cr_assert_eq(stat(full, &st), 0);
    return st.st_ino | mark;
}

Test(container, marked_numbers_are_of_version_1)
{
    uint64_t memory = old_cgroup("memory", "/docker/" ID, GP_MAP_CGROUP_V1);
    uint64_t pids = old_cgroup("pids", "/docker/" ID2, GP_MAP_CGROUP_V1_PIDS);
    uint64_t other = old_cgroup("memory", "/docker/other", GP_MAP_CGROUP_V1);
    put("/var/lib/docker/containers/" ID "/config.v2.json", "{\"Name\":\"/old\"}");
    put("/var/lib/docker/containers/" ID2 "/config.v2.json", "{\"Name\":\"/older\"}");
    put("/proc/77/cgroup", "12:cpu,pids:/docker/" ID2 "\n4:hugetlb,memory:/docker/" ID "\n1:name=memory:/x\n0::/\n");
    for (pid_t hint = 0; hint <= 77; hint += 77) {
        struct gp_container_name name = look(memory, hint);
        expect(&name, "", "", "old");
        cr_assert_str_eq(name.id, ID);
        name = look(pids, hint);
        expect(&name, "", "", "older");
        name = look(other, hint);
        cr_assert_str_eq(name.path, "/docker/other", "the hint's cgroup was taken");
    }
    /* Names that only contain the controller's name: the walk answers, never with a wrong path. */
    static const char *const lines[] = {"4:memory2:/docker/other\n",
                                        "4:amemory:/docker/other\n",
                                        "4:x:memory:/docker/other\n",
                                        "memory\n",
                                        "4:memory\n",
                                        "::\n"};
    struct gp_container_name name;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put("/proc/78/cgroup", lines[i]);
        name = look(memory, 78);
        cr_assert_str_eq(name.id, ID);
    }
    static const uint64_t bad[] = {GP_MAP_CGROUP_V1, GP_MAP_CGROUP_V1_PIDS, 2 * GP_MAP_CGROUP_V1 + 7,
                                   4 * GP_MAP_CGROUP_V1 + 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(gp_container_lookup(root, bad[i], 77, &name), -ENOENT, "%zu", i);
    uint64_t absent = memory % GP_MAP_CGROUP_V1 | GP_MAP_CGROUP_V1_PIDS;
    cr_assert_eq(gp_container_lookup(root, absent, 77, &name), -ENOENT, "a number of another hierarchy was found");
    cr_assert_eq(gp_container_lookup(root, memory % GP_MAP_CGROUP_V1, 77, &name), -ENOENT,
                 "found in version 2, which is not mounted");
}

/* A process may have moved, or its pid be another process's: a cgroup's name is never taken from
 * another cgroup. */
Test(container, a_hint_is_used_only_for_its_own_cgroup)
{
    uint64_t here = cgroup("/system.slice/docker-" ID ".scope"), there = cgroup("/system.slice/docker-" ID2 ".scope");
    put("/proc/77/cgroup", "0::/system.slice/docker-" ID ".scope\n");
    struct gp_container_name name = look(here, 77);
    cr_assert_str_eq(name.id, ID);
    name = look(there, 77);
    cr_assert_str_eq(name.id, ID2);
    cr_assert_eq(gp_container_lookup(root, 0x7fffffffffffffull, 77, &name), -ENOENT);
}

Test(container, the_unified_mount_of_a_hybrid_host)
{
    char full[PATH_MAX];
    struct stat st;
    put("/sys/fs/cgroup/unified/cgroup.controllers", "\n");
    make_folders("/sys/fs/cgroup/unified/machine.slice/libpod-" ID ".scope");
    snprintf(full, sizeof(full), "%s/sys/fs/cgroup/unified/machine.slice/libpod-" ID ".scope", root);
    cr_assert_eq(stat(full, &st), 0);
    struct gp_container_name name = look(st.st_ino, 0);
    cr_assert_str_eq(name.id, ID);
    snprintf(full, sizeof(full), "%s/sys/fs/cgroup/unified", root);
    cr_assert_eq(stat(full, &st), 0);
    name = look(st.st_ino, 0);
    cr_assert_str_eq(name.path, "/");
}

/* Malformed documents cause no name, no crash and no wait. */
Test(container, hostile_documents)
{
    static const char place[] = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json";
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "null",
                                        "{\"annotations\":[]}",
                                        "{\"annotations\":{\"a\":1}}",
                                        "{\"annotations\":{\"io.kubernetes.cri.sandbox-name\":7}}",
                                        "\xff\xfe"};
    uint64_t id = cgroup(KUBE_SYSTEMD);
    struct gp_container_name name;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put(place, texts[i]);
        name = look(id, 0);
        expect(&name, "", "", "");
    }
    put(place, "{\"annotations\":{\"io.kubernetes.cri.sandbox-name\":\"a\\\"b\\n\\u0007\xc3\xa9{}\","
               "\"io.kubernetes.cri.sandbox-namespace\":\"..\"}}");
    name = look(id, 0);
    expect(&name, "..", "a_b______", "");
    char full[PATH_MAX], deep[200001];
    snprintf(full, sizeof(full), "%s%s", root, place);
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    put(place, deep);
    name = look(id, 0);
    expect(&name, "", "", "");
    /* A file that is too large, a pipe without a writer, and a symbolic link. */
    cr_assert_eq(truncate(full, 5 << 20), 0);
    name = look(id, 0);
    expect(&name, "", "", "");
    cr_assert(unlink(full) == 0 && mkfifo(full, 0600) == 0);
    name = look(id, 0);
    expect(&name, "", "", "");
    cr_assert(unlink(full) == 0 && symlink("/etc/passwd", full) == 0);
    name = look(id, 0);
    expect(&name, "", "", "");
}

Test(container, names_that_are_too_long_are_cut)
{
    char text[2000], log[300], want[128];
    memset(text, 'x', sizeof(text));
    memset(want, 'x', sizeof(want));
    want[127] = '\0';
    int n = snprintf(text, sizeof(text), "{\"Name\":\"/");
    text[n] = 'x';
    strcpy(text + 900, "\"}");
    put("/var/lib/docker/containers/" ID "/config.v2.json", text);
    struct gp_container_name name = look(cgroup("/docker/" ID), 0);
    expect(&name, "", "", want);
    memset(log, 'y', sizeof(log));
    strcpy(log + 140, "_n_c-" ID2 ".log");
    snprintf(text, sizeof(text), "/var/log/containers/%s", log);
    put(text, "");
    name = look(cgroup("/docker/" ID2), 0);
    expect(&name, "", "", "");
}

/* On this machine: finds a private cgroup by its number, through the kernel or the walk. */
static void real_cgroup(const char *mount, uint64_t mark)
{
    char path[PATH_MAX], want[256];
    struct stat st;
    snprintf(want, sizeof(want), "/gpuprof-test-%d", (int)getpid());
    snprintf(path, sizeof(path), "%s%s", mount, want);
    if (mkdir(path, 0755) != 0)
        cr_skip_test("cannot make a cgroup at %s: %s", mount, strerror(errno));
    int rc = stat(path, &st);
    struct gp_container_name name;
    int found = gp_container_lookup("", st.st_ino | mark, 0, &name);
    rmdir(path);
    cr_assert_eq(rc, 0);
    cr_assert_eq(found, 0);
    cr_assert_str_eq(name.path, want);
    cr_assert_eq(gp_container_lookup("", st.st_ino | mark, 0, &name), -ENOENT, "a removed cgroup was found");
    cr_assert_eq(gp_container_lookup("", 0, getpid(), &name), 0);
}

Test(container, a_real_cgroup)
{
    bool is_unified = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    real_cgroup(is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified", 0);
}

/* Held open, so that the kernel knows the file's name when looked up by number. */
Test(container, a_file_of_a_cgroup_is_not_a_cgroup)
{
    static const char *const files[] = {"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs"};
    struct gp_container_name found;
    struct stat st;
    int tried = 0;
    for (size_t i = 0; i < 2; i++) {
        int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        cr_assert_eq(fstat(fd, &st), 0);
        int rc = gp_container_lookup("", st.st_ino, 0, &found);
        cr_assert_eq(rc, -ENOENT, "%s: %d, '%s'", files[i], rc, found.path);
        close(fd);
        tried++;
    }
    if (!tried)
        cr_skip_test("no cgroups of version 2 here");
}

Test(container, a_real_cgroup_of_version_1)
{
    if (access("/sys/fs/cgroup/memory/cgroup.procs", F_OK) != 0)
        cr_skip_test("memory is not under version 1 here");
    real_cgroup("/sys/fs/cgroup/memory", GP_MAP_CGROUP_V1);
}
