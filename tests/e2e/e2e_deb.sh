#!/bin/bash
# tests/e2e/e2e_deb.sh - the Debian packages: what is in them, what they need, that they run unpacked.
# group: slow, seconds: 6
. "$(dirname "$0")/lib.sh"
begin
out=$(realpath "$(dirname "$elapse")/..")
if ! command -v dpkg-shlibdeps >/dev/null; then
    skip "packages" "no dpkg-shlibdeps here"
    finish
fi
if [ ! -e "$out/lib/libelapse.so" ]; then
    skip "packages" "no shared library under a sanitizer"
    finish
fi
version=$(sed -n 's/^VERSION := //p' Makefile)
check "packages are made" env VERSION="$version" ARCH=native DEB_COMPRESSION=none packaging/deb.sh "$out" "$tmp/deb"
names() { (cd "$tmp/deb" && echo *.deb | sed 's/_[^ ]*//g'); }
verify "the programs, the library, what a developer needs" test "$(names)" = "elapse libelapse-dev libelapse0"
field() { dpkg-deb -f "$tmp"/deb/"$1"_*.deb "$2"; }
sorts_before_the_release() {
    local got
    got=$(field elapse Version)
    [ "$got" = "$version" ] || { [[ $got =~ ^$version~git[0-9]{8}\.[0-9a-f]{10}$ ]] && dpkg --compare-versions "$got" lt "$version"; }
}
verify "the version is the Makefile's, before the release with date and commit" sorts_before_the_release
contents() { dpkg-deb -c "$tmp"/deb/"$1"_*.deb | awk '{print $1, $2, $6}'; }
lists() { # PACKAGE PATTERN...: files that it has, all of root
    local package=$1 pattern
    contents "$package" >"$tmp/contents"
    ! grep -vE '^[^ ]* root/root ' "$tmp/contents" || return 1
    for pattern in "${@:2}"; do
        grep -Eq " \\./usr/$pattern( |$)" "$tmp/contents" || { echo "no $pattern"; return 1; }
    done
}
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
verify "elapse has the programs, manual pages, completion, documents" lists elapse bin/elapse \
    share/man/man1/elapse-plan.1.gz share/bash-completion/completions/elapse share/zsh/vendor-completions/_elapse \
    share/doc/elapse/copyright share/doc/elapse/examples/demo.json
verify "libelapse0 has the library" lists libelapse0 "lib/$multiarch/libelapse.so.0"
verify "libelapse-dev has the rest" lists libelapse-dev include/elapse.h "lib/$multiarch/libelapse.a" \
    "lib/$multiarch/libelapse.so" "lib/$multiarch/pkgconfig/elapse.pc" share/doc/libelapse-dev/examples/plan.c
no_file_twice() {
    local package
    for package in elapse libelapse0 libelapse-dev; do contents $package | awk '!/\/ *$/ {print $3}'; done | sort | uniq -d | grep . && return 1
    return 0
}
verify "no file is in two packages, or the record of make install in one" bash -c "
    $(declare -f contents no_file_twice); tmp='$tmp'; no_file_twice && ! contents elapse | grep share/elapse/installed"
needs() { # PACKAGE WANTED UNWANTED: patterns over the packages that it depends on
    field "$1" Depends >"$tmp/depends"
    grep -Eq "$2" "$tmp/depends" && ! grep -Eq "$3" "$tmp/depends" || { cat "$tmp/depends"; return 1; }
}
verify "libelapse0 needs SQLite and cJSON, not MPI or BLAS" needs libelapse0 'libcjson1.*libsqlite3-0' 'mpi|blas|ssl'
verify "libelapse-dev needs just this libelapse0" needs libelapse-dev "libelapse0 \\(= $(field elapse Version | sed 's/[.]/[.]/g')\\)" mpi
[ ! -e "$out/bin/elapse-exec" ] || verify "elapse needs MPI's launcher and BLAS" needs elapse 'blas.*(openmpi-bin|mpich)' 'libelapse'
sums_hold() { dpkg-deb -R "$tmp"/deb/elapse_*.deb "$tmp/unpacked" && cd "$tmp/unpacked" && md5sum --quiet -c DEBIAN/md5sums; }
verify "the checksums hold" sums_hold
cd "$tmp" || exit 3
verify "elapse runs where it was unpacked" env -i PATH="$tmp/unpacked/usr/bin:/usr/bin:/bin" HOME="$tmp" \
    elapse sim unpacked/usr/share/doc/elapse/examples/demo.json --step
finish
