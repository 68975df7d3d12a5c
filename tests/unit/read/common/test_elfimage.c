/* SPDX-License-Identifier: MIT
 *
 * test_elfimage.c: files of others that elfutils reads: cut short while they are read, and packed so
 * that they cost far more memory than disk (tools/read/common/elfimage.c, tools/symbol).
 */
#include <lib/build.h>
#include <read/common/elfimage.h>
#include <symbol/internal.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PACKED (300u << 20) /* bytes of zeros */
#define ROOM   (1ull << 30)

static char *folder;

static int shell(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    return system(line);
}

static const char *in(const char *name)
{
    static char path[32][300];
    static unsigned turn;
    snprintf(path[turn++ % 32], sizeof(path[0]), "%s/%s", folder, name);
    return path[(turn - 1) % 32];
}

/* An object with many functions. */
static void object_make(const char *name, const char *flags)
{
    FILE *file = fopen(in("f.c"), "w");
    for (int i = 0; i < 400; i++)
        fprintf(file, "int function_%d(int x) { return x * %d + 1; }\n", i, i + 2);
    fclose(file);
    cr_assert_eq(shell("cc -g -O1 -fPIC -shared -Wl,--build-id %s -o %s %s", flags, in(name), in("f.c")), 0);
}

static void begin(void)
{
    folder = build_folder();
    cr_assert(folder);
}

static void end(void)
{
    shell("rm -rf %s/.debug", folder);
    build_remove(folder);
}

TestSuite(elfimage, .init = begin, .fini = end, .timeout = 120);

static unsigned long peak_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (unsigned long)usage.ru_maxrss / 1024;
}

static uint64_t room;

/* The offset in the file of a function. */
static uint64_t offset_of(const char *name, const char *function)
{
    char command[400], text[64] = "";
    snprintf(command, sizeof(command), "nm %s | awk '$3 == \"%s\" {print $1}'", in(name), function);
    FILE *pipe = popen(command, "r");
    cr_assert(fgets(text, sizeof(text), pipe));
    pclose(pipe);
    return strtoull(text, NULL, 16); /* the segment of code has equal offsets and addresses */
}

/* ---- cut short --------------------------------------------------------------------------------------------------- */

Test(elfimage, an_object_that_is_cut_short)
{
    struct gp_object object;
    struct gp_intern intern = {0};
    struct gp_object_frame frames[GP_INLINES];
    object_make("o.so", "-Wl,--build-id=none -Wl,-z,noseparate-code");
    uint64_t at = offset_of("o.so", "function_7");
    room = ROOM;
    const struct gp_object_source source = {.root = "", .path = in("o.so"), .build_id = "", .room = &room};
    cr_assert_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_UNCHECKED);
    cr_assert_eq(truncate(in("o.so"), 100), 0);
    cr_expect_eq(gp_object_lookup(&object, at + 1, frames), 1);
    cr_expect_str_eq(frames[0].function, "function_7");
    cr_expect_eq(frames[0].line, 8);
    gp_object_close(&object);
    cr_expect_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_BAD, "a hundred bytes");
    gp_intern_free(&intern);
}

/* ---- names that stay in the file ---------------------------------------------------------------------------------- */

/* 200 functions whose names have 10 000 bytes, as 2 MiB of .strtab. */
static void object_make_long(const char *name)
{
    enum { LONG = 10000 };
    static char tail[LONG];
    memset(tail, 'x', LONG - 1);
    FILE *file = fopen(in("f.c"), "w");
    for (int i = 0; i < 200; i++)
        fprintf(file, "int f%03d_%s(int x) { return x * %d + 1; }\n", i, tail, i + 2);
    fprintf(file, "int last(int x) { return x; }\n");
    fclose(file);
    cr_assert_eq(shell("cc -O1 -fPIC -shared -fvisibility=hidden -Wl,--build-id=none -Wl,-z,noseparate-code -o %s %s",
                       in(name), in("f.c")),
                 0);
}

