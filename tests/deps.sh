#!/bin/bash
# tests/deps.sh - install what is missing of the packages below (Debian 12, Ubuntu 24.04).
#
#   tests/deps.sh                install what a build and `make test` want
#   tests/deps.sh PACKAGE...     and these, too: cppcheck (make analyse), clang libomp-dev (make fuzz, asan, tsan)
#
# Does nothing, and uses no network, when all are there. Without root or sudo it prints the one line
# to run and exits 3. ELAPSE_SKIP_DEPS=1 skips the look.
set -u
[ -n "${ELAPSE_SKIP_DEPS:-}" ] && exit 0

# Compiler and libraries; gnuplot draws the figures; python3 reads JSON in the shell tests;
# clang-format is for `make format-check`; ip makes the nodes of tests/e2e/nodes.sh.
packages="gcc make pkg-config libc6-dev libsqlite3-dev libcjson-dev libcmocka-dev libopenblas-dev
libopenmpi-dev openmpi-bin libssl-dev zlib1g-dev libjpeg-dev libpng-dev libwebp-dev libpcre2-dev libutf8proc-dev gnuplot-nox python3 clang-format iproute2 $*"

# Each entry is a program in PATH, or a library that pkg-config knows. Packages under other
# names (MPICH, another BLAS package, a newer gcc) satisfy it as well.
have() {
    case $1 in
    gcc) (set -- ${CC:-cc} && command -v "$1") ;; # CC may be two words, such as "ccache gcc"
    libc6-dev) [ -e /usr/include/stdio.h ] ;;
    libsqlite3-dev) pkg-config --exists sqlite3 ;;
    libcjson-dev) pkg-config --exists libcjson ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    libopenblas-dev) pkg-config --exists openblas ;;
    libopenmpi-dev) pkg-config --exists ompi-c || pkg-config --exists mpich ;;
    openmpi-bin) command -v mpirun ;;
    libssl-dev) pkg-config --exists libcrypto ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libjpeg-dev) pkg-config --exists libjpeg ;;
    libpng-dev) pkg-config --exists libpng ;;
    libwebp-dev) pkg-config --exists libwebp ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 ;;
    libutf8proc-dev) pkg-config --exists libutf8proc ;;
    gnuplot-nox) command -v gnuplot ;;
    libomp-dev) ls /usr/lib/llvm-*/lib/libomp.so ;;
    iproute2) command -v ip ;;
    *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

missing=()
for package in $packages; do
    have "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "deps: no apt-get here; install these or their like: ${missing[*]}" >&2
    exit 3
fi
if [ "$(id -u)" -eq 0 ]; then
    as=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as="sudo env DEBIAN_FRONTEND=noninteractive"
elif command -v sudo >/dev/null && [ -t 0 ]; then
    as="sudo env DEBIAN_FRONTEND=noninteractive"
else
    echo "deps: not root and no sudo; run: apt-get update && $install" >&2
    exit 3
fi
echo "deps: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
# The lists may be stale or absent: update only when the first try fails.
$as $install >/dev/null 2>&1 || { $as apt-get update -q && $as $install; } >&2 || {
    echo "deps: apt-get failed; run: ${as:+$as }apt-get update && ${as:+$as }$install" >&2
    exit 3
}
for package in "${missing[@]}"; do
    have "$package" || { echo "deps: '$package' is still missing after apt-get" >&2; exit 3; }
done
