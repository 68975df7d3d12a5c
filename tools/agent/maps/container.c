/* SPDX-License-Identifier: MIT
 *
 * container.c: finds the names of a container from its cgroup's number, reading files only: no API
 * server, no gRPC, no runtime's socket. The metrics and the views call it. It trusts no file: paths
 * and documents are bounded, names are cleaned. docs/metrics.md lists the sources in order.
 */
#include <agent/maps/maps.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_CONTAINER_ID 64 /* hex digits of an id in every runtime */
/* Nested containers: a node of a cluster inside a container is two deep. Deeper nesting gets the
 * outer names. */
#define GP_CONTAINER_IDS 3
/* An OCI config.json has some 10 KiB, Podman's list a few hundred bytes per container: 4 MiB hold
 * 10 000 containers. */
#define GP_CONTAINER_FILE_BYTES (4u << 20)
/* Kubernetes allows 110 pods per node by default and 500 by tuning, each with a handful of logs;
 * cgroups likewise. */
#define GP_CONTAINER_LOGS    16384
#define GP_CONTAINER_CGROUPS 65536
#define GP_CONTAINER_DEPTH   24

struct gp_container_ids { /* the ids in a path, the innermost first */
    unsigned count;
    char id[GP_CONTAINER_IDS][GP_CONTAINER_ID + 1];
    char pod_uid[40]; /* of the innermost "pod..." part, with dashes; "" if there is none */
};

/* Kubernetes, Docker and Podman allow only letters, digits and "._-" in names. */
static void container_clean(char *to, size_t to_bytes, const char *from)
{
    size_t n = 0;
    for (; from && from[n] && n + 1 < to_bytes; n++) {
        unsigned char c = (unsigned char)from[n];
        bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._-", c) != NULL;
        to[n] = plain ? (char)c : '_';
    }
    to[n] = '\0';
}

static bool container_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* ---- the path of a cgroup ---------------------------------------------------------------------------------------- */

/* "podUID" as a part of the path; systemd's driver writes '_' for '-'. */
static void container_pod_uid(struct gp_container_ids *ids, const char *at)
{
    size_t n = 0;
    while (n < sizeof(ids->pod_uid) - 1 && (container_hex(at[n]) || at[n] == '_' || at[n] == '-'))
        n++;
    if (n < 32 || container_hex(at[n]))
        return;
    for (size_t i = 0; i < n; i++)
        ids->pod_uid[i] = at[i] == '_' ? '-' : at[i];
    ids->pod_uid[n] = '\0';
}

static void container_keep(struct gp_container_ids *ids, const char *at)
{
    memmove(ids->id[1], ids->id[0], sizeof(ids->id) - sizeof(ids->id[0]));
    memcpy(ids->id[0], at, GP_CONTAINER_ID);
    ids->id[0][GP_CONTAINER_ID] = '\0';
    if (ids->count < GP_CONTAINER_IDS)
        ids->count++;
}

/* conmon is the monitor of a Podman or CRI-O container, not the container. */
static void container_parse(const char *path, struct gp_container_ids *ids)
{
    memset(ids, 0, sizeof(*ids));
    for (const char *at = path; *at;) {
        if (strncmp(at, "pod", 3) == 0 && (at == path || at[-1] == '/' || at[-1] == '-'))
            container_pod_uid(ids, at + 3);
        size_t run = 0;
        while (container_hex(at[run]))
            run++;
        bool monitor = at - path >= 7 && strncmp(at - 7, "conmon-", 7) == 0;
        if (run == GP_CONTAINER_ID && !monitor)
            container_keep(ids, at);
        at += run ? run : 1;
    }
}

/* Finds where a hierarchy is mounted. controller NULL: version 2, in the usual place or beside
 * version 1. */
static bool container_mount(const char *root, const char *controller, char *mount, size_t mount_bytes)
{
    static const char *const places[] = {"", "/unified"};
    char probe[PATH_MAX];
    for (size_t i = 0; i < 2; i++) {
        if (snprintf(mount, mount_bytes, "%s/sys/fs/cgroup%s%s", root, controller ? "/" : places[i],
                     controller ? controller : "") >= (int)mount_bytes)
            return false;
        if (snprintf(probe, sizeof(probe), "%s/cgroup.%s", mount, controller ? "procs" : "controllers") <
                (int)sizeof(probe) &&
            access(probe, F_OK) == 0)
            return true;
    }
    return false;
}

