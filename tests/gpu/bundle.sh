#!/bin/bash
# tests/gpu/bundle.sh - what to carry to a machine with a GPU, in one folder below 60 MiB. For `make gpu-bundle`, which
# has built the programs.
#
#   tests/gpu/bundle.sh BUILD FOLDER CUDA_HOME
#
#   first.sh second.sh third.sh   the calls (docs/gpu.md), which run tests/gpu/gpu_check.sh
#   prog/                         elapse, elapse-exec, the cuda backend, tests, benchmark: stripped
#   sys.tar.gz                    the libraries that they need and a bare machine lacks, Open MPI's plugins, mpirun
#   bin/elapse, run               programs of prog/ with the libraries of sys/, as tests/gpu/look.sh unpacks it
#   sources.tar.gz                where prog/ cannot be used: sources, headers, make and pkg-config to build with
#
# glibc is the machine's own: bundle on a Debian or Ubuntu no newer than that.
set -eu
cd "$(dirname "$0")/../.."
[ $# -eq 3 ] || { echo "gpu-bundle: usage: $0 BUILD FOLDER CUDA_HOME" >&2; exit 2; }
build=$1 to=$2 cuda=$3
most_mib=60
lib=usr/lib/x86_64-linux-gnu
plugins=/$lib/openmpi/lib/openmpi3

[ -e "$build/bin/elapse-cuda.so" ] || { echo "gpu-bundle: nothing to carry: this build has no cuda backend (make prints why)" >&2; exit 1; }
rm -rf "$to"
mkdir -p "$to"/{prog/bin,prog/tests,bin,tests/bench,tests/e2e,tests/gpu,sys/cuda,sys/cxx,sys/usr/bin,sys/$lib/openmpi/lib/openmpi3,sys/$lib/pmix2/lib/pmix,sys/usr/share,sys/etc}
to=$(cd "$to" && pwd)
strip -s -o "$to/prog/bin/elapse" "$build/bin/elapse"
for file in elapse-exec elapse-local.so elapse-cuda.so elapse-nccl.so; do # the last where there are NCCL's headers
    [ ! -e "$build/bin/$file" ] || strip -s -o "$to/prog/bin/$file" "$build/bin/$file"
done
for file in test_parity test_cudnn test_backend_cuda bench_device; do
    strip -s -o "$to/prog/tests/$file" "$build/tests/$file"
done

# closure FILE...: the libraries that they load, each by its path.
closure() {
    for file; do ldd "$file" 2>/dev/null; done | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u
}
launcher=$(readlink -f "$(command -v mpirun.openmpi || command -v mpirun)")
cp -L "$launcher" "$to/sys/usr/bin/orterun"
cp -L "$(dirname "$launcher")/orted" "$to/sys/usr/bin/orted"
ln -s orterun "$to/sys/usr/bin/mpirun"
ln -s orterun "$to/sys/usr/bin/mpirun.openmpi"
cp -rL /usr/share/openmpi "$to/sys/usr/share/"
cp -rL /etc/openmpi "$to/sys/etc/"
cp -L /$lib/pmix2/lib/pmix/*.so "$to/sys/$lib/pmix2/lib/pmix/" 2>/dev/null || true

# Open MPI's plugins that need nothing beyond what the programs load anyhow: the others are for networks that one
# machine has not.
needed=$(closure "$build/bin/elapse" "$build/bin/elapse-exec" "$build/tests/test_backend_cuda" "$launcher" "$plugins/mca_pmix_ext3x.so" /$lib/libmca_common_{ompio,monitoring,sm}.so.*)
for plugin in "$plugins"/*.so; do
    more=$(closure "$plugin" | grep -vxFf <(printf '%s\n' "$needed") | grep -vE '/libmca_common_(ompio|monitoring|sm)\.' || true)
    [ -n "$more" ] || cp "$plugin" "$to/sys/$lib/openmpi/lib/openmpi3/"
done
for file in $needed /$lib/libmca_common_{ompio,monitoring,sm}.so.??; do
    case $(basename "$file") in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | libutil.so.*) ;; # glibc
    libstdc++.so.* | libgcc_s.so.*) cp -L "$file" "$to/sys/cxx/" ;;
    *) cp -L "$file" "$to/sys/$lib/" ;;
    esac
done
cp -L /$lib/libstdc++.so.6 /$lib/libgcc_s.so.1 "$to/sys/cxx/"
cp -L "$(ls "$cuda"/lib64/libcudart.so.?? | tail -1)" "$to/sys/cuda/"
strip -s "$to"/sys/"$lib"/*.so* "$to"/sys/"$lib"/openmpi/lib/openmpi3/*.so 2>/dev/null || true

# Scripts, as they lie in the tree.
cp tests/env.sh "$to/tests/"
cp tests/e2e/lib.sh tests/e2e/runs.sh "$to/tests/e2e/"
cp tests/gpu/{gpu_check,gpu_ranks,look,budget,build_env}.sh tests/gpu/{part.sh,pack.py,ncu_table.py} "$to/tests/gpu/"
cp tests/bench/{bench_gpu,bench_torch_gpu,compare_table,change_table}.py "$to/tests/bench/"
cp tests/gpu/run.sh "$to/run"
cp tests/gpu/torch_model.py "$to/tests/gpu/"
mkdir -p "$to/bridge/torch" && cp -r bridge/torch/elapse_torch "$to/bridge/torch/" && rm -rf "$to"/bridge/torch/elapse_torch/__pycache__
mkdir -p "$to/tests/golden" && cp tests/golden/parity-*.bin "$to/tests/golden/"
cat >"$to/bin/elapse" <<'SCRIPT'
#!/bin/bash
# Beside this machine's: the bundle's libraries.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
exec "$here/run" "${ELAPSE_PROGRAMS:-$here/prog}/bin/elapse" "$@"
SCRIPT
for call in first second third; do
    printf '#!/bin/bash\n# %s\nexport GPU_CHECK_OUT=${GPU_CHECK_OUT:-$PWD/build/gpu-check}\nexec "$(dirname "$0")/tests/gpu/gpu_check.sh" %s\n' \
        "The $call call: see tests/gpu/gpu_check.sh." $call >"$to/$call.sh"
done
chmod +x "$to"/*.sh "$to/bin/elapse" "$to/run"
git describe --always --dirty --abbrev=9 >"$to/commit.txt" 2>/dev/null || echo unknown >"$to/commit.txt"
basename "$to"/sys/cuda/libcudart.so.* | sed 's/.*\.//' >"$to/cuda.txt"

# To build with: headers, names for the linker, make and pkg-config.
dev=$(mktemp -d "${TMPDIR:-/tmp}/elapse-bundle.XXXXXX")
trap 'rm -rf "$dev"' EXIT
mkdir -p "$dev"/{src,sys-dev/usr/bin,sys-dev/pkgconfig,sys-dev/$lib,sys-dev/usr/include}
git ls-files -z | grep -zvE '^(examples|docs)/' | xargs -0 cp --parents -t "$dev/src"
cp -L /usr/bin/make /usr/bin/pkg-config "$dev/sys-dev/usr/bin/"
for file in $(closure /usr/bin/pkg-config); do
    case $file in *libpkgconf*) cp -L "$file" "$dev/sys-dev/$lib/" ;; esac
done
modules="ompi-c openblas sqlite3 libcjson cmocka libjpeg libpng libwebp zlib libcrypto libpcre2-8 libutf8proc"
present=
for module in $modules orte opal; do
    ! pkg-config --exists "$module" || present="$present $module"
    file=$(pkg-config --path "$module" 2>/dev/null) || continue
    cp -L "$file" "$dev/sys-dev/pkgconfig/$module.pc"
done
# Every header that our sources reach and that the compiler and glibc do not bring themselves.
# Flags are those of the Makefile.
headers=$(cc -M -D_GNU_SOURCE -I. $(pkg-config --cflags ompi-c openblas sqlite3 libcjson) \
    $(git ls-files 'exec/*.c' 'profiles/*.c' | grep -vE 'cuda/|nccl') tests/unit/exec/test_backend_cuda.c 2>/dev/null |
    tr -d '\\' | tr ' ' '\n' | grep -E '^/usr/(include|lib/x86_64-linux-gnu)/' | sort -u)
printf '%s\n' $headers | grep -vxFf <(dpkg -L libc6-dev linux-libc-dev libcrypt-dev) | xargs cp -L --parents -t "$dev/sys-dev"
for name in $(pkg-config --libs $present | tr ' ' '\n' | sed -n 's/^-l//p' | sort -u) z; do
    file=$(cc -print-file-name="lib$name.so")
    [ -e "$file" ] || file=$(ls /$lib/*/lib$name.so /$lib/*/lib/lib$name.so 2>/dev/null | head -1)
    echo "lib$name.so $(readelf -d "$file" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
done | sort -u >"$dev/sys-dev/links.txt"
tar -C "$dev" -czf "$to/sources.tar.gz" src sys-dev
tar -C "$to" -czf "$to/sys.tar.gz" sys
rm -r "$to/sys"

mib=$(du -sm --apparent-size "$to" | cut -f1)
echo "$to: $mib MiB of $most_mib: $(cd "$to" && du -sk --apparent-size prog sys.tar.gz sources.tar.gz tests | awk '{printf "%s %.1f  ", $2, $1 / 1024}')"
[ "$mib" -le "$most_mib" ] || { echo "gpu-bundle: more than $most_mib MiB" >&2; exit 1; }
