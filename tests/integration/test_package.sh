#!/bin/bash
# SPDX-License-Identifier: MIT
# What `make wheel` and `make deb` write: the tag is true, the contents are complete and nothing else, and the command of the wheel
# runs from wherever it is unpacked.  The Python package installs from source without a network.  tests/real/packages.sh
# installs them in other releases.
# Run: script
set -u
cd "$(dirname "$0")/../.."
for archive in microhttpd lzma bz2; do
    [ -f "$(${CC:-cc} -print-file-name=lib$archive.a)" ] || { echo "no lib$archive.a: deploy/needs.sh package"; exit 77; }
done
build=$PWD/build
work=$(mktemp -d /tmp/gpuprof-test-package.XXXXXX)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$work/out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; tail -n 30 "$work/out"; fi
}
own_make() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory "$@"; }
version=$(awk '/define GPUPROF_VERSION_/ {v = v "." $3} END {print substr(v, 2)}' include/gpuprof/gpuprof.h)
cpu=$(uname -m)
wheel=$build/wheel/gpuprof_cuda-$version-py3-none-manylinux_2_28_$cpu.whl

# ---- wheel -----------------------------------------------------------------------------------------------------------
check "the wheel" own_make wheel-file
cat >"$work/wheel.py" <<'END'
import base64, csv, email, hashlib, io, os, sys, zipfile

wheel = zipfile.ZipFile(sys.argv[1])
version, where, build = sys.argv[2:]
info = f"gpuprof_cuda-{version}.dist-info"
names = wheel.namelist()
assert len(set(names)) == len(names)
rows = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
assert sorted(row[0] for row in rows) == sorted(names)
for name, digest, size in rows:
    if name != f"{info}/RECORD":
        data = wheel.read(name)
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() and int(size) == len(data), name
about = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
assert (about["Name"], about["Version"]) == ("gpuprof-cuda", version)
assert len(about["Summary"]) < 512 and about["Description-Content-Type"] == "text/markdown" and len(about.get_payload()) > 500
assert {f"{info}/licenses/{name}" for name in about.get_all("License-File")} <= set(names)
for what in "libdw-dev", "libmicrohttpd-dev", "libsqlite3-dev", "common/LGPL-3":  # a licence for what the command contains
    assert f"{info}/licenses/command/{what}" in names, what
tag = email.message_from_bytes(wheel.read(f"{info}/WHEEL"))["Tag"]
assert sys.argv[1].endswith(f"-{tag}.whl")
native = sorted(name[len("gpuprof/_native/"):] for name in names if name.startswith("gpuprof/_native/"))
sim = [f"lib/gpuprof/sim/{name}" for name in ("bin/nvidia-smi", "libcuda.so.1", "libcudart.so.12", "libcudart.so.13", "libcupti.so.12", "libcupti.so.13", "libgpuprof-sim.so", "libnvidia-ml.so.1")]
sim += sorted(f"lib/gpuprof/sim/python/{name}" for name in os.listdir("sim/python") if name.endswith(".py"))
sim += sorted(f"lib/gpuprof/sim/standin/{name}" for name in os.listdir(os.path.join(build, "lib/gpuprof/sim/standin")))
assert native == ["bin/gpuprof"] + sim + ["lib/libgpuprof-shim.so", "lib/libgpuprof.so"], native
source = {os.path.relpath(os.path.join(folder, name), "python") for folder, _, files in os.walk("python/gpuprof") for name in files if name.endswith((".py", ".typed"))}
assert {name for name in names if name.startswith("gpuprof/") and "/_native/" not in name} == source
assert [name for name in names if ".data/" in name] == [f"gpuprof_cuda-{version}.data/scripts/gpuprof"]
for entry in wheel.infolist():
    assert entry.filename.startswith(("gpuprof/", "gpuprof_cuda-")) and ".." not in entry.filename
    os.chmod(wheel.extract(entry, where), entry.external_attr >> 16 & 0o777)
