#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes the Debian packages from what is built, with the tools of dpkg-dev.  `make deb` calls it.
#
#   build.sh BUILD_DIR VERSION
#
# The packages lie in BUILD_DIR/deb.  They depend on the versions of libraries that this system has.  DEBFULLNAME and DEBEMAIL
# name the maintainer (without them an address that takes no mail), SOURCE_DATE_EPOCH the time (that of the last commit, or now).
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "$1") version=$2
here=$PWD/deploy/debian
work=$build/deb/work
rm -rf "$work" "$build"/deb/*.deb
mkdir -p "$work/debian"
umask 022
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-The gpuprof authors} <${DEBEMAIL:-noreply@gpuprof.dev}>"
sed "s|@MAINTAINER@|$maintainer|" "$here/control" >"$work/debian/control"
cat >"$work/debian/changelog" <<END
gpuprof ($version) unstable; urgency=medium

  * Version $version; NEWS.md describes it.

 -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END

all=$work/all
deploy/install.sh install "$build" /usr "$all" "$version" >/dev/null
put() { # PACKAGE PATH [NEW_PATH]: moves a file of the installation into a package
    local to=$work/$1/usr/${3:-$2}
    mkdir -p "${to%/*}"
    mv "$all"/usr/$2 "$to"
}
put libgpuprof1 lib/libgpuprof.so
put libgpuprof1 lib/libgpuprof-shim.so
put libgpuprof-dev include/gpuprof
put libgpuprof-dev lib/pkgconfig/gpuprof.pc "lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/pkgconfig/gpuprof.pc"
put gpuprof bin/gpuprof
install -m 755 "$build/deb/gpuprof" "$work/gpuprof/usr/bin/gpuprof" # without a run path
for name in libcuda.so.1 libnvidia-ml.so.1 libcupti.so.13 libcupti.so.12 libcudart.so.13 libcudart.so.12 libgpuprof-sim.so; do put gpuprof "lib/gpuprof/sim/$name"; done
put gpuprof "lib/gpuprof/sim/bin/nvidia-smi"
put gpuprof lib/gpuprof/sim/standin
put gpuprof lib/gpuprof/sim/python
put gpuprof share/man/man1/gpuprof.1
gzip -9n "$work/gpuprof/usr/share/man/man1/gpuprof.1"
put gpuprof share/bash-completion/completions/gpuprof
put gpuprof share/fish/vendor_completions.d/gpuprof.fish
put gpuprof share/zsh/site-functions/_gpuprof share/zsh/vendor-completions/_gpuprof
put gpuprof lib/systemd/system/gpuprof-agent.service
put gpuprof share/doc/gpuprof
mkdir -p "$work/gpuprof/etc/default" "$work/gpuprof/DEBIAN"
mv "$work/gpuprof/usr/share/doc/gpuprof/examples/gpuprof-agent.default" "$work/gpuprof/etc/default/gpuprof-agent"
echo /etc/default/gpuprof-agent >"$work/gpuprof/DEBIAN/conffiles"
rm "$all/usr/lib/gpuprof/installed" "$all/usr/lib/gpuprof/sim/libcudart_static.a"
[ -z "$(find "$all" -type f)" ] || { echo "make deb: no package has: $(find "$all" -type f)" >&2; exit 1; }

copyright() { # PACKAGE: the command contains the works that NOTICE names; Debian has the text of Apache's licence
    cat "$here/../../LICENSE"
    [ "$1" != gpuprof ] || {
        printf '\n--------------------------------------------------------------------------------\n\n'
        awk '/^Apache License$/ { print "See /usr/share/common-licenses/Apache-2.0.\n"; skip = 1 } /^-----/ { skip = 0 } !skip' "$here/../../NOTICE"
    }
}

packages=$work/python3-gpuprof/usr/lib/python3/dist-packages
mkdir -p "$packages/gpuprof/compat"
install -m 644 python/gpuprof/*.py python/gpuprof/py.typed "$packages/gpuprof/"
install -m 644 python/gpuprof/compat/*.py "$packages/gpuprof/compat/"
name=$(sed -n 's/^name = "\(.*\)"$/\1/p' python/pyproject.toml)
info=$packages/${name//-/_}-$version.dist-info
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$name" "$version" >"$info/METADATA"
echo dpkg >"$info/INSTALLER"

find "$work" -path "$all" -prune -o -type f \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded -R .comment {} + -exec chmod 644 {} +
strip -R .comment "$work/gpuprof/usr/bin/gpuprof"
cd "$work"
for package in gpuprof libgpuprof1 libgpuprof-dev python3-gpuprof; do
    documents=$package/usr/share/doc/$package
    mkdir -p "$documents" "$package/DEBIAN"
    copyright "$package" >"$documents/copyright"
    gzip -9nc debian/changelog >"$documents/changelog.gz"
    if [ -f "$here/$package.lintian" ]; then
        install -D -m 644 "$here/$package.lintian" "$package/usr/share/lintian/overrides/$package"
    fi
    for script in preinst postinst prerm postrm; do
        [ ! -f "$here/$package.$script" ] || install -m 755 "$here/$package.$script" "$package/DEBIAN/$script"
    done
    [ ! -f "$here/$package.triggers" ] || install -m 644 "$here/$package.triggers" "$package/DEBIAN/triggers"
    variables=debian/$package.substvars
    : >"$variables"
    [ "$package" != libgpuprof1 ] || dpkg-gensymbols -p"$package" -P"$package" -q
    mapfile -t programs < <(find "$package/usr" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.*' \))
    [ ${#programs[@]} = 0 ] || dpkg-shlibdeps --warnings=1 -T"$variables" -Slibgpuprof1 -xlibgpuprof1 --ignore-missing-info "${programs[@]}"
    find "$package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    (cd "$package" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-gencontrol -p"$package" -P"$package" -T"$variables" -ldebian/changelog -cdebian/control
    dpkg-deb --root-owner-group --build "$package" "$build/deb" >/dev/null
done
cd "$build/deb"
rm -rf "$work"
ls -1 "$PWD"/*.deb
