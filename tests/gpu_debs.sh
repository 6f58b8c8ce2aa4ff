#!/bin/bash
# tests/gpu_debs.sh - packages for a GPU machine without a network: what `make` wants beside gcc, g++
# and nvcc, and what those need, as .deb files in a folder to carry there.
#
#   tests/gpu_debs.sh FOLDER      then there: GPU_CHECK_DEBS=FOLDER make gpu-check
#
# Run it with a network on a Debian or Ubuntu no newer than the GPU machine's (glibc). As any user;
# nothing is installed. Exit 0: all there, list and size printed; 3: apt failed.
set -u
[ $# -eq 1 ] || { echo "gpu-debs: usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1" && cd "$1" || exit 3
wanted="make pkg-config libsqlite3-dev libcjson-dev libcmocka-dev libopenblas-pthread-dev
libopenmpi-dev openmpi-bin libssl-dev zlib1g-dev libjpeg-dev libpng-dev"
# Every machine with a compiler has these, and what they need.
base="bash coreutils dpkg perl debconf sed grep gcc g++ libc6-dev openssh-client ca-certificates"
# Named by packages above for languages and pages that nobody uses here.
useless='^(gfortran|libgfortran-.*-dev|gcc|g\+\+|cpp|libgcc-.*-dev|binutils|libjs-|autoconf|automake|autotools|m4|libltdl-dev|libhwloc-plugins|ocl-icd|libx|libicu|libevent-openssl)'

# closure PACKAGE...: what apt would install on an empty machine, one name per line
closure() {
    apt-get -s -q -o Dir::State::status=/dev/null -o APT::Install-Recommends=0 install "$@" 2>/dev/null |
        sed -n 's/^Inst \([^ ]*\) .*/\1/p' | sort -u
}
# Small ones that a stripped image may lack all the same; where it has them its own are used.
surely="zlib1g libudev1 libquadmath0 libatomic1 $(closure libssl-dev | grep '^libssl3')"
needed=$(comm -23 <(closure $wanted) <(closure $base) | grep -vE "$useless")
if [ -z "$needed" ]; then
    echo "gpu-debs: apt knows no such packages: run 'apt-get update' first" >&2
    exit 3
fi
needed="$needed $surely"
rm -f ./*.deb
apt-get download -q $needed >apt.log 2>&1 || { tail -3 apt.log >&2; exit 3; }
rm -f apt.log
for name in $needed; do
    ls "${name}"_*.deb >/dev/null 2>&1 || { echo "gpu-debs: '$name' was not downloaded" >&2; exit 3; }
done
ls -1 ./*.deb | sed 's|^\./||'
du -ch ./*.deb | tail -1