Test(elfimage, long_tables_of_names_are_not_copied)
{
    struct gp_object object;
    struct gp_intern intern = {0};
    struct gp_object_frame frames[GP_INLINES];
    struct gp_elf_strings names = {0};
    struct stat status;
    bool is_cut;
    object_make_long("l.so");
    room = ROOM;
    int fd = open(in("l.so"), O_RDONLY | O_CLOEXEC), copy = gp_elf_image_lean(fd, GP_ELF_NAMES, &room, &is_cut, &names);
    cr_assert(copy >= 0 && names.bytes > 2000000 && fstat(copy, &status) == 0);
    cr_expect_lt((uint64_t)status.st_blocks * 512, 1u << 20, "a hole");
    cr_expect_null(gp_elf_string(fd, &names, names.bytes));
    cr_expect_null(gp_elf_string(fd, &names, UINT64_MAX));
    close(copy);
    copy = gp_elf_image(fd, GP_ELF_NAMES, &room, &is_cut);
    cr_assert(copy >= 0 && fstat(copy, &status) == 0);
    cr_expect_gt((uint64_t)status.st_blocks * 512, 1900000);
    close(copy);
    close(fd);

    uint64_t at = offset_of("l.so", "last");
    const struct gp_object_source source = {.root = "", .path = in("l.so"), .build_id = "", .room = &room};
    cr_assert_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_UNCHECKED);
    cr_assert_eq(gp_object_lookup(&object, at, frames), 1);
    cr_expect_str_eq(frames[0].function, "last");
    cr_assert_eq(gp_object_lookup(&object, at - 5, frames), 1);
    cr_expect_eq(strncmp(frames[0].function, "f199_xxx", 8), 0, "%.20s", frames[0].function);
    cr_expect_geq(strlen(frames[0].function), 200);
    cr_assert_eq(truncate(in("l.so"), (off_t)names.offset + 100), 0);
    cr_expect_eq(gp_object_lookup(&object, at, frames), 0, "its name is gone");
    gp_object_close(&object);
    gp_intern_free(&intern);
}

static void hex_id(const char *name, char id[80])
{
    char command[400];
    snprintf(command, sizeof(command), "readelf -n %s | awk '/Build ID/ {print $3}'", in(name));
    FILE *pipe = popen(command, "r");
    cr_assert(fgets(id, 80, pipe));
    pclose(pipe);
    id[strcspn(id, "\n")] = '\0';
}

Test(elfimage, a_debug_file_that_is_cut_short)
{
    struct gp_object object;
    struct gp_intern intern = {0};
    struct gp_object_frame frames[GP_INLINES];
    char id[80];
    object_make("d.so", "-Wl,-z,noseparate-code");
    uint64_t at = offset_of("d.so", "function_7"), other = offset_of("d.so", "function_300");
    hex_id("d.so", id);
    cr_assert_eq(
        shell("cd %s && mkdir .debug && objcopy --only-keep-debug d.so .debug/d.debug && strip -g -o new d.so && "
              "objcopy --add-gnu-debuglink=.debug/d.debug new && mv new d.so",
              folder),
        0);
    const struct gp_object_source source = {.root = "", .path = in("d.so"), .build_id = id, .room = &room};
    room = ROOM;
    cr_assert_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_FINE);
    cr_expect_eq(gp_object_lookup(&object, at + 1, frames), 1);
    cr_expect_eq(frames[0].line, 8);
    cr_assert_eq(truncate(in(".debug/d.debug"), 100), 0);
    cr_expect_eq(gp_object_lookup(&object, other + 1, frames), 1);
    cr_expect_eq(frames[0].line, 301);
    gp_object_close(&object);
    gp_intern_free(&intern);
}

