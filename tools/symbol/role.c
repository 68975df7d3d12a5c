/* SPDX-License-Identifier: MIT
 *
 * role.c: what a frame is for a reader: the user's own code, a library, an allocator, an
 * interpreter or the start of a thread. It knows only the frame itself; place.c compares the stacks
 * of a program. docs/understand/symbols.md has the rule.
 */
#include <symbol/internal.h>

#include <ctype.h>
#include <string.h>

static bool has_prefix(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool has_any_prefix(const char *text, const char *const *with, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (has_prefix(text, with[i]))
            return true;
    return false;
}
#define HAS_PREFIX_OF(text, list) has_any_prefix(text, list, sizeof(list) / sizeof((list)[0]))

/* ---- Python ------------------------------------------------------------------------------------------------------ */

/* "python3.11", "libpython3.11.so.1.0", "python3.13t". */
bool gp_role_is_python(const char *module)
{
    if (has_prefix(module, "lib"))
        module += 3;
    if (!has_prefix(module, "python"))
        return false;
    for (module += 6; isdigit((unsigned char)*module) || (*module && strchr(".mdtu", *module)); module++)
        if (has_prefix(module, ".so"))
            return true;
    return *module == '\0';
}

bool gp_role_is_eval(const struct gp_frame_text *frame)
{
    return has_prefix(frame->function, "_PyEval_EvalFrame") || has_prefix(frame->function, "PyEval_EvalFrame");
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The standard library is in lib/python3.11; on Windows in the folder lib of an installation, whose own name has
 * "python" or "conda" in it. */
static bool is_standard(const char *path, bool windows)
{
    if (!windows)
        return strstr(path, "/lib/python") != NULL;
    const char *lib = strcasestr(path, "/lib/"), *python = strcasestr(path, "python"),
               *conda = strcasestr(path, "conda");
    return lib && ((python && python < lib) || (conda && conda < lib));
}

/* Code without a file, such as that of exec, dataclasses and torch.fx: <string>, <eval_with_key>.0. */
static bool role_is_generated(const char *file)
{
    /* What a person types into an interpreter or a notebook. */
    static const char *const typed[] = {"<stdin",        "<console",  "<input",    "<ipython-input-",
                                        "<python-input", "<timed ",   "<doctest ", "<command-",
                                        "<cell",         "<notebook", "<magic-"};
    return file[0] == '<' && !HAS_PREFIX_OF(file, typed);
}

enum gp_frame_role gp_role_of_python(const char *function, const char *file)
{
    static const char *const inner[] = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"};
    char path[GP_SYMBOL_TEXT];
    size_t length = strlen(file);
    bool windows = isalpha((unsigned char)file[0]) && file[1] == ':' && file[2] == '\\';
    length = length < sizeof(path) ? length : sizeof(path) - 1;
    for (size_t i = 0; i < length; i++)
        path[i] = windows && file[i] == '\\' ? '/' : file[i];
    path[length] = '\0';
    if (has_prefix(path, "<frozen ") || strstr(path, "/ctypes/__init__.py"))
        return GP_ROLE_INTERPRETER;
    if (strstr(path, "/site-packages/") || strstr(path, "/dist-packages/"))
        return GP_ROLE_LIBRARY;
    if (role_is_generated(file))
        return GP_ROLE_LIBRARY;
    /* Code that a compiler of PyTorch wrote, and what an administrator puts around other code at Python's start. */
    if (strstr(path, "/torchinductor_") || ends_with(path, "/sitecustomize.py") || strstr(path, "/gpuprof/sim/python/"))
        return GP_ROLE_LIBRARY;
    if (is_standard(path, windows))
        return ends_with(path, "/threading.py") || ends_with(path, "/runpy.py") ? GP_ROLE_START : GP_ROLE_LIBRARY;
    /* A comprehension is a function of its own until Python 3.11; the one that it is part of is what
     * a reader knows. */
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++)
        if (ends_with(function, inner[i]))
            return GP_ROLE_WRAPPER;
    return GP_ROLE_USER;
}

/* The code that starts a program: `python -c`, which is how multiprocessing starts a process, and a
 * script such as bin/vllm, which pip writes. */
bool gp_role_is_launcher(const char *function, const char *file)
{
    const char *base = strrchr(file, '/');
    if (strcmp(function, "<module>") != 0)
        return false;
    return strcmp(file, "<string>") == 0 ||
           (base && base - file >= 4 && strncmp(base - 4, "/bin", 4) == 0 && !strchr(base, '.'));
}

/* An installed package that is a program or a part of one: no framework, whose functions make the
 * tensors. */
bool gp_role_is_package(const char *file)
{
    static const char *const frameworks[] = {"torch/", "triton/", "jax/",  "jaxlib/", "tensorflow/",
                                             "numpy/", "cupy/",   "numba", "cuda/",   "rmm/"};
    const char *name = strstr(file, "/site-packages/");
    name = name ? name : strstr(file, "/dist-packages/");
    return name && !HAS_PREFIX_OF(name + sizeof("/site-packages/") - 1, frameworks);
}

static bool is_own(const struct gp_frame_text *frame)
{
    return frame->python && (frame->role == GP_ROLE_USER || frame->role == GP_ROLE_WRAPPER) &&
           !gp_role_is_launcher(frame->function, frame->file);
}

bool gp_role_is_command(const char *function, const char *file, bool outermost, bool caller)
{
    return strcmp(file, "<string>") == 0 && (outermost ? strcmp(function, "<module>") == 0 : caller);
}

/* Generated code has the file name <string> too: the text of `python -c` is what the stack begins with. */
static void role_of_command(struct gp_frame_text *frames, uint32_t count)
{
    bool outermost = true, command = false;
    for (uint32_t i = count; i-- > 0;) {
        if (!frames[i].python)
            continue;
        command = gp_role_is_command(frames[i].function, frames[i].file, outermost, command);
        frames[i].role = command ? GP_ROLE_USER : frames[i].role;
        outermost = false;
    }
}

void gp_role_of_program(struct gp_frame_text *frames, uint32_t count)
{
    bool own = false, package = false;
    role_of_command(frames, count);
    for (uint32_t i = 0; i < count; i++) {
        own |= is_own(&frames[i]);
        package |= frames[i].python && gp_role_is_package(frames[i].file);
    }
    /* A thread of `python -c` begins in the standard library. */
    for (uint32_t i = 0; i < count && !package && !own; i++)
        if (frames[i].python && strcmp(frames[i].file, "<string>") == 0)
            frames[i].role = GP_ROLE_USER;
    for (uint32_t i = 0; i < count && package && !own; i++)
        if (frames[i].python && gp_role_is_package(frames[i].file))
            frames[i].role = GP_ROLE_USER;
        else if (frames[i].python && frames[i].role == GP_ROLE_USER)
            frames[i].role = GP_ROLE_START, frames[i].folded = true;
}

/* ---- native ------------------------------------------------------------------------------------------------------ */

bool gp_role_is_start(const struct gp_frame_text *frame)
{
    return has_prefix(frame->function, "__libc_start") || strcmp(frame->function, "_start") == 0;
}

static bool is_thread_start(const struct gp_frame_text *frame)
{
    static const char *const names[] = {"start_thread", "clone", "clone3", "__clone", "__clone3", "thread_start"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(frame->function, names[i]) == 0)
            return !frame->module[0] || has_prefix(frame->module, "libc.") || has_prefix(frame->module, "libpthread");
    return false;
}

/* Libraries that call between an interpreter and C. */
static bool is_bridge(const char *module)
{
    static const char *const names[] = {"libffi.", "libffi-", "_ctypes.", "_cffi_backend."};
    return HAS_PREFIX_OF(module, names);
}

static bool is_system_folder(const char *path)
{
    static const char *const folders[] = {"/lib/",       "/lib64/",         "/usr/lib/",
                                          "/usr/lib64/", "/usr/local/cuda", "/opt/cuda"};
    return HAS_PREFIX_OF(path, folders) || strstr(path, "/site-packages/") || strstr(path, "/dist-packages/");
}

/* "PyNumber_Add", "_PyObject_Call": of a frame that has only its name. */
static bool is_python_function(const struct gp_frame_text *frame)
{
    const char *name = frame->function + (frame->function[0] == '_');
    return !frame->module[0] && has_prefix(name, "Py") && (name[2] == '_' || isupper((unsigned char)name[2])) &&
           strchr(name, '_');
}

/* Functions that allocate on behalf of their callers, wherever they are: many are templates or are
 * linked in. The last ones are torch's own, which take the stack. */
static bool is_allocator_function(const char *function)
{
    static const char *const begins[] = {"operator new",
                                         "std::",
                                         "__gnu_cxx::",
                                         "thrust::",
                                         "cub::",
                                         "rmm::",
                                         "c10::",
                                         "alloc::",
                                         "core::",
                                         "__cudart",
                                         "cudart::",
                                         "nvtxMem",
                                         "nvtxDomain",
                                         "libcudart_static_",
                                         "torch::unwind::",
                                         "torch::CapturedTraceback::",
                                         "torch::cuda::(anonymous namespace)::gather",
                                         "at::detail::empty_",
                                         "at::detail::_empty",
                                         "at::TensorBase at::detail::_empty"};
    if (HAS_PREFIX_OF(function, begins))
        return true;
    return (has_prefix(function, "cuda") && isupper((unsigned char)function[4])) ||
           (has_prefix(function, "cu") && isupper((unsigned char)function[2]));
}

static enum gp_frame_role role_of_native(const struct gp_frame_text *frame, const char *path)
{
    static const char *const allocators[] = {"libcuda.", "libcuda-", "libcudart", "libc10", "librmm", "libstdc++"};
    static const char *const libraries[] = {"libcu",  "libnv",       "libnccl",    "libtorch",
                                            "libjax", "libonnxrunt", "libgpuprof", "libtensorflow"};
    static const char *const frameworks[] = {"at::", "torch::", "caffe2::", "pybind11::"};
    if (gp_role_is_start(frame) || is_thread_start(frame))
        return GP_ROLE_START;
    if (gp_role_is_python(frame->module) || gp_role_is_eval(frame) || is_python_function(frame) ||
        is_bridge(frame->module))
        return GP_ROLE_INTERPRETER;
    if (is_allocator_function(frame->function) || HAS_PREFIX_OF(frame->module, allocators))
        return GP_ROLE_ALLOCATOR;
    if (!frame->module[0] || HAS_PREFIX_OF(frame->module, libraries) || is_system_folder(path) ||
        HAS_PREFIX_OF(frame->function, frameworks))
        return GP_ROLE_LIBRARY;
    return GP_ROLE_USER;
}

/* ---- plain names ------------------------------------------------------------------------------------------------- */

/* The length up to what a compiler adds to the name of a copy: "f.constprop.0", "f [clone .cold]". */
static size_t plain_length(const char *function)
{
    static const char *const marks[] = {".constprop.", ".isra.", ".part.", ".cold", ".lto_priv.", " [clone"};
    size_t length = strlen(function);
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *at = strstr(function, marks[i]);
        if (at && at > function && (size_t)(at - function) < length)
            length = (size_t)(at - function);
    }
    return length;
}