static bool container_is(const char *mount, const char *path, uint64_t cgroup_id)
{
    char full[PATH_MAX];
    struct stat st;
    if (snprintf(full, sizeof(full), "%s%s", mount, path) >= (int)sizeof(full) || lstat(full, &st) != 0)
        return false;
    return S_ISDIR(st.st_mode) && st.st_ino == cgroup_id;
}

/* Reads /proc/PID/cgroup. Returns the number of bytes or -errno. */
static ssize_t container_of_process(const char *root, pid_t pid, char *text, size_t text_bytes)
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof(name), "%s/proc/%d/cgroup", root, (int)pid) >= (int)sizeof(name))
        return -ENAMETOOLONG;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t n = 0;
    ssize_t got;
    while (n < text_bytes - 1 && (got = read(fd, text + n, text_bytes - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    text[n] = '\0';
    return (ssize_t)n;
}

/* "N:CONTROLLER[,CONTROLLER]...:PATH", or "0::PATH" for version 2: whether the line is the
 * controller's. */
static bool container_line_is(const char *line, const char *controller)
{
    if (!controller)
        return strncmp(line, "0::", 3) == 0;
    size_t length = strlen(controller);
    for (const char *at = strchr(line, ':'); at; at += strcspn(at, ",:")) {
        if (strncmp(++at, controller, length) == 0 && (at[length] == ',' || at[length] == ':'))
            return true;
        if (at[strcspn(at, ",:")] != ',')
            break;
    }
    return false;
}

/* The path of the process's cgroup. With cgroup_id, only if it is exactly that cgroup; without it,
 * the line that names a container, or the longest line. The kernel writes these lines; a process
 * only chooses the names of cgroups delegated to it. */
static bool container_path_of(const char *root, pid_t pid, const char *mount, const char *controller,
                              uint64_t cgroup_id, char out[PATH_MAX])
{
    char text[8192], *save = NULL;
    if (container_of_process(root, pid, text, sizeof(text)) <= 0)
        return false;
    const char *best = NULL;
    bool best_named = false;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *path = strchr(line, ':');
        path = path ? strchr(path + 1, ':') : NULL;
        if (!path || path[1] != '/')
            continue;
        path++;
        if (cgroup_id) {
            if (container_line_is(line, controller) && mount && container_is(mount, path, cgroup_id))
                best = path;
            continue;
        }
        struct gp_container_ids ids;
        container_parse(path, &ids);
        bool named = ids.count > 0;
        if (!best || named > best_named || (named == best_named && strlen(path) > strlen(best))) {
            best = path;
            best_named = named;
        }
    }
    if (best)
        snprintf(out, PATH_MAX, "%s", best);
    return best != NULL;
}

/* The number of the cgroup in a line of /proc/PID/cgroup, which is its directory's inode. 0:
 * unknown. */
static uint64_t container_number(const char *mount, const char *line)
{
    char full[PATH_MAX];
    struct stat st;
    const char *path = strchr(line, '/');
    if (!path || snprintf(full, sizeof(full), "%s%s", mount, path) >= (int)sizeof(full) || stat(full, &st) != 0)
        return 0;
    return st.st_ino;
}

unsigned gp_container_numbers(const char *root, pid_t pid, uint64_t ids[GP_CONTAINER_HIERARCHIES])
{
    static const struct {
        const char *controller;
        uint64_t mark;
    } hierarchies[GP_CONTAINER_HIERARCHIES] = {
        {NULL, 0}, {"memory", GP_MAP_CGROUP_V1}, {"pids", GP_MAP_CGROUP_V1_PIDS}};
    char text[8192], mount[PATH_MAX], *save = NULL;
    uint64_t found[GP_CONTAINER_HIERARCHIES] = {0};
    if (container_of_process(root, pid, text, sizeof(text)) <= 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        for (unsigned i = 0; i < GP_CONTAINER_HIERARCHIES; i++) {
            if (container_line_is(line, hierarchies[i].controller) &&
                container_mount(root, hierarchies[i].controller, mount, sizeof(mount)))
                found[i] = container_number(mount, line);
        }
    }
    unsigned count = 0;
    for (unsigned i = 0; i < GP_CONTAINER_HIERARCHIES; i++) {
        if (found[i])
            ids[count++] = found[i] | hierarchies[i].mark;
    }
    return count;
}

/* Opens a cgroup by its number (CAP_DAC_READ_SEARCH) to get its path. 0; -ESTALE: removed; another
 * error: not possible here. */
static int container_by_handle(const char *mount, uint64_t cgroup_id, char out[PATH_MAX])
{
    struct {
        struct file_handle head;
        uint64_t id;
    } handle = {.head = {.handle_bytes = sizeof(uint64_t), .handle_type = 0xfe /* FILEID_KERNFS */}, .id = cgroup_id};
    memcpy(handle.head.f_handle, &cgroup_id, sizeof(cgroup_id));
    char link[64], full[PATH_MAX];
    int top = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return -errno;
    /* Files in a cgroup's directory have numbers too, hence O_DIRECTORY. */
    int fd = open_by_handle_at(top, &handle.head, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = errno == ENOTDIR ? ESTALE : errno;
    close(top);
    if (fd < 0)
        return -error;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, full, sizeof(full) - 1);
    close(fd);
    if (n <= 0)
        return -ENOENT;
    full[n] = '\0';
    size_t skip = strlen(mount);
    if (strncmp(full, mount, skip) != 0)
        return -EXDEV;
    snprintf(out, PATH_MAX, "%s", full[skip] ? full + skip : "/");
    return 0;
}

struct gp_container_walk {
    const char *mount;
    uint64_t cgroup_id;
    unsigned left; /* directories that may still be visited */
    char path[PATH_MAX];
};

/* Searches below walk->path, which is unchanged unless the cgroup is found. */
static bool container_search(struct gp_container_walk *walk, unsigned depth)
{
    char full[PATH_MAX];
    size_t length = strlen(walk->path);
    if (snprintf(full, sizeof(full), "%s%s", walk->mount, walk->path) >= (int)sizeof(full))
        return false;
    DIR *dir = opendir(full);
    bool found = false;
    struct dirent *entry;
    while (dir && !found && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || entry->d_type != DT_DIR || walk->left == 0)
            continue;
        walk->left--;
        size_t room = sizeof(walk->path) - length;
        if (snprintf(walk->path + length, room, "/%s", entry->d_name) >= (int)room) {
            walk->path[length] = '\0';
            continue;
        }
        found = entry->d_ino == walk->cgroup_id || (depth > 0 && container_search(walk, depth - 1));
        if (!found)
            walk->path[length] = '\0';
    }
    if (dir)
        closedir(dir);
    return found;
}

