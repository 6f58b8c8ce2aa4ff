#!/bin/bash
# tests/gpu/gpu_rehearsal.sh - the bundle for a GPU machine, tried without one: its three scripts run in an emptied root,
# with the emulated GPU in the card's place and small models. For `make gpu-rehearsal`; as root, on Debian or Ubuntu.
#
#   tests/gpu/gpu_rehearsal.sh BUNDLE EMULATION [first|second|third|hang]...     default: all of them
#
# The root holds what every machine has (the packages that dpkg calls essential, awk, python3) and no compiler, no MPI, no
# library of ours; no network but a loopback, a host name that nothing resolves, 64 MiB of /dev/shm. nvidia-smi and the
# profilers are stand-ins that show what was asked of them. hang: the first call with tests that never end.
# Shows what each call printed, and TAP. GPU_REHEARSAL_OUT: folder of these texts and the archives (default:
# build/gpu-rehearsal). GPU_REHEARSAL_SECONDS: promised to a call (default: the table's own).
. "$(dirname "$0")/../e2e/lib.sh"
begin
bundle=$(cd "${1:?usage: gpu_rehearsal.sh BUNDLE EMULATION [first|second|third|hang]...}" && pwd) emulation=$(readlink -f "${2:?}")
shift 2
[ $# -gt 0 ] || set -- first second third hang
[ "$(id -u)" -eq 0 ] || { echo "gpu-rehearsal: wants root, for a root of its own" >&2; exit 3; }
kept=${GPU_REHEARSAL_OUT:-build/gpu-rehearsal}
rm -rf "${kept:?}" && mkdir -p "$kept" && kept=$(cd "$kept" && pwd)
box=$tmp/root

# --- the machine ------------------------------------------------------------------------------------

put() { # FILE...: each with the libraries that it loads, at its own place
    local file
    for file; do
        [ -e "$box$file" ] || cp -a --parents "$file" "$box/"
        [ ! -L "$file" ] || put "$(readlink -f "$file")"
    done
}
make_box() {
    local package file
    mkdir -p "$box"/usr/{bin,sbin,lib,lib64} "$box"/{proc,sys,dev,tmp,root,etc,borrowed/build,out}
    for file in bin sbin lib lib64; do ln -s "usr/$file" "$box/$file"; done
    for package in $(dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p') mawk mount; do
        [ "$package" != perl-base ] || continue
        for file in $(dpkg -L "$package" | grep -E '^/(usr/)?s?bin/.'); do
            [ ! -f "$file" ] || put "$file"
        done
    done
    ln -sf mawk "$box/usr/bin/awk"
    python=$(readlink -f /usr/bin/python3)
    put "$python" && ln -sf "$(basename "$python")" "$box/usr/bin/python3"
    cp -a --parents "/usr/lib/$(basename "$python")" "$box/" && rm -rf "$box/usr/lib/python3"*/{test,idlelib,tkinter,ensurepip}
    # Libraries of all these programs, and of nothing else.
    find "$box/usr" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null | sed -n 's/.*\(=> \|^\t\)\(\/[^ ]*\) (.*/\2/p' |
        sort -u | while read -r file; do put "$file"; done
    rm -f "$box"/usr/lib/x86_64-linux-gnu/lib{stdc++,gcc_s,mpi,openblas,cjson,cmocka}* # PyTorch's machine has the first two; the bundle too
    printf 'root:x:0:0:root:/root:/bin/bash\n' >"$box/etc/passwd"
    printf '127.0.0.1 localhost\n' >"$box/etc/hosts"
    : >"$box/etc/ld.so.conf"
    ldconfig -r "$box"

    cat >"$box/usr/bin/nvidia-smi" <<'SCRIPT'
#!/bin/bash
case "$*" in
-L) echo "GPU 0: emulated (UUID: none)" ;;
*compute_cap*) echo 9.0 ;;
*name,driver_version,memory.total,clocks.sm*) echo "emulated, 0.0, 0 MiB, 0 MHz" ;;
*name,driver_version,memory.total*) echo "emulated, 0.0, 0 MiB" ;;
*) echo "| NVIDIA-SMI 0.0   Driver Version: 0.0   CUDA Version: 13.0 |" ;;
esac
SCRIPT
    cat >"$box/usr/bin/compute-sanitizer" <<'SCRIPT'
