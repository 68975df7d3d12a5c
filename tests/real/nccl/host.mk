# SPDX-License-Identifier: MIT
# NCCL's host code without its kernels, for the simulated GPU's runtime: make -f host.mk SOURCE=... OUT=... SIM=... CUDA=...
# SOURCE: a copy of NCCL's source, which nccl.sh has changed.  CUDA: folders of headers, cccl's too.
VERSION := $(shell sed -n 's/^NCCL_\(MAJOR\|MINOR\|PATCH\) *:= *//p' $(SOURCE)/makefiles/version.mk)
MAJOR := $(word 1,$(VERSION))
MINOR := $(word 2,$(VERSION))
PATCH := $(word 3,$(VERSION))
LEFT_OUT := ras/client.cc param/ncclparam.cc transport/net_socket_stub.cc transport/net_ib_stub.cc enhcompat.cc os/windows% \
	transport/gdaki/% transport/net_ib/gdaki/%
FILES := $(shell cd $(SOURCE)/src && find * -name '*.cc' ! -path 'device/*' ! -path '*doca*')
OBJECTS := $(patsubst %.cc,$(OUT)/%.o,$(filter-out $(LEFT_OUT),$(FILES)))
FLAGS := -DCUDA_MAJOR=13 -DCUDA_MINOR=0 -fPIC -fvisibility=hidden -w -std=c++17 -O0 -DNCCL_OS_LINUX -DNVTX_DISABLE \
	-DNCCL_GIN_PROXY_ENABLE=0 -DNCCL_GIN_GDAKI_ENABLE=0 -DPROFAPI -I$(SOURCE)/src -I$(OUT)/include -I$(SOURCE)/src/include \
	-I$(SOURCE)/src/include/plugin -I$(SOURCE)/src/device $(CUDA:%=-I%) \
	$(patsubst %,-I%/include,$(wildcard $(SOURCE)/src/transport/gdaki/doca-gpunetio $(SOURCE)/src/transport/net_ib/gdaki/doca-gpunetio))

# What refers to kernels, which are not there, gets a function that does nothing.
$(OUT)/libnccl.so.2: $(OBJECTS) $(OUT)/tables
	cd $(OUT) && for f in gen/host_table.cc gen/symmetric/*.cc; do g++ $(FLAGS) -c $$f -o tables_$$(basename $$f).o || exit 1; done
	g++ -shared -o $(OUT)/first.so $(OBJECTS) $(OUT)/tables_*.o -L$(SIM) -l:libcudart.so.13 -lpthread -ldl -lrt
	nm -D -u $(OUT)/first.so | awk 'tolower($$2) ~ /nccl|doca/ && $$2 !~ /^_ZTH/ {print "int " $$2 "(void) { return 0; }"}' >$(OUT)/none.c
	cc -w -fPIC -c $(OUT)/none.c -o $(OUT)/none.o
	g++ -shared -Wl,-soname,libnccl.so.2 -o $@ $(OBJECTS) $(OUT)/tables_*.o $(OUT)/none.o -L$(SIM) -l:libcudart.so.13 -lpthread -ldl -lrt
$(OUT)/include/nccl.h: $(SOURCE)/src/nccl.h.in
	mkdir -p $(OUT)/include $(OUT)/gen/symmetric
	sed 's/$${nccl:Major}/$(MAJOR)/g; s/$${nccl:Minor}/$(MINOR)/g; s/$${nccl:Patch}/$(PATCH)/g; s/$${nccl:Suffix}//g' $< | \
		sed "s/\$${nccl:Version}/$$(printf '%d%02d%02d' $(MAJOR) $(MINOR) $(PATCH))/g" >$@
	cp -r $(SOURCE)/src/include/nccl_device* $(OUT)/include/
	printf '#define NCCL_GIT_BRANCH ""\n#define NCCL_GIT_COMMIT_HASH ""\n' >$(OUT)/include/nccl_git_version.h
$(OUT)/tables: $(OUT)/include/nccl.h
	cd $(SOURCE)/src/device && ./generate.py $(OUT)/gen "" >/dev/null && ./symmetric/generate.py $(OUT)/gen/symmetric >/dev/null
	touch $@
$(OUT)/%.o: $(SOURCE)/src/%.cc $(OUT)/include/nccl.h
	@mkdir -p $(@D)
	g++ $(FLAGS) -c $< -o $@