static int container_path(const char *root, uint64_t cgroup_id, pid_t hint, char out[PATH_MAX])
{
    static const char *const controllers[] = {NULL, "memory", NULL, "pids"}; /* indexed by the mark's two bits */
    const char *controller = controllers[cgroup_id / GP_MAP_CGROUP_V1 % 4];
    bool marked = cgroup_id >= GP_MAP_CGROUP_V1;
    if (marked && (!controller || cgroup_id >= 4 * GP_MAP_CGROUP_V1 || cgroup_id % GP_MAP_CGROUP_V1 == 0))
        return -ENOENT;
    cgroup_id %= GP_MAP_CGROUP_V1;
    char place[PATH_MAX];
    const char *mount = container_mount(root, controller, place, sizeof(place)) ? place : NULL;
    if (hint > 0 && container_path_of(root, hint, mount, controller, cgroup_id, out))
        return 0;
    if (cgroup_id == 0 || !mount)
        return -ENOENT;
    if (container_is(mount, "", cgroup_id)) {
        strcpy(out, "/");
        return 0;
    }
    int rc = container_by_handle(mount, cgroup_id, out);
    if (rc == 0 || (rc == -ESTALE && root[0] == '\0'))
        return rc == 0 ? 0 : -ENOENT;
    struct gp_container_walk walk = {.mount = mount, .cgroup_id = cgroup_id, .left = GP_CONTAINER_CGROUPS};
    if (!container_search(&walk, GP_CONTAINER_DEPTH))
        return -ENOENT;
    memcpy(out, walk.path, PATH_MAX);
    return 0;
}