END
check "its contents" python3 "$work/wheel.py" "$wheel" "$version" "$work/wheel" "$build"
native=$work/wheel/gpuprof/_native
check "glibc 2.17 for what is loaded" tests/lint/check-glibc "$native"/lib/*.so "$native"/lib/gpuprof/sim/*.so.* "$native"/lib/gpuprof/sim/standin/*
check "glibc 2.28 for the command" env GPUPROF_GLIBC=2.28 tests/lint/check-glibc "$native/bin/gpuprof"
no_names() { ! grep -aqE "$PWD|/home/" "$native/bin/gpuprof" "$native"/lib/*.so; }
check "no folder of the build in it" no_names
check "the command starts" [ "$("$native/bin/gpuprof" --version)" = "gpuprof $version" ]
record() {
    "$native/bin/gpuprof" run --sim --record="$work/r.gpuprof" -- "$build/examples/train_rt" --seconds 1 &&
        "$native/bin/gpuprof" report -o "$work/r.html" "$work/r.gpuprof" && grep -q '<html' "$work/r.html" && "$native/bin/gpuprof" peak "$work/r.gpuprof"
}
check "run, record, report" record
same_symbols() { # the static libraries give the same names and lines
    "$build/bin/gpuprof" peak "$work/r.gpuprof" >"$work/shared" && "$native/bin/gpuprof" peak "$work/r.gpuprof" | diff "$work/shared" -
}
check "the command of the build says the same" same_symbols
mv "$wheel" "$work/first.whl"
again() { own_make wheel-file && cmp "$work/first.whl" "$wheel"; }
check "another build is equal" again
[ -n "${GPUPROF_TEST_FULL:-}" ] && command -v twine >/dev/null && check "twine check" twine check --strict "$wheel"

# ---- Python from source ----------------------------------------------------------------------------------------------
if [ -n "${GPUPROF_TEST_FULL:-}" ] && python3 -c "import venv, ensurepip" 2>/dev/null; then
    environment() { python3 -m venv "$work/venv"; }
    check "an environment" environment
    find "$work/venv" ! -path '*/__pycache__*' ! -path '*/pip/*' | sort >"$work/before"
    pip=$work/venv/bin/pip
    says() { [ "$(cd / && "$work/venv/bin/python" -c 'import gpuprof; print(gpuprof.__version__)')" = "$version" ]; }
    nothing_left() { "$pip" uninstall -q -y gpuprof-cuda && find "$work/venv" ! -path '*/__pycache__*' ! -path '*/pip/*' | sort | diff "$work/before" -; }
    check "pip install ./python" "$pip" install -q --no-index --no-build-isolation ./python
    check "it says its version" says
    check "its removal leaves nothing" nothing_left
    check "pip install -e ./python" "$pip" install -q --no-index -e ./python
    check "it says its version, from the tree" says
    check "its removal leaves nothing either" nothing_left
    check "pip install the wheel" "$pip" install -q --no-index "$wheel"
    check "the command of the environment" [ "$("$work/venv/bin/gpuprof" --version)" = "gpuprof $version" ]
    check "beside a source tree" [ "$(PYTHONPATH=$PWD/python "$work/venv/bin/gpuprof" --version)" = "gpuprof $version" ]
    check "pip install --target" "$pip" install -q --no-index --target "$work/target" "$wheel"
    check "the command of the target" [ "$("$work/target/bin/gpuprof" --version)" = "gpuprof $version" ]
    found() { [ "$("$work/venv/bin/python" -P -c 'import gpuprof._library as l; print(l.find_command())' 2>&1)" = "$(echo "$work"/venv/lib/python*/site-packages/gpuprof/_native/bin/gpuprof)" ]; }
    check "the package finds its own command" found
    check "the wheel's removal leaves nothing" nothing_left
    [ -z "$(git status --porcelain --ignored python 2>/dev/null | grep -v __pycache__ | grep '^!!')" ] || { failed=$((failed + 1)); echo "FAILED files in python/"; }
fi

# ---- Debian packages -------------------------------------------------------------------------------------------------
if command -v dpkg-shlibdeps >/dev/null && command -v dpkg-deb >/dev/null; then
    check "the packages" own_make deb-files
    arch=$(dpkg --print-architecture)
    files() { dpkg-deb --fsys-tarfile "$build/deb/$1" | tar -t | sed 's|^\.||'; }
    all=
    for package in "gpuprof_${version}_$arch" "libgpuprof1_${version}_$arch" "libgpuprof-dev_${version}_$arch" "python3-gpuprof_${version}_all"; do
        check "$package" files "$package.deb"
        all="$all$(files "$package.deb")
"
    done
    for path in /usr/bin/gpuprof /usr/lib/libgpuprof.so /usr/lib/libgpuprof-shim.so /usr/lib/gpuprof/sim/libcuda.so.1 /usr/include/gpuprof/gpuprof.h \
        "/usr/lib/$cpu-linux-gnu/pkgconfig/gpuprof.pc" /usr/share/man/man1/gpuprof.1.gz /usr/lib/systemd/system/gpuprof-agent.service \
        /usr/share/doc/gpuprof/examples/gpuprof-agent-attach.conf /etc/default/gpuprof-agent \
        /usr/share/doc/gpuprof/prometheus/gpuprof.rules.yml /usr/share/doc/gpuprof/grafana/gpuprof.json \
        /usr/share/doc/gpuprof/grafana/gpuprof-fleet.json /usr/share/doc/gpuprof/docs/agent.md /usr/share/doc/gpuprof/docs/alerts.md \
        /usr/share/doc/gpuprof/docs/tutorials/out-of-memory.md /usr/share/doc/gpuprof/README.md /usr/share/doc/gpuprof/SECURITY.md \
        /usr/share/bash-completion/completions/gpuprof /usr/share/zsh/vendor-completions/_gpuprof \
        /usr/share/fish/vendor_completions.d/gpuprof.fish /usr/lib/python3/dist-packages/gpuprof/__init__.py; do
        check "a package has $path" grep -qx "$path" <<<"$all"
    done
    once() { [ -z "$(grep -v '/$' <<<"$all" | sort | uniq -d)" ]; }
    check "no file is in two packages" once
    conffiles() { [ "$(dpkg-deb -I "$build/deb/gpuprof_${version}_$arch.deb" conffiles)" = /etc/default/gpuprof-agent ]; }
    check "an administrator's options survive an upgrade" conffiles
    # The agent takes the options of the file that is shipped: each commented line is tried as the unit would.
    options() {
        grep -q '^GPUPROF_AGENT_OPTIONS=""$' deploy/systemd/gpuprof-agent.default && grep -q '^EnvironmentFile=-/etc/default/gpuprof-agent$' deploy/systemd/gpuprof-agent.service || return
        local line flag
        while IFS= read -r line; do
            for flag in $(grep -oE -- '--[a-z-]+' <<<"$line"); do "$build/bin/gpuprof" agent --help | grep -q -- "$flag" || { echo "no option $flag"; return 1; }; done
        done < <(grep '^#GPUPROF_AGENT_OPTIONS=' deploy/systemd/gpuprof-agent.default)
    }
    check "the examples of /etc/default have options that exist" options
    [ -z "${GPUPROF_TEST_FULL:-}" ] || ! command -v lintian >/dev/null || check "lintian" lintian --fail-on error,warning "$build"/deb/*.deb
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