#!/bin/bash
echo "stand-in: compute-sanitizer $*; ELAPSE_TEST_FILTER=${ELAPSE_TEST_FILTER:-}"
while [[ ${1:-} = --* ]]; do
    case $1 in --tool | --error-exitcode | --target-processes) shift 2 ;; *) shift ;; esac
done
exec "$@"
SCRIPT
    cat >"$box/usr/bin/ncu" <<'SCRIPT'
#!/bin/bash
if [ "$1" = --import ]; then
    echo '"ID","Kernel Name","gpu__time_duration.sum","launch__registers_per_thread"'
    echo '"","","usecond","register/thread"'
    echo '"0","stand_in(float *)","10.5","32"'
    exit
fi
file=
while [ $# -gt 0 ]; do
    case $1 in
    -o) file=$2; shift 2 ;;
    --target-processes | --clock-control | --section | --launch-skip | --launch-count) shift 2 ;;
    --*) shift ;;
    *) break ;;
    esac
done
echo stand-in >"$file.ncu-rep"
exec "$@"
SCRIPT
    chmod +x "$box"/usr/bin/{nvidia-smi,compute-sanitizer,ncu}
    cp -a "$bundle" "$box/borrowed/build/"
    # Beside the programs, where the tests look for it too.
    mkdir "$box/borrowed/build/gpu-bundle/prog/cudasim"
    cp "$emulation" "$box/borrowed/build/gpu-bundle/prog/cudasim/elapse-cuda-plain.so"
    cp "$(dirname "$emulation")/libcuda.so.1" "$box/borrowed/build/gpu-bundle/prog/cudasim/" # for a test that asks for no device
    ! chroot "$box" /bin/bash -c 'command -v gcc cc make mpirun nvcc ssh pkg-config'
}

# inside COMMAND...: with only that root, and namespaces of its own.
inside() {
    unshare --mount --net --uts --ipc --pid --fork --kill-child bash -c '
        box=$1; shift
        mount --make-rprivate / && mount -t proc proc "$box/proc" && mount -t sysfs sysfs "$box/sys" && mount -t tmpfs tmpfs "$box/tmp" && mount -t tmpfs tmpfs "$box/dev" &&
            mkdir "$box/dev/shm" && mount -t tmpfs -o size=64M tmpfs "$box/dev/shm" || exit 3
        for node in null zero random urandom tty; do touch "$box/dev/$node" && mount --bind "/dev/$node" "$box/dev/$node"; done
        ln -s /proc/self/fd "$box/dev/fd"
        hostname gpu-machine && ip link set lo up
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1 "$@"' - "$box" "$@"
}

# call NAME [VARIABLE=VALUE...]: the script of that name, as on the machine; what it printed, its seconds and archive.
call() {
    local name=$1 began=$SECONDS
    shift
    rm -rf "${box:?}/out" && mkdir "$box/out"
    cp "$box/etc/hosts" "$tmp/hosts" && printf '127.0.0.1 localhost\n' >"$box/etc/hosts"
    inside OUT=/out GPU_CHECK_SIZE=small GPU_CHECK_TEST_DEVICE= ${GPU_REHEARSAL_SECONDS:+GPU_CHECK_SECONDS=$GPU_REHEARSAL_SECONDS} \
        ELAPSE_CUDA_LIB=/borrowed/build/gpu-bundle/prog/cudasim/elapse-cuda-plain.so ELAPSE_NCCL_LIB=/borrowed/build/gpu-bundle/prog/cudasim/elapse-cuda-plain.so \
        ELAPSE_CUDNN_LIB=/borrowed/build/gpu-bundle/prog/cudasim/elapse-cuda-plain.so "$@" \
        timeout -k 5 600 chroot "$box" /bin/bash -c "cd /borrowed && bash build/gpu-bundle/$name.sh" >"$kept/$name.log" 2>&1
    call_rc=$? call_took=$((SECONDS - began))
    cp "$box/out/"* "$kept/" 2>/dev/null
    mv "$kept/results.tar.gz" "$kept/results-$name.tar.gz" 2>/dev/null
    echo "=== $name: $call_took s, exit $call_rc" && cat "$kept/$name.log"
}

# --- claims -----------------------------------------------------------------------------------------

