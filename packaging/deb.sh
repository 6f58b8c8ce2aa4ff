#!/bin/bash
# packaging/deb.sh - make Debian packages of a built tree.
#
#   packaging/deb.sh BUILT OUT
#
# BUILT is the folder of the built tree, OUT gets three packages, as Debian's policy (8) divides libraries:
#   elapse          the programs, manual pages, completion, documents
#   libelapse0      the shared library, without MPI and BLAS; 0 is ELAPSE_ABI_VERSION
#   libelapse-dev   header, static library, pkg-config file, example
# VERSION is that of the Makefile; a commit without the tag vVERSION adds ~gitDATE.COMMIT, which sorts before
# the release. ARCH is what the trainer was compiled for. DEBFULLNAME and DEBEMAIL name the maintainer. Files are dated by the last commit
# (SOURCE_DATE_EPOCH), so equal trees make equal packages.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
built=$1 out=$2
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v $tool >/dev/null || { echo "no $tool here: apt-get install dpkg-dev" >&2; exit 3; }
done
abi=$(sed -n 's/^#define ELAPSE_ABI_VERSION //p' library/elapse.h)
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

version=$VERSION
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(stat -c %Y CHANGELOG.md)}
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    git describe --exact-match --tags --match "v$VERSION" >/dev/null 2>&1 ||
        version=$VERSION~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(git rev-parse --short=10 HEAD)
fi
maintainer="${DEBFULLNAME:-Local build} <${DEBEMAIL:-root@localhost}>"

# --- the files of each package ----------------------------------------------------------------------
all=$work/all tool=$work/elapse lib=$work/libelapse$abi dev=$work/libelapse-dev
PREFIX=/usr LIBDIR=/usr/lib/$multiarch DESTDIR=$all STRIP=1 VERSION=$VERSION packaging/install.sh install "$built" >/dev/null
rm -r "$all/usr/share/elapse/installed" # dpkg has a list of its own
rm "$all/usr/share/doc/elapse/LICENSE"  # is in copyright
move() { # FROM TO
    mkdir -p "$(dirname "$2")"
    mv "$1" "$2"
}
mkdir -p "$tool" "$lib" "$dev"
for file in "$all/usr/lib/$multiarch"/libelapse.so.*; do
    move "$file" "$lib${file#"$all"}"
done
move "$all/usr/lib/$multiarch" "$dev/usr/lib/$multiarch"
move "$all/usr/include" "$dev/usr/include"
move "$all/usr/share/doc/elapse/examples/library" "$dev/usr/share/doc/libelapse-dev/examples"
mv "$all/usr" "$tool/usr"
[ ! -e "$tool/usr/share/zsh/site-functions" ] || mv "$tool/usr/share/zsh/site-functions" "$tool/usr/share/zsh/vendor-completions"

# --- what the policy wants in each ------------------------------------------------------------------
# needs FILE...: the packages whose libraries these need
mkdir "$work/debian"
echo "Source: elapse" >"$work/debian/control"
needs() {
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$@" 2>"$work/shlibdeps.log") | sed 's/^shlibs:Depends=//' ||
        { cat "$work/shlibdeps.log" >&2; exit 3; }
}
# package FOLDER SECTION DEPENDS RECOMMENDS, and the description on stdin
package() {
    local dir=$1 name doc
    name=$(basename "$dir")
    doc=$dir/usr/share/doc/$name
    mkdir -p "$dir/DEBIAN" "$doc"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: elapse\n\n'
        printf 'Files: *\nCopyright: %s\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) //p' LICENSE)"
        sed -e '1,/^Copyright/d' LICENSE | sed -e '1{/^$/d}' -e 's/^$/./' -e 's/^/ /'
    } >"$doc/copyright"
    printf 'elapse (%s) unstable; urgency=medium\n\n  * CHANGELOG.md of the package elapse says what is new.\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
    [ ! -d "$dir/usr/share/man" ] || find "$dir/usr/share/man" -type f -exec gzip -9n {} +
    {
        printf 'Package: %s\nSource: elapse\nVersion: %s\nArchitecture: %s\n' "$name" "$version" "$arch"
        printf 'Maintainer: %s\nSection: %s\nPriority: optional\n' "$maintainer" "$2"
        printf 'Installed-Size: %d\n' "$(du -k --apparent-size -s --exclude=DEBIAN "$dir" | cut -f1)"
        printf 'Depends: %s\n' "$3"
        [ -z "$4" ] || printf 'Recommends: %s\n' "$4"
        [ "$name" != "libelapse$abi" ] || echo 'Multi-Arch: same'
        sed '/^$/d'
    } >"$dir/DEBIAN/control"
    (cd "$dir" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$dir" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$dir" "$out/${name}_${version}_$arch.deb" >/dev/null
    echo "$out/${name}_${version}_$arch.deb"
}

mkdir -p "$out"
programs=("$tool/usr/bin/elapse") launcher=""
if [ -e "$tool/usr/lib/elapse/elapse-exec" ]; then
    programs+=("$tool"/usr/lib/elapse/*)
    launcher=", $(ldd "$tool/usr/lib/elapse/elapse-exec" | grep -q libmpich && echo mpich || echo openmpi-bin)"
fi
package "$tool" science "$(needs "${programs[@]}")$launcher" "gnuplot-nox | gnuplot" <<TEXT
Description: plan, simulate and run elastic pipeline training of transformers
 Elapse finds how to train a transformer on many devices: pipeline length,
 replicas, micro-batches, cut and schedule. It predicts the time and memory of a
 step and of a whole run, in which layers freeze and the rest is cut again, and
 trains the same plan on CPUs over MPI. One command compares prediction and run.
${ARCH:+ .
 The trainer is compiled with -march=$ARCH.}
TEXT

printf 'libelapse %s libelapse%s (>= %s)\n' "$abi" "$abi" "$VERSION~" >"$work/shlibs"
if compgen -G "$lib/usr/lib/$multiarch/libelapse.so.*" >/dev/null; then
    mkdir -p "$lib/DEBIAN"
    cp "$work/shlibs" "$lib/DEBIAN/shlibs"
    echo "activate-noawait ldconfig" >"$lib/DEBIAN/triggers"
    package "$lib" libs "$(needs "$lib/usr/lib/$multiarch"/libelapse.so.*)" "" <<'TEXT'
Description: plan and simulate elastic pipeline training - shared library
 This library answers what the commands "elapse plan" and "elapse sim" answer:
 the best plan of a training job, the time and memory of a step, a whole run.
TEXT
fi
package "$dev" libdevel "libelapse$abi (= $version), libsqlite3-dev, libcjson-dev, libc6-dev" "" <<'TEXT'
Description: plan and simulate elastic pipeline training - development files
 The header elapse.h, the static library, a pkg-config file and an example for
 programs that use libelapse.
TEXT
