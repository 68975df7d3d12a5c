/* SPDX-License-Identifier: MIT
 * fakepython.c: see fakepython.h. */
#include <lib/fakepython.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER, NEGATIVE, TEXT, DICT, LIST, FUNCTION, ERROR };

struct gp_python_object_any {
    int what;
    unsigned long long number;
    const char *text;
    unsigned count;
    const char *keys[16];
    gp_python_ref values[16];
};

struct fakepython fakepython;
static struct gp_python_object_any objects[256], exception_class, interrupt_class, none, no;
static gp_python_ref exception_type = &exception_class;
static unsigned made;
static enum fakepython_error raised;

static gp_python_ref object_new(int what)
{
    if (made == sizeof(objects) / sizeof(objects[0]))
        abort();
    gp_python_ref object = &objects[made++];
    memset(object, 0, sizeof(*object));
    object->what = what;
    return object;
}

gp_python_ref fakepython_dict(void)
{
    return object_new(DICT);
}

gp_python_ref fakepython_list(void)
{
    return object_new(LIST);
}

gp_python_ref fakepython_number(unsigned long long number)
{
    gp_python_ref object = object_new(NUMBER);
    object->number = number;
    return object;
}

gp_python_ref fakepython_negative(void)
{
    return object_new(NEGATIVE);
}

gp_python_ref fakepython_text(const char *text)
{
    gp_python_ref object = object_new(TEXT);
    object->text = text;
    return object;
}

gp_python_ref fakepython_function(void)
{
    return object_new(FUNCTION);
}

void fakepython_put(gp_python_ref dict, const char *key, gp_python_ref value)
{
    if (!value)
        return;
    if (dict->count == 16)
        abort();
    dict->keys[dict->count] = key;
    dict->values[dict->count++] = value;
}

void fakepython_append(gp_python_ref list, gp_python_ref value)
{
    fakepython_put(list, "", value);
}

void fakepython_raise(enum fakepython_error error)
{
    raised = error;
}

