/* SPDX-License-Identifier: MIT
 * cdi.c: `gpuprof cdi generate`: a specification for the Container Device Interface, with which
 * docker, podman, containerd and CRI-O mount the library into containers of any image.  Called by
 * commands.c. */
#define _GNU_SOURCE /* realpath */
#include <cmd/cmd.h>

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The oldest version that has all fields that are used here: a runtime refuses newer ones. */
#define GP_CDI_VERSION "0.3.0"
#define GP_CDI_KIND    "gpuprof.dev/inject"
/* Where containers see the library.  deploy/kubernetes has the same folder. */
#define GP_CDI_FOLDER "/opt/gpuprof/lib"
#define GP_CDI_SHIM   "libgpuprof-shim.so"

struct gp_cdi_options {
    int verb; /* -1: none given */
    const char *library, *output;
    bool force;
};

/* The whole path of a file that each container's user can read.  GP_EXIT_OK, or an exit status
 * after a message. */
static int cdi_file(const char *path, char whole[PATH_MAX])
{
    struct stat status;
    if (!realpath(path, whole) || stat(whole, &status) != 0) {
        gp_error("cdi", "%s: cannot be mounted: %s", path, strerror(errno));
        return GP_EXIT_FAILED;
    }
    if (!S_ISREG(status.st_mode) || !(status.st_mode & S_IROTH)) {
        gp_error("cdi", "%s: cannot be mounted: %s", whole,
                 S_ISREG(status.st_mode) ? "users of containers may not read it: chmod a+r" : "not a file");
        return GP_EXIT_FAILED;
    }
    return GP_EXIT_OK;
}

static json_t *cdi_mount(const char *path, const char *name)
{
    return json_pack("{s:s,s:s+,s:[s,s,s,s]}", "hostPath", path, "containerPath", GP_CDI_FOLDER "/", name, "options",
                     "ro", "nosuid", "nodev", "bind");
}

/* Each device is complete, because runtimes refuse one without edits.  preload may be NULL. */
static json_t *cdi_device(const char *name, const char *library, const char *shim, const char *preload)
{
    json_t *env = json_pack("[s]", "CUDA_INJECTION64_PATH=" GP_CDI_FOLDER "/libgpuprof.so");
    if (env && preload)
        json_array_append_new(env, json_string(preload));
    return json_pack("{s:s,s:{s:o,s:[o,o]}}", "name", name, "containerEdits", "env", env, "mounts",
                     cdi_mount(library, "libgpuprof.so"), cdi_mount(shim, GP_CDI_SHIM));
}

static json_t *cdi_specification(const char *library, const char *shim)
{
    return json_pack("{s:s,s:s,s:[o,o]}", "cdiVersion", GP_CDI_VERSION, "kind", GP_CDI_KIND, "devices",
                     cdi_device("on", library, shim, NULL),
                     cdi_device("hooks", library, shim, "LD_PRELOAD=" GP_CDI_FOLDER "/" GP_CDI_SHIM));
}

/* /etc/cdi does not exist before the first specification of a machine.  Only this last folder is
 * made: a longer path that does not exist is a mistake. */
static int cdi_open(struct gp_output *out, const char *path)
{
    int rc = gp_output_open(out, path);
    const char *slash = path ? strrchr(path, '/') : NULL;
    char folder[PATH_MAX];
    if (rc != -ENOENT || !slash || slash == path || (size_t)(slash - path) >= sizeof(folder))
        return rc;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    return mkdir(folder, 0755) == 0 ? gp_output_open(out, path) : rc;
}

static int cdi_write(const char *path, const json_t *top)
{
    struct gp_output out;
    int rc = cdi_open(&out, path);
    if (!rc) {
        if (json_dumpfd(top, out.fd, JSON_INDENT(1)) != 0 || dprintf(out.fd, "\n") != 1)
            rc = -(errno ? errno : EIO);
        rc = gp_output_close(&out, rc);
    }
    return rc ? gp_write_error("cdi", path, -rc) : GP_EXIT_OK;
}

static int cdi_check(void *options)
{
    const struct gp_cdi_options *o = options;
    return o->verb < 0 ? gp_usage_error("cdi", "say what to do: generate") : GP_EXIT_OK;
}

static int cdi_run(void *options)
{
    const struct gp_cdi_options *o = options;
    char found[PATH_MAX], library[PATH_MAX], beside[PATH_MAX + sizeof(GP_CDI_SHIM)], shim[PATH_MAX];
    if (!o->library && gp_launch_find(found, sizeof(found), "libgpuprof.so") != 0) {
        gp_error("cdi", "%s: the library of the profiler is missing: build or install it, or name it with --library",
                 found);
        return GP_EXIT_FAILED;
    }
    int rc = cdi_file(o->library ? o->library : found, library);
    if (!rc) {
        snprintf(beside, sizeof(beside), "%.*s" GP_CDI_SHIM, (int)(strrchr(library, '/') + 1 - library), library);
        rc = cdi_file(beside, shim);
    }
    if (!rc)
        rc = gp_output_check("cdi", "-o ", o->output, o->force);
    if (rc)
        return rc;
    json_t *top = cdi_specification(library, shim);
    if (!top) { /* a path that is no UTF-8, which JSON cannot name */
        gp_error("cdi", "%s: this path cannot be written in JSON: install gpuprof elsewhere", library);
        return GP_EXIT_FAILED;
    }
    rc = cdi_write(o->output, top);
    json_decref(top);
    return rc;
}

static const struct gp_command_option cdi_options[] = {
    GP_OPTION(struct gp_cdi_options, output, 'o', "output", "FILE", GP_ARG_FILE,
              "the file to write, in a folder that is made if it is missing (default: standard output)"),
    GP_OPTION(struct gp_cdi_options, library, 0, "library", "FILE", GP_ARG_FILE,
              "mount this libgpuprof.so, and the libgpuprof-shim.so beside it, instead of the installed one"),
    GP_OPTION_FORCE(struct gp_cdi_options),
    {0}};

static const struct gp_command_option cdi_operands[] = {
    GP_OPERAND(struct gp_cdi_options, verb, "VERB", GP_ARG_INDEX, "what to do", .words = GP_LIST("generate")), {0}};

const struct gp_command_spec gp_command_cdi = {
    .name = "cdi",
    .summary = "let container runtimes load the profiler into containers",
    .group = GP_GROUP_MACHINE,
    .usage = GP_LIST("generate [-o FILE] [--library=FILE] [--force]"),
    .about = GP_LIST("Writes a specification for the Container Device Interface, as JSON, which is also YAML. Runtimes "
                     "read it from /etc/cdi. The device '" GP_CDI_KIND "=on' then mounts the library into a container "
                     "of any image and sets CUDA_INJECTION64_PATH. The device '" GP_CDI_KIND
                     "=hooks' preloads the driver hooks too, for images without CUPTI. Request one of the two.",
                     "Write it again after gpuprof was installed at another place. docs/containers.md has the commands "
                     "of docker and podman, docs/fleet.md what Kubernetes needs."),
    .options = cdi_options,
    .operands = cdi_operands,
    .examples = GP_EXAMPLES({"gpuprof cdi generate -o /etc/cdi/gpuprof.json", "Install the specification."},
                            {"gpuprof cdi generate", "Print it."}),
    GP_DEFAULTS(struct gp_cdi_options, .verb = -1),
    .check = cdi_check,
    .run = cdi_run,
};