/* Without arguments of templates, so that all instances of one have one name. A '<' at the start, or
 * of an operator, belongs to the name; "<module>" of Python too. */
static const char *role_plain(struct gp_intern *intern, const struct gp_frame_text *frame)
{
    char out[GP_SYMBOL_TEXT];
    size_t length = plain_length(frame->function), used = 0;
    unsigned depth = 0;
    if (frame->python || (!memchr(frame->function, '<', length) && !frame->function[length]))
        return frame->function;
    for (size_t i = 0; i < length && used + 1 < sizeof(out); i++) {
        char c = frame->function[i];
        bool opens = c == '<' && i && (isalnum((unsigned char)frame->function[i - 1]) || frame->function[i - 1] == '_');
        if (opens && i >= 8 && strncmp(frame->function + i - 8, "operator", 8) == 0)
            opens = false;
        if (depth ? c == '<' : opens)
            depth++;
        else if (depth && c == '>' && frame->function[i - 1] != '-')
            depth--;
        else if (!depth)
            out[used++] = c;
    }
    if (depth || !used)
        return frame->function;
    out[used] = '\0';
    return gp_intern(intern, out);
}

void gp_role_set(struct gp_symbols *symbols, struct gp_frame_text *frame)
{
    const char *path = frame->module_index == GP_REC_NONE ? "" : symbols->modules[frame->module_index].path;
    frame->role = frame->python ? gp_role_of_python(frame->function, frame->file) : role_of_native(frame, path);
    frame->folded = frame->role == GP_ROLE_INTERPRETER || frame->role == GP_ROLE_START;
    frame->plain = role_plain(&symbols->intern, frame);
}

const char *gp_frame_role_name(enum gp_frame_role role)
{
    static const char *const names[] = {"user", "wrapper", "library", "allocator", "interpreter", "start"};
    return role < sizeof(names) / sizeof(names[0]) ? names[role] : "user";
}