/* It is there, and a reader who put it there should know why it is not used. */
Test(elfimage, a_debug_file_of_another_build_is_named)
{
    struct gp_object object;
    struct gp_intern intern = {0};
    struct gp_object_frame frames[GP_INLINES];
    char id[80];
    object_make("e.so", "-Wl,-z,noseparate-code");
    object_make("other.so", "-DOTHER -Wl,-z,now");
    uint64_t at = offset_of("e.so", "function_7");
    hex_id("e.so", id);
    cr_assert_eq(shell("cd %s && mkdir -p .debug && objcopy --only-keep-debug other.so .debug/e.debug && "
                       "strip -g -o new e.so && objcopy --add-gnu-debuglink=.debug/e.debug new && mv new e.so",
                       folder),
                 0);
    const struct gp_object_source source = {.root = "", .path = in("e.so"), .build_id = id, .room = &room};
    room = ROOM;
    cr_assert_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_FINE);
    cr_expect_eq(gp_object_lookup(&object, at + 1, frames), 1);
    cr_expect_eq(frames[0].line, 0);
    cr_assert(object.refused && strstr(object.refused, "/.debug/e.debug"), "%s", object.refused ? object.refused : "");
    gp_object_close(&object);
    gp_intern_free(&intern);
}

/* ---- packed too well --------------------------------------------------------------------------------------------- */

/* Writes zeros, packed as .zdebug_* and SHF_COMPRESSED have them. */
static void zeros_packed(const char *name, bool old)
{
    static unsigned char block[1 << 16], out[1 << 16];
    z_stream stream = {0};
    FILE *file = fopen(in(name), "wb");
    const Elf64_Chdr head = {.ch_type = ELFCOMPRESS_ZLIB, .ch_size = PACKED, .ch_addralign = 1};
    if (old)
        fwrite("ZLIB\0\0\0\0\x12\xc0\0\0", 1, 12, file);
    else
        fwrite(&head, 1, sizeof(head), file);
    cr_assert_eq(deflateInit(&stream, 9), Z_OK);
    for (unsigned done = 0; done <= PACKED; done += sizeof(block)) {
        stream.next_in = block;
        stream.avail_in = done < PACKED ? sizeof(block) : 0;
        do {
            stream.next_out = out;
            stream.avail_out = sizeof(out);
            deflate(&stream, done < PACKED ? Z_NO_FLUSH : Z_FINISH);
            fwrite(out, 1, sizeof(out) - stream.avail_out, file);
        } while (stream.avail_out == 0);
    }
    deflateEnd(&stream);
    fclose(file);
}

/* Sets a flag of a section. */
static void section_flag(const char *name, const char *section, uint64_t flag)
{
    Elf64_Ehdr head;
    Elf64_Shdr at, names;
    char text[64];
    int fd = open(in(name), O_RDWR | O_CLOEXEC);
    cr_assert_eq(pread(fd, &head, sizeof(head), 0), (ssize_t)sizeof(head));
    cr_assert_eq(pread(fd, &names, sizeof(names), (off_t)(head.e_shoff + head.e_shstrndx * sizeof(names))),
                 (ssize_t)sizeof(names));
    bool found = false;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        off_t place = (off_t)(head.e_shoff + i * sizeof(at));
        cr_assert_eq(pread(fd, &at, sizeof(at), place), (ssize_t)sizeof(at));
        cr_assert_gt(pread(fd, text, sizeof(text), (off_t)(names.sh_offset + at.sh_name)), 0);
        if (strncmp(text, section, sizeof(text)) != 0)
            continue;
        at.sh_flags |= flag;
        found = pwrite(fd, &at, sizeof(at), place) == (ssize_t)sizeof(at);
    }
    cr_assert(found, "%s", section);
    close(fd);
}

/* A note tells a person so. */
static void expect_note(const char *name)
{
    struct gp_symbols *symbols;
    const struct gp_frame_text *frames;
    char strings[400] = "";
    snprintf(strings + 1, sizeof(strings) - 1, "%s", in(name));
    const struct gp_rec_module module = {.start = 1 << 20, .end = 1 << 30, .path = 1};
    const struct gp_rec_frame frame = {.pc = (1 << 20) + offset_of(name, "function_7") + 2};
    const struct gp_rec_site sites[2] = {{0}, {.frame_count = 1}};
    const struct gp_symbol_source source = {sites, &frame, &module, strings, 2, 1, 1, "", NULL, 0};
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_expect_eq(gp_symbols_site(symbols, 1, &frames), 1);
    cr_expect_str_eq(frames[0].function, "function_7");
    bool found = false;
    const char *note;
    for (uint32_t i = 0; (note = gp_symbols_note(symbols, i)); i++)
        found |= strstr(note, "debug information") != NULL;
    cr_expect(found, "%s", name);
    gp_symbols_free(symbols);
}

