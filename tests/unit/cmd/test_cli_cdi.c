/* SPDX-License-Identifier: MIT
 * test_cli_cdi.c: `gpuprof cdi generate` writes what the specification of the Container Device
 * Interface allows, and replaces only its own files.  Run by the unit tests. */
#include "cli.h"

#include <ctype.h>

static const char *text_of(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    cr_assert(text != NULL, "no text '%s'", key);
    return text;
}

/* Runtimes refuse a document with a key that they do not know. */
static void only_keys(json_t *object, const char *const *keys, const char *where)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        cr_assert(keys[i] != NULL, "%s has '%s'", where, key);
    }
}

/* Letters, digits, and between them dashes, underscores and dots. */
static void valid_name(const char *name)
{
    size_t length = strlen(name);
    cr_assert(length > 0 && length <= 63 && isalpha((unsigned char)name[0]), "'%s'", name);
    cr_assert(isalnum((unsigned char)name[length - 1]), "'%s'", name);
    cr_assert_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_."), length, "'%s'", name);
}

static void valid_mount(json_t *mount)
{
    only_keys(mount, (const char *const[]){"hostPath", "containerPath", "options", NULL}, "a mount");
    cr_assert_eq(text_of(mount, "containerPath")[0], '/');
    cr_assert_eq(text_of(mount, "hostPath")[0], '/');
    cr_assert_eq(access(text_of(mount, "hostPath"), R_OK), 0, "%s", text_of(mount, "hostPath"));
    bool read_only = false;
    for (size_t i = 0; i < json_array_size(json_object_get(mount, "options")); i++)
        read_only |= strcmp(json_string_value(json_array_get(json_object_get(mount, "options"), i)), "ro") == 0;
    cr_assert(read_only, "containers could change the library");
}

/* Each variable names a file that the device mounts. */
static void valid_device(json_t *device)
{
    only_keys(device, (const char *const[]){"name", "containerEdits", NULL}, "a device");
    valid_name(text_of(device, "name"));
    json_t *edits = json_object_get(device, "containerEdits");
    only_keys(edits, (const char *const[]){"env", "mounts", NULL}, "containerEdits");
    json_t *env = json_object_get(edits, "env"), *mounts = json_object_get(edits, "mounts");
    cr_assert_gt(json_array_size(env), 0);
    cr_assert_gt(json_array_size(mounts), 0);
    for (size_t i = 0; i < json_array_size(mounts); i++)
        valid_mount(json_array_get(mounts, i));
    for (size_t i = 0; i < json_array_size(env); i++) {
        const char *value = strchr(json_string_value(json_array_get(env, i)), '=');
        bool mounted = false;
        cr_assert(value != NULL);
        for (size_t k = 0; k < json_array_size(mounts); k++)
            mounted |= strcmp(value + 1, text_of(json_array_get(mounts, k), "containerPath")) == 0;
        cr_assert(mounted, "%s is not mounted", value + 1);
    }
}

Test(cli_cdi, generates_a_valid_specification)
{
    struct result r = run("cdi generate");
    cr_assert_eq(r.status, 0, "%s", r.err);
    json_t *top = json_loads(r.out, 0, NULL);
    cr_assert(top != NULL, "%s", r.out);
    only_keys(top, (const char *const[]){"cdiVersion", "kind", "devices", NULL}, "the document");
    unsigned numbers[3];
    cr_assert_eq(sscanf(text_of(top, "cdiVersion"), "%u.%u.%u", &numbers[0], &numbers[1], &numbers[2]), 3);
    cr_assert_str_eq(text_of(top, "kind"), "gpuprof.dev/inject");
    json_t *devices = json_object_get(top, "devices");
    cr_assert_eq(json_array_size(devices), 2);
    for (size_t i = 0; i < json_array_size(devices); i++)
        valid_device(json_array_get(devices, i));
    cr_assert_str_eq(text_of(json_array_get(devices, 0), "name"), "on");
    json_decref(top);
    free(r.out);
    free(r.err);
}

Test(cli_cdi, replaces_only_its_own_file)
{
    char path[] = "/tmp/gpuprof-test-cdi-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, "cdiVersion: 0.5.0\n", 18), 18);
    close(fd);
    expect(run("cdi generate -o %s", path), 1, NULL, "--force");
    expect(run("cdi generate --force -o %s", path), 0, NULL, NULL);
    expect(run("cdi generate -o %s", path), 0, NULL, NULL);
    json_t *top = json_load_file(path, 0, NULL);
    cr_assert(top != NULL);
    json_decref(top);
    unlink(path);
}

/* As /etc/cdi on a machine that has no container runtime yet. */
Test(cli_cdi, makes_the_last_folder)
{
    char folder[] = "/tmp/gpuprof-test-cdi-XXXXXX", path[128], deep[128];
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/cdi", folder);
    expect(run("cdi generate -o %s/gpuprof.json", path), 0, NULL, NULL);
    snprintf(deep, sizeof(deep), "%s/a", folder);
    expect(run("cdi generate -o %s/b/gpuprof.json", deep), 1, NULL, "No such file");
    cr_assert_neq(access(deep, F_OK), 0);
    char file[160];
    snprintf(file, sizeof(file), "%s/gpuprof.json", path);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(rmdir(folder), 0);
}

Test(cli_cdi, refuses_what_containers_could_not_use)
{
    char folder[] = "/tmp/gpuprof-test-cdi-XXXXXX", path[128], line[512];
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/libgpuprof.so", folder);
    expect(run("cdi"), 2, NULL, "generate");
    expect(run("cdi list"), 2, NULL, "must be generate");
    expect(run("cdi generate --library %s", path), 1, NULL, "No such file");
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    expect(run("cdi generate --library %s", path), 1, NULL, "chmod a+r");
    chmod(path, 0644);
    expect(run("cdi generate --library %s", path), 1, NULL, "libgpuprof-shim.so");
    expect(run("cdi generate --library %s", folder), 1, NULL, "not a file");
    snprintf(line, sizeof(line), "rm -r %s", folder);
    cr_assert_eq(system(line), 0);
}