/* ---- documents of the runtimes ----------------------------------------------------------------------------------- */

/* Reads a regular file of bounded size as JSON; NULL: missing, unreadable or not JSON. */
static json_t *container_document(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0)
        return NULL;
    struct stat st;
    char *text = NULL;
    size_t n = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= (off_t)GP_CONTAINER_FILE_BYTES)
        text = malloc((size_t)st.st_size);
    ssize_t got;
    while (text && n < (size_t)st.st_size && (got = read(fd, text + n, (size_t)st.st_size - n)) > 0)
        n += (size_t)got;
    close(fd);
    json_t *document = text ? json_loadb(text, n, 0, NULL) : NULL;
    free(text);
    return document;
}

/* Reads names from annotations or labels; true if they name the pod. */
static bool container_pod(const json_t *words, struct gp_container_name *out)
{
    static const char *const keys[][3] = {
        {"io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.container-name"},
        {"io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.container.name"},
        {"io.kubernetes.cri-o.KubeName", "io.kubernetes.cri-o.Namespace", "io.kubernetes.cri-o.ContainerName"},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *pod = json_string_value(json_object_get(words, keys[i][0]));
        if (!pod || !pod[0])
            continue;
        container_clean(out->pod, sizeof(out->pod), pod);
        container_clean(out->namespace_, sizeof(out->namespace_),
                        json_string_value(json_object_get(words, keys[i][1])));
        container_clean(out->container, sizeof(out->container), json_string_value(json_object_get(words, keys[i][2])));
        return true;
    }
    return false;
}

/* The OCI bundle of containerd (its own, Docker's, K3s's, MicroK8s's) and of CRI-O. */
static bool container_bundle(const char *root, const char *id, struct gp_container_name *out)
{
    static const char *const places[] = {
        "/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
        "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
        "/var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
        "/run/containers/storage/overlay-containers/%s/userdata/config.json",
        "/var/lib/containers/storage/overlay-containers/%s/userdata/config.json",
    };
    bool found = false;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%s", root);
        if (n >= (int)sizeof(path) - 256)
            return false;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(path + n, sizeof(path) - (size_t)n, places[i], id);
#pragma GCC diagnostic pop
        json_t *document = container_document(path);
        found = container_pod(json_object_get(document, "annotations"), out);
        json_decref(document);
    }
    return found;
}

/* Docker's own file: the container's name, or the pod that cri-dockerd created it for. */
static bool container_docker(const char *root, const char *id, struct gp_container_name *out)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/var/lib/docker/containers/%s/config.v2.json", root, id) >= (int)sizeof(path))
        return false;
    json_t *document = container_document(path);
    const char *name = json_string_value(json_object_get(document, "Name"));
    bool found = container_pod(json_object_get(json_object_get(document, "Config"), "Labels"), out);
    if (!found && name) {
        container_clean(out->container, sizeof(out->container), name[0] == '/' ? name + 1 : name);
        found = out->container[0] != '\0';
    }
    json_decref(document);
    return found;
}

/* Root's Podman keeps one list of all containers, and one of those that end with the boot. */
static bool container_podman(const char *root, const char *id, struct gp_container_name *out)
{
    static const char *const lists[] = {"containers.json", "volatile-containers.json"};
    for (size_t l = 0; l < 2 && !out->container[0]; l++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof(path), "%s/var/lib/containers/storage/overlay-containers/%s", root, lists[l]) >=
            (int)sizeof(path))
            return false;
        json_t *document = container_document(path), *entry;
        size_t i;
        json_array_foreach(document, i, entry)
        {
            const char *this_id = json_string_value(json_object_get(entry, "id"));
            if (this_id && strcmp(this_id, id) == 0)
                container_clean(out->container, sizeof(out->container),
                                json_string_value(json_array_get(json_object_get(entry, "names"), 0)));
        }
        json_decref(document);
    }
    return out->container[0] != '\0';
}

/* ---- the kubelet's logs ------------------------------------------------------------------------------------------ */