enum fakepython_error fakepython_raised(void)
{
    return raised;
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

/* True: the call fails. */
static bool begin(const char *function)
{
    if (fakepython.called)
        fakepython.called(function);
    fakepython.calls++;
    if (!fakepython.fail || --fakepython.fail != 0)
        return false;
    raised = fakepython.fail_with;
    return true;
}

static gp_python_ref owned(gp_python_ref object)
{
    fakepython.owned += object != NULL;
    return object;
}

static gp_python_ref lookup(gp_python_ref dict, const char *key)
{
    for (unsigned i = 0; dict && dict->what == DICT && i < dict->count; i++)
        if (strcmp(dict->keys[i], key) == 0)
            return dict->values[i];
    return NULL;
}

static int fake_add_pending(int (*function)(void *), void *arg)
{
    if (fakepython.is_full || arg)
        return -1;
    fakepython.pending = function;
    return 0;
}

static int fake_is_initialized(void)
{
    return fakepython.is_initialized;
}

static void fake_drop(gp_python_ref object)
{
    fakepython.owned -= object != NULL;
}

static gp_python_ref fake_modules(void)
{
    bool fails = begin("PyImport_GetModuleDict");
    raised = fails ? FAKEPYTHON_NONE : raised; /* it sets none */
    return fails ? NULL : fakepython.modules;
}

static gp_python_ref fake_item(gp_python_ref dict, const char *key)
{
    enum fakepython_error before = raised; /* it hides its own */
    bool fails = begin("PyDict_GetItemString");
    raised = before;
    return fails ? NULL : lookup(dict, key);
}

static gp_python_ref fake_attribute(gp_python_ref object, const char *name)
{
    if (begin("PyObject_GetAttrString"))
        return NULL;
    gp_python_ref found = lookup(object, name);
    raised = found ? raised : FAKEPYTHON_EXCEPTION;
    return owned(found);
}

static int fake_is_true(gp_python_ref object)
{
    return begin("PyObject_IsTrue") ? -1 : object->number != 0;
}

static gp_python_ref fake_str(gp_python_ref object)
{
    return begin("PyObject_Str") ? NULL : owned(object->what == ERROR ? object->values[0] : object);
}

static gp_python_ref fake_call(gp_python_ref function, const char *format, ...)
{
    int given = !format ? 0 : strcmp(format, "((iiO))") == 0 ? 1 : strcmp(format, "(O)") == 0 ? 2 : -1;
    va_list args;
    bool right = given >= 0 && function->what == FUNCTION && !raised;
    if (begin("PyObject_CallFunction"))
        return NULL;
    va_start(args, format);
    if (given == 1)
        right = right && va_arg(args, int) == 0 && va_arg(args, int) == 0 && va_arg(args, gp_python_ref) == &no;
    if (given == 2)
        right = right && va_arg(args, gp_python_ref) == &none;
    va_end(args);
    if (!right)
        abort();
    if (given != fakepython.accepts) {
        raised = FAKEPYTHON_EXCEPTION;
        return NULL;
    }
    return owned(fakepython.snapshot);
}

static gp_python_ref fake_mapping_item(gp_python_ref mapping, const char *key)
{
    if (begin("PyMapping_GetItemString"))
        return NULL;
    gp_python_ref found = lookup(mapping, key);
    raised = found ? raised : FAKEPYTHON_EXCEPTION;
    return owned(found);
}

static intptr_t fake_size(gp_python_ref list)
{
    if (begin("PySequence_Size"))
        return -1;
    if (list->what == LIST)
        return list->count;
    raised = FAKEPYTHON_EXCEPTION;
    return -1;
}

static gp_python_ref fake_at(gp_python_ref list, intptr_t index)
{
    if (begin("PySequence_GetItem"))
        return NULL;
    if (index < 0 || index >= (intptr_t)list->count)
        abort();
    return owned(list->values[index]);
}

static unsigned long long fake_number(gp_python_ref number)
{
    if (begin("PyLong_AsUnsignedLongLong"))
        return UINT64_MAX;
    if (number->what == NUMBER)
        return number->number;
    raised = FAKEPYTHON_EXCEPTION;
    return UINT64_MAX;
}

static int fake_compare(gp_python_ref text, const char *with)
{
    return text->what == TEXT ? strcmp(text->text, with) : -1;
}

static const char *fake_utf8(gp_python_ref text)
{
    return begin("PyUnicode_AsUTF8") ? NULL : text->text;
}

static gp_python_ref fake_occurred(void)
{
    return raised == FAKEPYTHON_NONE ? NULL : raised == FAKEPYTHON_EXCEPTION ? &exception_class : &interrupt_class;
}

static int fake_matches(gp_python_ref type)
{
    return type == &exception_class && raised == FAKEPYTHON_EXCEPTION;
}

static void fake_clear(void)
{
    raised = FAKEPYTHON_NONE;
}

static void fake_fetch(gp_python_ref *type, gp_python_ref *value, gp_python_ref *trace)
{
    *type = owned(fake_occurred());
    *value = *trace = NULL;
    if (*type && fakepython.said) {
        *value = owned(object_new(ERROR));
        (*value)->values[0] = fakepython_text(fakepython.said);
        *trace = owned(object_new(ERROR));
    }
    raised = FAKEPYTHON_NONE;
}

static void fake_restore(gp_python_ref type, gp_python_ref value, gp_python_ref trace)
{
    raised = !type ? FAKEPYTHON_NONE : type == &exception_class ? FAKEPYTHON_EXCEPTION : FAKEPYTHON_INTERRUPT;
    fake_drop(type);
    fake_drop(value);
    fake_drop(trace);
}

static int fake_finalizing(void)
{
    return fakepython.is_finalizing;
}

static const struct {
    const char *name;
    void *at;
} symbols[] = {
    {"Py_AddPendingCall", (void *)fake_add_pending},
    {"Py_IsInitialized", (void *)fake_is_initialized},
    {"Py_DecRef", (void *)fake_drop},
    {"PyImport_GetModuleDict", (void *)fake_modules},
    {"PyDict_GetItemString", (void *)fake_item},
    {"PyObject_GetAttrString", (void *)fake_attribute},
    {"PyObject_IsTrue", (void *)fake_is_true},
    {"PyObject_Str", (void *)fake_str},
    {"PyObject_CallFunction", (void *)fake_call},
    {"PyMapping_GetItemString", (void *)fake_mapping_item},
    {"PySequence_Size", (void *)fake_size},
    {"PySequence_GetItem", (void *)fake_at},
    {"PyLong_AsUnsignedLongLong", (void *)fake_number},
    {"PyUnicode_CompareWithASCIIString", (void *)fake_compare},
    {"PyUnicode_AsUTF8", (void *)fake_utf8},
    {"PyErr_Occurred", (void *)fake_occurred},
    {"PyErr_ExceptionMatches", (void *)fake_matches},
    {"PyErr_Clear", (void *)fake_clear},
    {"PyErr_Fetch", (void *)fake_fetch},
    {"PyErr_Restore", (void *)fake_restore},
    {"PyExc_Exception", &exception_type},
    {"_Py_NoneStruct", &none},
    {"_Py_FalseStruct", &no},
    {"Py_IsFinalizing", (void *)fake_finalizing},
};

void *fakepython_symbol(const char *name)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        if (strcmp(symbols[i].name, name) == 0)
            return symbols[i].at;
    return NULL;
}

void fakepython_new(struct gp_python_api *api)
{
    memset(&fakepython, 0, sizeof(fakepython));
    made = 0;
    raised = FAKEPYTHON_NONE;
#define FAKE_SET(_result, _name, _arguments) *(void **)&api->_name = fakepython_symbol(#_name);
    GP_PYTHON_API(FAKE_SET)
#undef FAKE_SET
    api->finalizing = fake_finalizing;
    api->exception_type = &exception_type;
    api->none = &none;
    api->no = &no;
}
