# SPDX-License-Identifier: MIT
# The BPF object and the header that carries it inside the command (bpftool's skeleton).  Included by the Makefile.
BPF_CLANG ?= clang
# Debian installs it in sbin, which is not in every user's PATH.
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool) bpftool)
BPF_ARCH := $(if $(findstring aarch64,$(TARGET)),arm64,x86)
BPF_OBJ := $(B)/gen/gpuprof.bpf.o
BPF_SKEL := $(B)/gen/gpuprof.skel.h
$(BPF_OBJ): bpf/gpuprof.bpf.c bpf/vmlinux.h bpf/loaderabi.h bpf/container.h bpf/events.h include/gpuprof/maps.h include/gpuprof/batch.h include/gpuprof/wire.h
	$(call say,BPF,$@)
	@mkdir -p $(@D)
	$(Q)$(BPF_CLANG) -target bpf -mcpu=v3 -O2 -g -ffile-prefix-map=$(CURDIR)=. -ffreestanding -Wall -Wextra -D__TARGET_ARCH_$(BPF_ARCH) -Iinclude -Ibpf -I$(SYSROOT)/usr/include/$(TARGET) -c $< -o $@
# The stripped object keeps BTF, which libbpf reads, and loses DWARF, which names the build folder.
$(BPF_SKEL): $(BPF_OBJ)
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen object $(@D)/gpuprof.stripped.o $< && $(BPFTOOL) gen skeleton $(@D)/gpuprof.stripped.o name gpuprof_bpf > $@.new && mv -f $@.new $@
$(B)/obj/tools/agent/kernel/%.o: TOOL_CFLAGS += -I$(B)/gen -Ibpf
$(B)/obj/tools/agent/kernel/bpf.o: | $(BPF_SKEL)