/* "A_B_REST": copies A and B, returns REST; NULL if the text has another form. */
static const char *container_split(const char *text, char a[128], char b[128])
{
    const char *first = strchr(text, '_');
    const char *second = first ? strchr(first + 1, '_') : NULL;
    if (!second || first - text >= 128 || second - first > 128)
        return NULL;
    snprintf(a, 128, "%.*s", (int)(first - text), text);
    snprintf(b, 128, "%.*s", (int)(second - first - 1), first + 1);
    return second + 1;
}

static bool container_log(const char *name, const char *id, struct gp_container_name *out)
{
    char pod[128], namespace_[128], container[128];
    const char *rest = container_split(name, pod, namespace_);
    size_t n = rest ? strlen(rest) : 0;
    /* rest: CONTAINER-ID.log */
    if (n <= 1 + GP_CONTAINER_ID + 4 || n - GP_CONTAINER_ID - 5 >= sizeof(container))
        return false;
    const char *dash = rest + n - GP_CONTAINER_ID - 5;
    if (*dash != '-' || strncmp(dash + 1, id, GP_CONTAINER_ID) != 0 || strcmp(dash + 1 + GP_CONTAINER_ID, ".log") != 0)
        return false;
    snprintf(container, sizeof(container), "%.*s", (int)(dash - rest), rest);
    container_clean(out->pod, sizeof(out->pod), pod);
    container_clean(out->namespace_, sizeof(out->namespace_), namespace_);
    container_clean(out->container, sizeof(out->container), container);
    return true;
}

/* NAMESPACE_POD_UID names the pod, but not the container. */
static bool container_pod_log(const char *name, const char *uid, struct gp_container_name *out)
{
    char namespace_[128], pod[128];
    const char *rest = container_split(name, namespace_, pod);
    if (!rest || !uid[0] || strcmp(rest, uid) != 0)
        return false;
    container_clean(out->pod, sizeof(out->pod), pod);
    container_clean(out->namespace_, sizeof(out->namespace_), namespace_);
    return true;
}

static bool container_logs(const char *root, const char *folder, const char *want,
                           bool (*match)(const char *, const char *, struct gp_container_name *),
                           struct gp_container_name *out)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s%s", root, folder) >= (int)sizeof(path))
        return false;
    DIR *dir = opendir(path);
    bool found = false;
    struct dirent *entry;
    for (unsigned left = GP_CONTAINER_LOGS; dir && !found && left && (entry = readdir(dir)); left--)
        found = match(entry->d_name, want, out);
    if (dir)
        closedir(dir);
    return found;
}

/* A path that is too long (clusters inside containers) keeps its end, which distinguishes it from
 * others. */
static void container_set_path(struct gp_container_name *out, const char *path)
{
    size_t length = strlen(path), room = sizeof(out->path) - 1;
    bool cut = length > room;
    if (cut)
        path += length - (room - 3);
    int n = snprintf(out->path, sizeof(out->path), "%s%s", cut ? "..." : "", path);
    for (int i = 0; i < n; i++) {
        if (out->path[i] <= ' ' || out->path[i] >= 0x7f)
            out->path[i] = '_';
    }
}

int gp_container_lookup(const char *root, uint64_t cgroup_id, pid_t hint, struct gp_container_name *out)
{
    memset(out, 0, sizeof(*out));
    char path[PATH_MAX];
    int rc = container_path(root, cgroup_id, hint, path);
    if (rc < 0)
        return rc;
    container_set_path(out, path);
    struct gp_container_ids ids;
    container_parse(path, &ids);
    bool found = false;
    for (unsigned i = 0; i < ids.count && !found; i++) {
        memcpy(out->id, ids.id[i], sizeof(ids.id[i]));
        found = container_bundle(root, out->id, out) || container_docker(root, out->id, out) ||
                container_podman(root, out->id, out) ||
                container_logs(root, "/var/log/containers", out->id, container_log, out);
    }
    if (!found && ids.count > 0)
        memcpy(out->id, ids.id[0], sizeof(ids.id[0]));
    if (!found && ids.pod_uid[0])
        container_logs(root, "/var/log/pods", ids.pod_uid, container_pod_log, out);
    return 0;
}
