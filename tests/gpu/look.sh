# tests/gpu/look.sh - sourced by tests/gpu/gpu_check.sh: what this machine is, and programs that run on it.
#
#   look CALL         prints what it finds; sets elapse, ELAPSE_BIN and programs (a folder of bin/ and tests/);
#                     returns 1, with a line, where nothing can run
#   has_torch         PyTorch 2, whose attention is fused, is there: an older one is no peer
#   commit_of_tree
#
# In a bundle (tests/gpu/bundle.sh) the programs are there already. Where they cannot be used, look builds them
# from the bundle's sources with this machine's nvcc and the bundle's libraries. In a clone it runs make.

. tests/gpu/build_env.sh

has_torch() { "$python" -c 'import torch.nn.functional as f; f.scaled_dot_product_attention' 2>/dev/null; }
commit_of_tree() { if in_bundle; then cat commit.txt; else git rev-parse --short HEAD 2>/dev/null; fi; }
in_bundle() { [ -e "$root/commit.txt" ] && [ -e "$root/run" ]; }

# find_library SONAME: the folder that holds it. PyTorch's come first, so that both sides of the benchmark
# table use the same ones.
find_library() {
    local dir
    for dir in $cuda_folders; do
        [ -e "$dir/$1" ] && { echo "$dir"; return; }
    done
    dir=$(ldconfig -p 2>/dev/null | sed -n "s/^\t$1 (libc6,x86-64.*=> \(.*\)\/$1\$/\1/p" | head -1)
    [ -n "$dir" ] && echo "$dir"
}

