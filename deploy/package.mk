# SPDX-License-Identifier: MIT
# Packages: `make wheel` and `make deb`.  Included by the Makefile.
.PHONY: needs-package wheel wheel-file deb deb-files
needs-package:
	$(Q)deploy/needs.sh package

# ---- wheel -----------------------------------------------------------------------------------------------------------
# Its command has every library but the C library inside, from the static archives of Debian, and needs glibc 2.28
# (deploy/wheel/oldglibc.c).  NAME:PACKAGE, because their licences go with it.  The order is that of the link.
WHEEL_ARCHIVES := jansson:libjansson-dev ncursesw:libncurses-dev tinfo:libncurses-dev dw:libdw-dev elf:libelf-dev sqlite3:libsqlite3-dev \
  protobuf-c:libprotobuf-c-dev bpf:libbpf-dev elf:libelf-dev microhttpd:libmicrohttpd-dev zstd:libzstd-dev lzma:liblzma-dev bz2:libbz2-dev \
  z:zlib1g-dev iberty:libiberty-dev
WHEEL_LIBS := $(foreach a,$(WHEEL_ARCHIVES),-l:lib$(firstword $(subst :, ,$(a))).a)
WHEEL_CPU := $(firstword $(subst -, ,$(TARGET)))
WHEEL_BIN := $(B)/wheel/gpuprof
WHEEL_OBJ := $(foreach f,oldglibc notls elftrees,$(B)/obj/deploy/wheel/$f.o)
$(B)/obj/deploy/%.o: deploy/%.c $(STAMP)
	$(call compile,$(ALL_CFLAGS) -fPIE)

$(WHEEL_BIN): $(TOOL_OBJ) $(CORE) $(WHEEL_OBJ)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)archive=$$($(CC) -print-file-name=libmicrohttpd.a) && [ -f "$$archive" ] || { echo "make wheel: no libmicrohttpd.a: run deploy/needs.sh build" >&2; exit 1; }; \
	$(CC) -pie $(ALL_LDFLAGS) -static-libgcc -o $@.new $(TOOL_OBJ) $(CORE) $(WHEEL_OBJ) \
	  $$(sed -n 's/^OLD\(_STAT\|_NAMED\)\?(\([a-z0-9_]*\),.*/-Wl,--wrap=\2/p; s/^int __wrap_\([a-z0-9_]*\)(.*;$$/-Wl,--wrap=\1/p' deploy/wheel/oldglibc.c) -Wl,--wrap=__libc_start_main \
	  $$(nm -u "$$archive" 2>/dev/null | sed -n 's/.* \(gnutls_[a-z0-9_]*\)$$/-Wl,--defsym=\1=gp_wheel_no_tls/p' | sort -u) $(WHEEL_LIBS) $(OLD_GLIBC) -lm
	$(Q)mv -f $@.new $@

wheel: needs-package ## the Python wheel, with everything that it needs, in build/wheel
	$(again) wheel-file
wheel-file: $(WHEEL_BIN) $(LIB) $(SHIM) $(SIM)
	$(Q)STRIP=$(CROSS)strip python3 deploy/wheel/build.py $(B) $(WHEEL_CPU) "$(SYSROOT)" $(sort $(foreach a,$(WHEEL_ARCHIVES),$(lastword $(subst :, ,$(a)))))

# ---- Debian packages -------------------------------------------------------------------------------------------------
# Their command looks for libraries only where the system has them.
$(B)/deb/gpuprof: $(TOOL_OBJ) $(CORE)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,-z,relro,-z,now -o $@.new $(TOOL_OBJ) $(CORE) $(TOOL_LIBS)
	$(Q)mv -f $@.new $@

deb: needs-package ## Debian packages for this release of Debian, in build/deb
	$(again) deb-files
deb-files: all $(B)/deb/gpuprof
	$(Q)deploy/debian/build.sh $(B) $(VERSION)