/* Its functions have their names, and no lines. */
static void expect_cut(const char *name)
{
    struct gp_object object;
    struct gp_intern intern = {0};
    struct gp_object_frame frames[GP_INLINES];
    const struct gp_object_source source = {.root = "", .path = in(name), .build_id = "", .room = &room};
    room = ROOM;
    cr_assert_eq(gp_object_open(&object, &intern, &source), GP_OBJECT_UNCHECKED);
    cr_expect_eq(gp_object_lookup(&object, offset_of(name, "function_7") + 1, frames), 1);
    cr_expect_str_eq(frames[0].function, "function_7");
    cr_expect_eq(frames[0].line, 0);
    cr_expect(object.is_cut);
    gp_object_close(&object);
    gp_intern_free(&intern);
    expect_note(name);
    cr_expect_lt(peak_mib(), 150, "%lu MiB", peak_mib());
}

Test(elfimage, debug_information_that_unpacks_to_300_mib)
{
    object_make("b.so", "-Wl,--build-id=none -Wl,-z,noseparate-code");
    zeros_packed("old", true);
    zeros_packed("new", false);
    cr_assert_eq(shell("cd %s && objcopy --add-section .zdebug_macro=old b.so old.so && objcopy --add-section "
                       ".debug_macro=new b.so new.so && objcopy --add-section .zdebug_macro=new b.so both.so",
                       folder),
                 0);
    expect_cut("old.so");
    section_flag("new.so", ".debug_macro", SHF_COMPRESSED);
    expect_cut("new.so");
    section_flag("both.so", ".zdebug_macro", SHF_COMPRESSED);
    expect_cut("both.so");
}