# in_time NAME SECONDS: the parts of check-NAME.json: none started behind its place in the table, each had
# the seconds promised or needed fewer.
in_time() {
    /usr/bin/python3 - "$kept/results-$1.tar.gz" "$1" "$call_took" "$2" <<'SCRIPT'
import json, sys, tarfile
archive, call, took, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
check = json.load(tarfile.open(archive).extractfile(f"results/check-{call}.json"))
ends, table = {}, False
for line in open(archive.rsplit("/", 1)[0] + f"/{call}.log"):
    words = line.split()
    if words[:2] == ["part", "promised"]:
        table = True
    elif table and len(words) == 5 and words[2] == "s":
        ends[words[0]] = int(words[3])
    elif table and not words:
        break
names = list(ends)
bad = []
for part in check["parts"]:
    place = ends[names[names.index(part["part"]) - 1]]
    if part["started_s"] > place + 1:
        bad.append(f"{part['part']} started at {part['started_s']} s, not by {place}")
    if part["started_s"] + part["seconds"] > ends[part["part"]] + 1:
        bad.append(f"{part['part']} ended at {part['started_s'] + part['seconds']} s, not by {ends[part['part']]}")
    if part["state"] == "not run":
        bad.append(f"{part['part']} was not run")
if took > most or max(ends.values()) > most:
    bad.append(f"{took} s of {most}")
print(ends, [(p["part"], p["state"], p["started_s"], p["seconds"]) for p in check["parts"]], *bad, sep="\n")
sys.exit(1 if bad or len(check["parts"]) + 1 != len(ends) else 0)
SCRIPT
}
holds() { # NAME FILE...: its archive is small enough and has these, none of them empty
    local name=$1 file
    shift
    [ "$(stat -c %s "$kept/results-$name.tar.gz")" -le $((16 << 20)) ] && [ "$(ls "$box/out" | wc -l)" -eq 1 ] || { ls -l "$box/out"; return 1; }
    tar -tvzf "$kept/results-$name.tar.gz" >"$tmp/list"
    for file; do
        awk -v f="results/$file" '$6 == f && $3 > 0 {found = 1} END {exit !found}' "$tmp/list" || { echo "no $file, or empty"; cat "$tmp/list"; return 1; }
    done
}
passed() { # NAME PART...: passed
    local part log=$kept/$1.log
    shift
    for part; do
        grep -Eq "^$part +passed +[0-9]+ s +[0-9]+ s" "$log" || { tail -40 "$log"; return 1; }
    done
}
short_enough() { # NAME: the last 12,000 characters hold all that matters
    tail -c 12000 "$kept/$1.log" | grep -q "^part *state *promised"
}
tests_hang() {
    local program
    for program in "$box"/borrowed/build/gpu-bundle/prog/tests/test_*; do
        printf '#!/bin/bash\ntrap "" TERM\nwhile :; do sleep 1; done\n' >"$program"
    done
}

verify "an emptied root without a compiler, MPI, and our libraries" make_box
results=()
for name; do
    case $name in
    first)
        call first
        verify "first: every part passes" passed first tests kernels bench
        results+=(check-first.json bench.json bench.txt kernels.txt test_backend_cuda.tap)
        ;;
    second)
        call second
        verify "second: every part passes" passed second ranks profile compare change
        results+=(check-second.json ranks.log profile.json compare.json compare.txt change.txt change/mpi/summary.json)
        ;;
    third)
        call third GPU_CHECK_TESTS='update*'
        verify "third: every part passes" passed third sanitizer step nccl
        results+=(check-third.json step-trace.json step.ncu-rep step.txt nccl.log change/nccl/summary.json)
        ;;
    hang)
        tests_hang
        call first
        cp "$kept/first.log" "$kept/hang.log"
        verify "hang: what hangs fails" grep -Eq '^tests +failed' "$kept/first.log"
        verify "hang: the parts behind it pass" passed first kernels bench
        ;;
    esac
    log=${name/hang/first}
    verify "$name: it ends in time, and each part had its seconds" in_time "$log" 540
    verify "$name: one archive below 16 MiB has all results so far" holds "$log" "${results[@]}"
    verify "$name: the end of what it prints is enough" short_enough "$log"
done
echo "# what the calls printed, and their archives: $kept"
finish