# Sets GPU_LIBRARY_PATH: the folders of CUDA's libraries, in the order of finding, each once.
find_libraries() {
    local name dir wheels
    wheels=$("$python" -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null)
    cuda_folders=$(for dir in $wheels; do printf '%s\n' "$dir"/*/lib; done
        printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/nvidia/lib64)
    GPU_LIBRARY_PATH=
    for name in libcublasLt.so.13 libcublasLt.so.12 libcudnn.so.9 libnccl.so.2 libnvrtc.so.13; do
        dir=$(find_library "$name")
        echo "  $name: ${dir:-not found}"
        [ -n "$dir" ] || continue
        [[ :$GPU_LIBRARY_PATH: = *:$dir:* ]] || GPU_LIBRARY_PATH=${GPU_LIBRARY_PATH:+$GPU_LIBRARY_PATH:}$dir
    done
    export GPU_LIBRARY_PATH
}

# Prints why the bundle's programs cannot run here, or nothing.
why_unusable() {
    local flag lack cuda major
    for flag in avx2 fma bmi2 movbe f16c; do
        grep -qw "$flag" /proc/cpuinfo || { echo "the processor has no $flag (built for x86-64-v3)"; return; }
    done
    "$elapse" --version >/dev/null 2>&1 || { echo "elapse does not start: $("$elapse" --version 2>&1 | tail -1)"; return; }
    lack=$(LD_TRACE_LOADED_OBJECTS=1 "$root/run" "$programs/bin/elapse-exec" 2>&1 | grep -E 'not found' | head -1)
    [ -z "$lack" ] || { echo "elapse-exec: $lack"; return; }
    [ "$device" = cuda ] && [ -z "${ELAPSE_CUDA_LIB:-}" ] || return
    lack=$("$root/run" ldd "$programs/bin/elapse-cuda.so" 2>&1 | grep -E 'not found' | head -1)
    [ -z "$lack" ] || { echo "elapse-cuda.so: $lack"; return; }
    cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -1)
    major=$(cat "$root/cuda.txt")
    [ -z "$cuda" ] || [ "$cuda" -ge "$major" ] || { echo "the driver knows CUDA $cuda, the programs are built with CUDA $major"; return; }
    major=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1)
    case $major in "" | 9.*) ;; *) echo "the GPU has compute capability $major, the programs are built for 9.0" ;; esac
}

unpack() { "$python" -W ignore -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"; }

# Builds in $1 from the bundle's sources.
build_there() {
    local dir=$1 arch nvcc
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    [ -n "$nvcc" ] && command -v gcc g++ >/dev/null || { echo "no nvcc, gcc and g++ to build with"; return 1; }
    mkdir -p "$dir" && unpack sources.tar.gz "$dir" || return 1
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
    build_env "$root/sys" "$dir/sys-dev"
    (cd "$dir/src" && export CUDA_ARCH=${CUDA_ARCH:-${arch:-90}} &&
        list=$(make -s list-tests CUDA_ARCH="$CUDA_ARCH" | grep -E '/test_(backend_cuda|cudnn|parity)$') &&
        make -j"$(nproc)" all $list "$(dirname "${list%%[[:space:]]*}")/bench_device" CUDA_ARCH="$CUDA_ARCH")
}

look_at_machine() {
    local shm name
    echo "machine: $(hostname), $(nproc) cores, $(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -r)"
    [ "$device" != cuda ] || echo "  $(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader 2>/dev/null | head -1)"
    find_libraries
    echo "  nvcc: $(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || echo none)"
    # Ranks of one machine exchange messages, sums and cached activations there.
    shm=$(df -Pk /dev/shm 2>/dev/null | awk 'END {print int($4 / 1024)}')
    if [ "${shm:-0}" -lt 2048 ]; then
        mount -o remount,size=8G /dev/shm 2>>"$out/look.log"
        shm="${shm:-0} MiB, enlarged to $(df -Pk /dev/shm 2>/dev/null | awk 'END {print int($4 / 1024)}')"
    fi
    echo "  /dev/shm: $shm MiB free"
    # mpirun looks up the machine's own name.
    name=$(hostname)
    if ! "$python" -c 'import socket, sys; socket.gethostbyname(sys.argv[1])' "$name" 2>/dev/null; then
        if { echo "127.0.0.1 $name" >>/etc/hosts; } 2>/dev/null; then
            echo "  host name '$name' did not resolve: written into /etc/hosts"
        else
            echo "  host name '$name' does not resolve, and /etc/hosts cannot be written: mpirun may wait for it"
        fi
    fi
}

# One training step of a small model: launcher, messages and device work together, or the line says what does not.
smoke() {
    cat >"$out/smoke.json" <<JOB
{ "name": "smoke", "model": "vit-tiny:image=16,patch=8,hidden=32,heads=2,mlp=64,layers=2,classes=10",
  "data": {"kind": "synthetic", "train_samples": 16, "test_samples": 8},
  "train": {"epochs": 1, "batch": {"global": 8}, "device": "$device", "optimizer": {"kind": "adamw", "lr": 1e-3}, "seed": 1} }
JOB
    timeout -k 3 30 "$elapse" train "$out/smoke.json" -n 1 --steps 1 --no-eval --out "$out/smoke" --json >"$out/smoke.log" 2>&1
}

look() {
    local why began=$SECONDS
    look_at_machine
    if in_bundle; then
        [ -d sys ] || unpack sys.tar.gz . || { echo "gpu-check: cannot unpack '$root/sys.tar.gz'"; return 1; }
        export ELAPSE_BIN=$root/bin programs=$root/prog
        export ELAPSE_PROGRAMS=$programs
        elapse=$ELAPSE_BIN/elapse
        why=$(why_unusable)
        if [ -n "$why" ]; then
            echo "  the bundle's programs cannot be used: $why; building"
            if [ ! -x /tmp/elapse-built/src/build/bin/elapse ] || [ -z "$(cat /tmp/elapse-built/whole 2>/dev/null)" ]; then
                (build_there /tmp/elapse-built) >"$out/build.log" 2>&1 || { tail -5 "$out/build.log"; echo "gpu-check: the programs can be neither used nor built here: $why"; return 1; }
                echo yes >/tmp/elapse-built/whole
            fi
            programs=$(dirname "$(readlink -f /tmp/elapse-built/src/build/bin)")
            export ELAPSE_PROGRAMS=$programs
        fi
        PATH=$root/sys/usr/bin:$PATH
    else
        [ "$device" != cuda ] || wheels_env "${TMPDIR:-/tmp}/elapse-wheels"
        make -j"$(nproc)" all tests "$(dirname "$(make -s list-tests | head -1)")/bench_device" >"$out/build.log" 2>&1 ||
            { tail -5 "$out/build.log"; echo "gpu-check: make failed"; return 1; }
        export ELAPSE_BIN=${ELAPSE_BIN:-$root/build/bin}
        programs=$(dirname "$(readlink -f "$root/build/bin")")
        elapse=$ELAPSE_BIN/elapse
    fi
    export elapse programs PATH
    if smoke; then
        echo "  a training step on $device: done"
    else
        echo "  a training step on $device: FAILED: $(tail -1 "$out/smoke.log" | cut -c1-300)"
    fi
    rm -rf "$out/smoke"
    echo "looked for $((SECONDS - began)) s"
}