/* The symbols that Fedora keeps in programs, packed with xz. */
Test(elfimage, packed_symbols)
{
    bool is_cut;
    if (shell("command -v xz >/dev/null") != 0)
        cr_skip_test("no xz");
    object_make("x.so", "-g0 -Wl,-z,noseparate-code");
    cr_assert_eq(
        shell("cd %s && cp x.so small && xz small && objcopy --add-section .gnu_debugdata=small.xz x.so small.so"
              " && head -c 300M /dev/zero | xz >bomb && objcopy --add-section .gnu_debugdata=bomb x.so bomb.so",
              folder),
        0);
    const struct {
        const char *name;
        bool is_cut;
    } rows[] = {{"small.so", false}, {"bomb.so", true}};
    for (int i = 0; i < 2; i++) {
        room = ROOM;
        int fd = open(in(rows[i].name), O_RDONLY | O_CLOEXEC), copy = gp_elf_image(fd, GP_ELF_NAMES, &room, &is_cut);
        cr_expect_geq(copy, 0);
        cr_expect_eq(is_cut, rows[i].is_cut, "%s", rows[i].name);
        close(copy), close(fd);
    }
    cr_expect_lt(peak_mib(), 150, "%lu MiB", peak_mib());
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

static int copied(const char *name, uint64_t most, bool *is_cut)
{
    room = most;
    int fd = open(in(name), O_RDONLY | O_CLOEXEC), copy = gp_elf_image(fd, GP_ELF_NAMES, &room, is_cut);
    close(fd);
    return copy;
}

/* What is not there is not read. */
static void expect_hidden(int copy)
{
    Elf64_Ehdr head;
    Elf64_Shdr at;
    unsigned shown = 0;
    cr_assert_eq(pread(copy, &head, sizeof(head), 0), (ssize_t)sizeof(head));
    for (unsigned i = 0; i < head.e_shnum; i++) {
        cr_assert_eq(pread(copy, &at, sizeof(at), (off_t)(head.e_shoff + i * sizeof(at))), (ssize_t)sizeof(at));
        cr_expect(!(at.sh_flags & SHF_ALLOC) || at.sh_type != SHT_PROGBITS, "section %u", i);
        cr_expect(!(at.sh_flags & SHF_COMPRESSED), "section %u", i);
        shown += at.sh_type == SHT_PROGBITS;
    }
    cr_expect_gt(shown, 3u, "debug information");
}

Test(elfimage, takes_what_is_needed_within_its_room)
{
    bool is_cut;
    struct stat whole, part;
    object_make("s.so", "-Wl,-z,noseparate-code");
    /* A hundred MiB that are not needed. */
    cr_assert_eq(
        shell("cd %s && head -c 100M /dev/urandom >big && objcopy --add-section .nv_fatbin=big s.so l.so", folder), 0);
    section_flag("l.so", ".nv_fatbin", SHF_COMPRESSED);
    int copy = copied("l.so", ROOM, &is_cut);
    cr_assert_geq(copy, 0);
    cr_assert_eq(stat(in("l.so"), &whole), 0);
    cr_assert_eq(fstat(copy, &part), 0);
    cr_expect_eq(part.st_size, whole.st_size);
    cr_expect_lt(part.st_blocks * 512, 4 << 20);
    cr_expect(!is_cut);
    expect_hidden(copy);
    cr_expect_gt(ROOM - room, 10000u);
    uint64_t used = ROOM - room;
    close(copy);
    copy = copied("l.so", used, &is_cut);
    cr_expect(copy >= 0 && !is_cut && room == 0);
    close(copy);
    copy = copied("l.so", used - 1, &is_cut);
    cr_expect(copy >= 0 && is_cut, "the symbols fit");
    close(copy);
    cr_expect_eq(copied("l.so", 1000, &is_cut), -EFBIG);
    cr_assert_eq(shell("cd %s && head -c 1000 s.so >short && echo text >text && truncate -s 65G huge", folder), 0);
    cr_expect_eq(copied("short", ROOM, &is_cut), -ENOEXEC);
    cr_expect_eq(copied("text", ROOM, &is_cut), -ENOEXEC);
    cr_expect_eq(copied("huge", ROOM, &is_cut), -EFBIG);
}

/* Sections may lie anywhere, also over the headers: what was checked stays. */
Test(elfimage, sections_over_headers)
{
    bool is_cut;
    Elf64_Ehdr head;
    Elf64_Shdr at;
    object_make("h.so", "-Wl,-z,noseparate-code");
    int fd = open(in("h.so"), O_RDWR | O_CLOEXEC);
    cr_assert_eq(pread(fd, &head, sizeof(head), 0), (ssize_t)sizeof(head));
    for (unsigned i = 1; i < head.e_shnum; i++) {
        off_t place = (off_t)(head.e_shoff + i * sizeof(at));
        cr_assert_eq(pread(fd, &at, sizeof(at), place), (ssize_t)sizeof(at));
        Elf64_Shdr moved = at;
        moved.sh_offset = i % 2 ? 0 : head.e_shoff;
        cr_assert_eq(pwrite(fd, &moved, sizeof(moved), place), (ssize_t)sizeof(moved));
        int copy = copied("h.so", ROOM, &is_cut);
        if (copy >= 0) {
            Elf64_Ehdr now;
            cr_assert_eq(pread(copy, &now, sizeof(now), 0), (ssize_t)sizeof(now));
            cr_expect_eq(memcmp(&now, &head, sizeof(head)), 0);
            close(copy);
        } else {
            cr_expect(copy == -ENOEXEC || copy == -EFBIG, "section %u: %d", i, copy);
        }
        moved.sh_offset = UINT64_MAX - 5;
        cr_assert_eq(pwrite(fd, &moved, sizeof(moved), place), (ssize_t)sizeof(moved));
        copy = copied("h.so", ROOM, &is_cut);
        if (copy >= 0)
            close(copy);
        cr_assert_eq(pwrite(fd, &at, sizeof(at), place), (ssize_t)sizeof(at));
    }
    close(fd);
}
