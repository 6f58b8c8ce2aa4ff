#!/bin/bash
# packaging/install.sh - put the built programs and libraries under a prefix, or take them away.
#
#   packaging/install.sh install|uninstall|list BUILT
#
# BUILT is the folder of the built tree (build). From the environment: PREFIX, DESTDIR (in front of every
# path), LIBDIR (of libelapse; PREFIX/lib), STRIP (not empty: without debug symbols), VERSION. `list` prints
# what would be installed. Programs find their files relative to themselves, so the tree under PREFIX may be
# moved as a whole.
#
# PREFIX/share/elapse/installed lists every file, and every folder that was made for them, so that
# uninstall removes these and nothing else, whatever version is at hand.
set -euo pipefail
cd "$(dirname "$0")/.."
action=$1 built=$2
prefix=${PREFIX:-/usr/local} dest=${DESTDIR:-}
libdir=${LIBDIR:-$prefix/lib}
record=$prefix/share/elapse/installed
[[ $prefix = /* && $libdir = /* ]] || { echo "PREFIX and LIBDIR must start with /, got '$prefix', '$libdir'" >&2; exit 2; }

# files: a line each of all that is installed: mode, source, path
files() {
    local file
    program() { [ ! -e "$built/bin/$1" ] || echo "755 $built/bin/$1 $2/$1"; }
    data() { echo "644 $1 $2"; }
    tree() { # FROM TO FIND-TESTS...: the files of a folder that match
        local from=$1 to=$2
        shift 2
        [ -d "$from" ] || return 0
        find -H "$from" -type f "$@" -printf '%P\n' | LC_ALL=C sort | while read -r file; do
            echo "$([ -x "$from/$file" ] && echo 755 || echo 644) $from/$file $to/$file"
        done
    }
    program elapse "$prefix/bin"
    for file in elapse-exec elapse-local.so elapse-cuda.so elapse-nccl.so; do program "$file" "$prefix/lib/elapse"; done
    data library/elapse.h "$prefix/include/elapse.h"
    data "$built/lib/libelapse.a" "$libdir/libelapse.a"
    for file in "$built"/lib/libelapse.so.*; do
        [ ! -e "$file" ] || data "$file" "$libdir/$(basename "$file")"
    done
    tree "$built/share" "$prefix/share"
    tree plots "$prefix/share/elapse/plots" -name '*.gp'
    tree profiles/devices "$prefix/share/elapse/devices" -name '*.json'
    for file in README.md CHANGELOG.md ARCHITECTURE.md LICENSE; do data "$file" "$prefix/share/doc/elapse/$file"; done
    tree docs "$prefix/share/doc/elapse/docs"
    # demo.sh wants the tree that was built
    tree examples "$prefix/share/doc/elapse/examples" '!' -path '*/results/*' '!' -name demo.sh
}
# links: a line each of the symbolic links: target, path
links() {
    local file
    for file in "$built"/lib/libelapse.so.*; do
        [ ! -e "$file" ] || echo "$(basename "$file") $libdir/libelapse.so"
    done
}
pc_file() { # written relative to itself, so that the tree can be moved
    local up
    up=$(realpath -m --relative-to="$libdir/pkgconfig" "$prefix")
    cat <<PC
prefix=\${pcfiledir}/$up
libdir=\${prefix}/$(realpath -m --relative-to="$prefix" "$libdir")
includedir=\${prefix}/include

Name: elapse
Description: plan and simulate elastic pipeline training of transformers
Version: $VERSION
Requires.private: sqlite3, libcjson
Libs: -L\${libdir} -lelapse
Libs.private: -lm
Cflags: -I\${includedir}
PC
}

made=() # what is installed, in order; folders only where they were not there
folder() {
    [ ! -d "$dest$1" ] || return 0
    folder "$(dirname "$1")"
    mkdir -m 755 "$dest$1"
    made+=("$1")
}
do_install() {
    local mode from path target
    [ -e "$built/bin/elapse" ] || { echo "no programs in '$built': run 'make' first" >&2; exit 3; }
    mkdir -p "$dest$(dirname "$prefix")"
    [ ! -e "$dest$record" ] || do_uninstall # an older version may have other files
    while read -r mode from path; do
        folder "$(dirname "$path")"
        install -m "$mode" "$from" "$dest$path"
        made+=("$path")
        [ -z "${STRIP:-}" ] || case $path in
        */bin/elapse | */elapse-exec | *.so.* | *.so) strip --strip-unneeded "$dest$path" ;;
        *.a) strip --strip-debug "$dest$path" ;;
        esac
    done < <(files)
    while read -r target path; do
        ln -sfn "$target" "$dest$path"
        made+=("$path")
    done < <(links)
    path=$libdir/pkgconfig/elapse.pc
    folder "$(dirname "$path")"
    pc_file >"$dest$path"
    made+=("$path" "$record")
    printf '%s\n' "${made[@]}" >"$dest$record"
    chmod 644 "$dest$path" "$dest$record"
}
do_uninstall() {
    local path installed
    [ -e "$dest$record" ] || { echo "nothing is installed: no '$dest$record'" >&2; exit 3; }
    mapfile -t installed < <(tac "$dest$record") # the record itself is removed on the way
    for path in "${installed[@]}"; do
        if [ -d "$dest$path" ] && [ ! -L "$dest$path" ]; then
            rmdir --ignore-fail-on-non-empty "$dest$path"
        else
            rm -f "$dest$path"
        fi
    done
}
case $action in
install)
    do_install
    echo "installed under $dest$prefix"
    ;;
uninstall) do_uninstall ;;
list)
    files | cut -d' ' -f3-
    links | cut -d' ' -f2-
    printf '%s\n' "$libdir/pkgconfig/elapse.pc" "$record"
    ;;
esac
