#!/bin/bash
# tests/e2e/e2e_cli.sh - the command line from outside: help, misuse, bad files, exit codes, and that a
# failed command leaves no file behind. One clear line each.
# seconds: 23
. "$(dirname "$0")/lib.sh"
begin

job() { # NAME, then a sed script over the good job
    sed "${2:-}" >"$tmp/$1.json" <<'JSON'
{
  "model": "vit-tiny:layers=2,hidden=32,heads=2,mlp=64",
  "data": {"kind": "synthetic", "train_samples": 64, "test_samples": 32},
  "train": {"epochs": 1, "batch": {"per_pipeline": 16}, "max_steps": 2},
  "cluster": "this-machine",
  "pipeline": {"num_stages": 2, "num_replicas": 1, "num_microbatches": 2, "schedule": "1f1b"}
}
JSON
}
# one_line NAME STATUS PATTERN COMMAND...: as expect, and the error is one line (and a hint) without a
# full stop at its end.
one_line() {
    expect "$@"
    local lines
    lines=$(grep -vc '^hint: ' "$tmp/expect.err")
    { [ "$lines" -eq 1 ] && ! grep -Eq '\.$' <(grep -v '^hint: ' "$tmp/expect.err"); }
    report $? "$1: one line" <"$tmp/expect.err"
}
no_file() { # NAME PATH...
    local name=$1 found=""
    shift
    for path in "$@"; do
        for file in "$path"*; do [ -e "$file" ] && found+=" $file"; done
    done
    echo "left behind:$found" | report "$([ -z "$found" ]; echo $?)" "$name"
}

# --- the table of commands --------------------------------------------------------------------------
expect "help goes to stdout with exit 0" 0 '^usage: elapse COMMAND' "$elapse" --help
expect "version" 0 '^elapse [0-9]+\.[0-9]+\.[0-9]+$' "$elapse" --version
one_line "no command" 2 'no command given' "$elapse"
expect "help of a command is its --help" 0 '^usage: elapse plan JOB' "$elapse" help plan
one_line "help of no command" 2 "no command or topic 'foo'" "$elapse" help foo
for words in "help job" "help plan" "--help plan" --version; do
    one_line "$words takes no more" 2 "unexpected argument 'x'" "$elapse" $words x
done
one_line "unknown command names the nearest" 2 "no command 'tarin'" "$elapse" tarin
expect "its hint" 2 "^hint: did you mean 'elapse train'" "$elapse" tarin
commands=$("$elapse" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
for command in $commands; do
    expect "$command --help" 0 "^usage: elapse $command" "$elapse" "$command" --help
    one_line "$command refuses an unknown option" 2 '--no-such-option' "$elapse" "$command" --no-such-option
done
for command in model balance freeze schedule plan sim profile profiles train eval export compare plot report runs; do
    grep -qx "$command" <<<"$commands"
    report $? "command $command exists" <<<"$commands"
done

one_line "a name cannot break the line of an error" 2 "unknown model 'a\?b\?\[2J'" "$elapse" model $'a\nb\e[2J'
if [ -w /dev/full ]; then
    for text in --help "help job" "sim --help" "model gpt2-xl" "schedule --kind 1f1b --stages 64 --microbatches 64 --csv"; do
        one_line "a full disk is told: $text" 3 'cannot write to standard output' \
            bash -c '"$0" $1 >/dev/full' "$elapse" "$text"
    done
else
    skip "a full disk is told" "no /dev/full"
fi
# More than a pipe holds, so the writer is still at it when its reader has gone.
one_line_less() {
    "$elapse" schedule --kind 1f1b --stages 64 --microbatches 256 --csv 2>"$tmp/head.err" | head -1 >/dev/null
    [ "${PIPESTATUS[0]}" -eq 0 ] && [ ! -s "$tmp/head.err" ]
}
verify "a reader that has seen enough is no error" one_line_less

# --- a job file -------------------------------------------------------------------------------------
job good
job key 's/"epochs"/"epoch"/'
job type 's/"max_steps": 2/"max_steps": "two"/'
job dots 's/"batch": {"per_pipeline": 16}/"batch.global": 16/'
job range 's/"num_stages": 2/"num_stages": 0/'
job twice 's/layers=2,hidden=32/hidden=16,hidden=32/'
job deep 's/"num_stages": 2/"num_stages": 9/'
job schedule 's/1f1b/2f2b/'
head -c 150 "$tmp/good.json" >"$tmp/cut.json"
one_line "unknown key" 2 'key\.json: .*train.*epoch' "$elapse" plan "$tmp/key.json"
one_line "wrong type" 2 'type\.json: .*train\.max_steps.*two' "$elapse" plan "$tmp/type.json"
one_line "a key with dots, which would be passed over" 2 "dots\.json: key 'batch\.global'" "$elapse" plan "$tmp/dots.json"
one_line "value out of range" 2 'range\.json: .*num_stages.*0' "$elapse" plan "$tmp/range.json"
one_line "unknown schedule" 2 'schedule\.json: .*pipeline\.schedule.*2f2b' "$elapse" plan "$tmp/schedule.json"
one_line "truncated job" 2 'cut\.json' "$elapse" plan "$tmp/cut.json"
one_line "a modifier given twice" 2 'twice\.json: model: .*hidden given twice' "$elapse" plan "$tmp/twice.json"
expect "a simulation ends with the job's steps" 0 '"samples":32,"steps":2,' \
    "$elapse" sim "$tmp/good.json" --json --set model=vit-tiny --set cluster=rtx5000-2x8
expect "and tells of runs that are not of one length" 0 '"note":"train.max_steps ends runs after different' \
    "$elapse" sim "$tmp/good.json" --json --set model=vit-tiny --set cluster=rtx5000-2x8
expect "a job without epochs has nothing to simulate" 1 'no step to simulate' \
    "$elapse" sim "$tmp/good.json" --set train.epochs=0
expect "a CLUSTER may be the object of a file" 0 'uplink of a node, each direction +5 GB/s  CLUSTER' \
    "$elapse" cluster '{"preset": "a100-2x4", "uplink": "5GBps"}'
one_line "an object with an unknown key" 2 "CLUSTER: unknown key 'cluster.nodez'" "$elapse" cluster '{"nodez": 2}'
one_line "missing job" 3 "absent\.json" "$elapse" plan "$tmp/absent.json"
one_line "--set with an unknown key" 2 'pipeline\.stages' "$elapse" plan "$tmp/good.json" --set pipeline.stages=2
one_line "more stages than items" 1 '8 items|7 items|stages' "$elapse" sim --step \
    --model uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms --cluster 1x8 --stages 8 \
    --replicas 1 --microbatches 8 --schedule gpipe
echo '{"steps": []}' >"$tmp/no-steps.json"
one_line "a run file without steps" 2 'no-steps.json' "$elapse" runs import "$tmp/no-steps.json" --db "$tmp/not/made.db"
no_file "leaves no store" "$tmp/not/made.db"
balancer() { # NAME WANTED ARGS...: the cut of a framework
    [ "$("$elapse" balance --balancer "$1" --json "${@:3}" | tr -d ' \n\t' | grep -o '"cut":[^]]*],' | tr -d '"cut:[],')" = "$2" ]
}
verify "torchtitan's cut of 6 into 4" balancer pytorch 2211 --sizes 5,1,1,1,1,9 --stages 4
verify "Megatron's layers, with embedding and head, which it does not count" balancer megatron 13121214 --stages 4 llama:layers=24,hidden=64,heads=4,kv_heads=4,mlp=128,vocab=100
one_line "Megatron cuts evenly" 1 'not a multiple of 4 stages' "$elapse" balance --sizes 5,1,1,1,1,9 --stages 4 --balancer megatron
one_line "a framework knows no frozen layers" 2 "balancer 'deepspeed' knows no frozen layers" "$elapse" balance --sizes 3,1,2 --stages 2 --balancer deepspeed --frozen 1
one_line "more stages than items in a cut" 1 'stages' "$elapse" balance --sizes 3,1,2 --stages 4

# --- a profile store --------------------------------------------------------------------------------
echo "this is no database, only a few words of text" >"$tmp/text.db"
one_line "store that is not SQLite" 2 'text\.db' "$elapse" plan "$tmp/good.json" --db "$tmp/text.db"
one_line "missing store" 3 'absent\.db' "$elapse" profiles list --db "$tmp/absent.db"
one_line "run folder that is none" 3 'nowhere' "$elapse" compare "$tmp/nowhere"
one_line "compare without a run" 2 'RUN_DIR' "$elapse" compare
for option in "-n 2" "--stages 1" "--set train.seed=2"; do
    one_line "compare of a run takes no $option" 2 "takes no ${option% *}: it belongs to --matrix$" "$elapse" compare "$tmp" $option
done
one_line "a percentage without its sign" 2 "at most 1 without a %, got '5'" "$elapse" compare "$tmp" --tolerance 5
one_line "a tolerance above 100 %" 3 'run\.db|summary' "$elapse" compare "$tmp" --tolerance 500%
one_line "two signs" 2 "got '5%%'" "$elapse" compare "$tmp" --tolerance 5%%
one_line "tolerance that is none" 2 'tolerance' "$elapse" compare "$tmp" --tolerance abc
one_line "a matrix with more frozen layers than there are" 2 'frozen' "$elapse" compare --matrix "$tmp/good.json" --frozen 0,999
one_line "a matrix whose last schedule is none, before its first run" 2 "got .foo.$" \
    "$elapse" compare --matrix "$tmp/good.json" --schedules 1f1b,foo
one_line "a matrix of too many entries, before its first run" 2 'more than 256 entries' \
    "$elapse" compare --matrix "$tmp/good.json" -n 1 --threads 1 --schedules 1f1b --microbatches 1"$(printf ',1%.0s' {1..256})"
one_line "a cache with nothing frozen" 2 'needs --frozen' "$elapse" compare --matrix "$tmp/good.json" --frozen 0 --cache on
one_line "a cache policy that is none" 2 "got 'maybe'" "$elapse" compare --matrix "$tmp/good.json" --frozen 1 --cache off,maybe

# --- figures ----------------------------------------------------------------------------------------
expect "plot says what its error is drawn from" 0 "error COMPARE_JSON" "$elapse" plot --help
one_line "plot needs an output" 2 '\-o FILE' "$elapse" plot loss "$tmp"
one_line "plot of an unknown kind" 2 "timelin" "$elapse" plot timelin "$tmp" -o "$tmp/x.svg"
one_line "plot of a curve from a store" 2 "only 'plot timeline' takes it" "$elapse" plot loss "$tmp" --db "$tmp/x.db" -o "$tmp/x.svg"
one_line "plot with two outputs" 2 'one of -o FILE .* and --term dumb, got both' "$elapse" plot loss "$tmp" --term dumb -o "$tmp/x.svg"
one_line "plot with an unknown ending" 2 '\.svg' "$elapse" plot loss "$tmp" -o "$tmp/x.gif"
one_line "plot into a missing folder" 3 'nodir' "$elapse" plot loss "$tmp" -o "$tmp/nodir/x.svg"
one_line "plot of no run" 3 'run\.db' "$elapse" plot loss "$tmp" -o "$tmp/x.svg"
no_file "a failed plot leaves no file" "$tmp/x."
echo '{"configs": [{"epoch": 0, "real": {"pipeline_length": 2, "microbatches": 4}, "real_step_ns": 2000000,
       "sim_step_ns": 1000000}], "median_abs_error": 0.5}' >"$tmp/epochs.json"
expect "the error of an elastic run's epochs names their plans" 0 'K=2 M=4' \
    "$elapse" plot error "$tmp/epochs.json" --term dumb

# --- real training: only where elapse-exec is built -------------------------------------------------
if [ -x "$(dirname "$elapse")/elapse-exec" ]; then
    one_line "export takes no ranks" 2 "unknown option '-n'" "$elapse" export nowhere -o "$tmp/none.safetensors" -n 2
    one_line "ranks that do not divide" 2 '3' "$elapse" train "$tmp/good.json" -n 3 --out "$tmp/run3"
    one_line "the option of mpirun for ranks" 2 "unknown option '-np'" "$elapse" train "$tmp/good.json" -np 2
    one_line "ranks out of range" 2 '-n must be 1\.\.' "$elapse" train "$tmp/good.json" -n 0
    job deep 's/"num_stages": 2/"num_stages": 9/'
    one_line "training with more stages than items" 1 '' "$elapse" train "$tmp/deep.json" -n 9 --out "$tmp/run9"
    job nodata 's/"synthetic"/"cifar10", "path": "absent-folder"/'
    for layout in tensor=2 tensor=auto shard=weights recompute=layer recompute=selective; do
        one_line "training with pipeline.$layout" 1 "pipeline\\.${layout%=*}" "$elapse" train "$tmp/good.json" -n 2 \
            --out "$tmp/runl" --set "pipeline.$layout"
    done
    one_line "missing data" 3 'absent-folder' "$elapse" train "$tmp/nodata.json" -n 2 --out "$tmp/rund"
    mkdir "$tmp/cifar"
    head -c 10000 /dev/zero >"$tmp/cifar/data_batch_1.bin"
    head -c 10000 /dev/zero >"$tmp/cifar/test_batch.bin"
    job truncated 's/"synthetic"/"cifar10", "path": "cifar"/'
    one_line "truncated data" 2 'data_batch_1\.bin|test_batch\.bin' "$elapse" train "$tmp/truncated.json" -n 2 --out "$tmp/runt"
    one_line "training with a bad job" 2 'key\.json' "$elapse" train "$tmp/key.json" -n 2 --out "$tmp/runk"
    for run in run3 run9 rund runt runk; do
        no_file "a refused training leaves nothing: $run" "$tmp/$run"
    done
    stopped() { # once the store is there the ranks are at work
        "$elapse" profile -n 1 --model vit-b16 --db "$tmp/stop.db" >/dev/null 2>"$tmp/stop.err" &
        while [ ! -e "$tmp/stop.db" ] && kill -0 $! 2>/dev/null; do sleep 0.1; done
        kill -TERM $!
        wait $!
        [ $? -eq 143 ] && [ "$(cat "$tmp/stop.err")" = "elapse: profile was stopped before anything was measured" ] || { cat "$tmp/stop.err"; false; }
    }
    verify "a profile that is stopped says so" stopped
    expect "a profile of grey images in two classes" 0 'rows' "$elapse" profile -n 1 --quick --microbatches 1 --db "$tmp/classes.db" \
        --json --model vit-tiny:layers=1,hidden=32,heads=2,mlp=64,image=16,patch=8,channels=1,classes=2
    one_line "a profile of a device that is not there" 1 'no such backend' \
        env ELAPSE_CUDA_LIB="$tmp/none.so" "$elapse" profile -n 3 --device cuda --db "$tmp/device/new.db"
    no_file "leaves no store" "$tmp/device"
    not_killed() { # all ranks know of it and end by themselves
        ELAPSE_CUDA_LIB="$tmp/none.so" ${ELAPSE_MPIRUN:-mpirun} -n 2 "$(dirname "$elapse")/elapse-exec" profile --device cuda \
            --db "$tmp/stop.db" >"$tmp/none.out" 2>&1
        [ "$(grep -c '^elapse: ' "$tmp/none.out")" = 1 ] && ! grep -i 'mpi_abort' "$tmp/none.out"
    }
    verify "and no rank of it is killed" not_killed
    launcher() { printf '#!/bin/sh\n%s\n' "$1" >"$tmp/launcher" && chmod +x "$tmp/launcher"; }
    launcher 'shift 2 && exec "$@"'
    one_line "a launcher of another MPI, whose ranks are each alone" 3 '2 ranks asked for, MPI knows 1' \
        env ELAPSE_MPIRUN="$tmp/launcher" "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/alone"
    launcher 'exit 1'
    one_line "a launcher that fails without a word" 3 "launcher' ended train with exit code 1" \
        env ELAPSE_MPIRUN="$tmp/launcher" "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/alone"
    launcher "echo \"\$OMP_WAIT_POLICY:\$GOMP_SPINCOUNT\" >'$tmp/awake'"
    awake() { # WANTED [SETTING]
        env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT ELAPSE_MPIRUN="$tmp/launcher" ${2-} \
            "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/alone"
        [ "$(cat "$tmp/awake")" = "$1" ]
    }
    verify "threads stay awake for a short wait only" awake :3000
    verify "or for as long as the user says" awake :7 GOMP_SPINCOUNT=7
    verify "likewise by OpenMP's own variable" awake active: OMP_WAIT_POLICY=active
    launcher "echo \"\$OMPI_MCA_pml\" >'$tmp/pml'"
    pml() { # WANTED SETTING...: ob1 where all ranks start on this machine
        env -u OMPI_MCA_pml -u SLURM_JOB_NUM_NODES -u SLURM_JOB_NODELIST ELAPSE_MPIRUN="$tmp/launcher" "${@:2}" \
            "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/alone"
        [ "$(cat "$tmp/pml")" = "$1" ] || { cat "$tmp/pml"; false; }
    }
    verify "ranks of one machine get shared memory only" pml ob1
    verify "also in an allocation of this node" pml ob1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST="$(hostname)"
    verify "but not in an allocation of one other node" pml "" SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=another
    verify "nor of two" pml "" SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST="$(hostname),another"
    verify "nor with a file of hosts for Hydra" pml "" HYDRA_HOST_FILE=hosts
    rank=$(dirname "$elapse")/elapse-exec
    one_line "tasks of srun without a plugin" 3 "srun started 2 tasks with MPI plugin 'none'" \
        env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$rank" train "$tmp/good.json" --out "$tmp/alone"
    one_line "processes that each know themselves alone" 3 "srun started 3 processes with MPI plugin 'x', but '.*' knows each" \
        env SLURM_MPI_TYPE=x SLURM_STEP_NUM_TASKS=3 PMI_RANK=0 SLURM_PROCID=0 "$rank" train "$tmp/good.json" --out "$tmp/alone"
    silent() { # another task than the first
        env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$rank" train "$tmp/good.json" --out "$tmp/alone" >"$tmp/silent" 2>&1
        [ $? -eq 3 ] && [ ! -s "$tmp/silent" ]
    }
    verify "of which one speaks" silent
    no_file "and nothing is trained" "$tmp/alone/run.json"
    # A launcher that hears and does not obey: Ctrl-C asks it to stop, then to end, and the third time ends it.
    launcher "cd '$tmp'; trap 'echo USR1 >>heard' USR1; trap 'echo TERM >>heard' TERM; echo up >heard
for i in \$(seq 3000); do sleep 0.1; done"
    heard() { # WORDS, of which the last may take a while; one is said again until it is obeyed
        for _ in $(seq 1000); do [ "$(echo $(uniq "$tmp/heard" 2>/dev/null))" = "$1" ] && return; sleep 0.1; done
        cat "$tmp/heard"
        false
    }
    thrice() {
        local run words
        ELAPSE_MPIRUN="$tmp/launcher" "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/thrice" 2>"$tmp/thrice.err" >/dev/null &
        run=$!
        for words in "up" "up USR1" "up USR1 TERM"; do
            heard "$words" || break
            [ "$words" = up ] || sleep 2 # sooner it is the same wish said twice
            kill -INT $run
            kill -INT $run
        done
        wait $run
        [ $? -eq 130 ] && [ "$(cat "$tmp/thrice.err")" = "elapse: train was stopped" ] && heard "up USR1 TERM"
    }
    verify "the third Ctrl-C ends a launcher that ends by nothing else" thrice
    mkdir -p "$tmp/full/checkpoint-2.tmp/other"
    one_line "an error that all ranks find" 2 "holds .checkpoint-2.tmp., which is not of this run" "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/full"
    check "train" "$elapse" train "$tmp/good.json" -n 2 --out "$tmp/run"
    if [ -w /dev/full ]; then
        one_line "a full disk is told by ranks" 3 'cannot write to standard output' \
            bash -c '"$0" eval "$1/run" "$1/good.json" -n 2 --json >/dev/full' "$elapse" "$tmp"
    fi
    check "its files" test -s "$tmp/run/metrics.jsonl" -a -s "$tmp/run/summary.json" -a -s "$tmp/run/run.db"
    check "compare with it" "$elapse" compare "$tmp/run" --json
    cp -r "$tmp/run" "$tmp/moved"
    sed -i 's/"db":.*/"db": "gone.db",/' "$tmp/moved/summary.json"
    expect "a store that went elsewhere" 3 '^hint: .*present path with --db' "$elapse" compare "$tmp/moved"
    "$elapse" compare --matrix "$tmp/good.json" -n 1 --threads 1 --frozen 0,1 --cache off,on --microbatches 2 \
        --schedules 1f1b --steps 4 --repeats 1 --json >"$tmp/matrix.json" 2>/dev/null
    check "a matrix of frozen and cached runs" test "$(grep -o '"frozen_layers":[0-9]*\|"cached":[a-z]*' "$tmp/matrix.json" |
        cut -d: -f2 | tr '\n' ' ')" = "0 false 1 false 1 true "
    stopped_matrix() {
        "$elapse" compare --matrix "$tmp/good.json" -n 1 --threads 1 --schedules 1f1b --steps 10000 --repeats 9 --set train.epochs=100000 \
            >/dev/null 2>"$tmp/stopped.err" </dev/null &
        local matrix=$! rc
        while [ ! -s "$tmp/stopped.err" ] && kill -0 $matrix 2>/dev/null; do sleep 0.05; done
        works $matrix 1 # it is in its first run
        kill -TERM $matrix
        wait $matrix
        rc=$?
        [ $rc -eq 143 ] && tail -1 "$tmp/stopped.err" | grep -q '^elapse: .* was stopped$' && [ "$(grep -c '^run' "$tmp/stopped.err")" = 1 ] ||
            { echo "exit $rc"; cat "$tmp/stopped.err"; false; }
    }
    verify "a matrix that is stopped starts no further run" stopped_matrix
    stopped_profile() { # a slow processor may need longer until the first item is measured
        local profile rc work
        for work in 3 6 12 24; do
            "$elapse" profile -n 1 --threads 1 --model vit-tiny:layers=2,hidden=96,heads=2,mlp=192,image=32,patch=4 --microbatches 1,2,4 \
                --db "$tmp/stopped.db" --name part >"$tmp/stopped.out" 2>"$tmp/stopped.err" </dev/null &
            profile=$!
            works $profile $work
            kill -TERM $profile
            wait $profile
            rc=$?
            grep -q 'before anything was measured' "$tmp/stopped.err" || break
        done
        [ $rc -eq 143 ] && grep -Eq '^profile part: [0-9]+ rows' "$tmp/stopped.out" && "$elapse" profiles show part --db "$tmp/stopped.db" >/dev/null ||
            { echo "exit $rc"; cat "$tmp/stopped.out" "$tmp/stopped.err"; false; }
    }
    verify "a profile that is stopped keeps what it has" stopped_profile
    fastest() { # every row of a quick profile is its fastest repeat
        "$elapse" profile -n 1 --quick --model vit-tiny:layers=1,hidden=16,heads=2,mlp=32,image=8,patch=4 --microbatches 1,2,3,4,5 \
            --db "$tmp/quick.db" --name quick --quiet >/dev/null 2>&1 &&
            sqlite3 "$tmp/quick.db" "select count(distinct samples), sum(median_ns > p10_ns) from layer_cost join profile on profile_id = profile.id where name = 'quick' and pass != 'update'" | grep -q '^5|0$'
    }
    if command -v sqlite3 >/dev/null; then
        verify "a quick profile has all sizes that fit, by their fastest repeat" fastest
    else
        skip "a quick profile has all sizes that fit" "no sqlite3 here"
    fi
    check "what a run did not record is a dash" bash -c "! $elapse runs show --db $tmp/run/run.db | grep nan"
    check "plot of its losses" "$elapse" plot loss "$tmp/run" -o "$tmp/loss.svg"
    expect "the figure is SVG" 0 '<svg' head -c 400 "$tmp/loss.svg"
    check "timeline" "$elapse" plot timeline "$tmp/run" -o "$tmp/t.png"
    expect "timeline in a terminal" 0 'measured' "$elapse" plot timeline "$tmp/run" --term dumb
    mkdir "$tmp/fake"
    printf '#!/bin/sh\nexit 0\n' >"$tmp/fake/gnuplot" # as gnuplot does when the disk is full
    chmod +x "$tmp/fake/gnuplot"
    one_line "a figure that is not whole" 3 'incomplete' env "PATH=$tmp/fake:$PATH" "$elapse" plot loss "$tmp/run" -o "$tmp/part.svg"
    no_file "it takes no name" "$tmp/part."
    mkfifo "$tmp/pipe"
    timeout 60 cat "$tmp/pipe" >"$tmp/page.html" &
    check "a report into a pipe" "$elapse" report "$tmp/run" -o "$tmp/pipe"
    check "leaves the pipe in place" test -p "$tmp/pipe"
    wait
    expect "and arrives whole" 0 '</html>' tail -1 "$tmp/page.html"
else
    skip "training" "elapse-exec is not built (no MPI, BLAS or libcrypto)"
fi

# --- the tests' own tools ---------------------------------------------------------------------------
mkdir -p "$tmp/tree/sim" "$tmp/tree/exec" "$tmp/tree/partition" "$tmp/tree/profiles" "$tmp/tree/cli"
mkdir "$tmp/tree/exec/comm" "$tmp/tree/exec/step" "$tmp/tree/exec/hall" "$tmp/tree/partition/cost" "$tmp/tree/partition/plan"
echo '#include "exec/a.h"' >"$tmp/tree/sim/b.c"
echo 'int a;' >"$tmp/tree/exec/a.h"
echo '#include <sqlite3.h>' >"$tmp/tree/cli/c.c"
echo '#include "nowhere.h"' >"$tmp/tree/partition/d.h"
echo 'void f(void) { printf("x"); }' >"$tmp/tree/partition/e.c"
echo 'int a;' >"$tmp/tree/cli/e.c"
echo '#include "exec/a.h"' >"$tmp/tree/exec/f.c"
echo 'int b;' >"$tmp/tree/exec/f.h"
echo 'int g(void);' >"$tmp/tree/exec/step/g.h"
printf '#include "exec/step/g.h"\n\nint g(void)\n{\n    return h();\n}\n' >"$tmp/tree/exec/step/g.c"
echo 'int h(void);' >"$tmp/tree/exec/step/h.h"
printf '#include "exec/step/h.h"\n\n#include "exec/step/g.h"\n\nint h(void)\n{\n    return g();\n}\n' >"$tmp/tree/exec/step/h.c"
echo '#include "exec/step/g.h"' >"$tmp/tree/exec/comm/i.c"
echo 'int j;' >"$tmp/tree/exec/hall/j.c"
echo '#include "partition/plan/l.h"' >"$tmp/tree/partition/cost/k.h"
printf '/* As sim/gone.c and plots/<name>.gp. */\n#include "partition/cost/k.h"\n' >"$tmp/tree/partition/plan/l.h"
ROOT="$tmp/tree" tests/check-layers.sh >"$tmp/layers" 2>&1
layers=$?
report "$([ $layers -eq 1 ]; echo $?)" "check-layers fails on breaches" <"$tmp/layers"
for breach in 'sim/b.c:1' 'cli/c.c:1' 'partition/d.h' 'partition/e.c:1' 'two files are named e.c' 'exec/f.c: first include' \
    'exec/comm/i.c:1' 'exec/hall is in no line' 'sim/b.c: lies in no wing' 'partition/cost/k.h:1.*may include itself, base' \
    'circle: partition/cost -> partition/plan' "plan/l.h:1: no 'sim/gone.c'" \
    'circle: exec/step/g -> exec/step/h (h)' 'circle: exec/step/h -> exec/step/g'; do
    grep -q "$breach" "$tmp/layers"
    report $? "check-layers finds $breach" <"$tmp/layers"
done
# deps.sh on a machine that lacks cJSON, by programs that stand in for pkg-config, id, sudo, apt-get.
mkdir "$tmp/bin"
printf '#!/bin/bash\n[ "$2" = libcjson ] && exit 1\nexec %s "$@"\n' "$(command -v pkg-config)" >"$tmp/bin/pkg-config"
printf '#!/bin/bash\necho 1000\n' >"$tmp/bin/id"
printf '#!/bin/bash\nexit 1\n' | tee "$tmp/bin/sudo" >"$tmp/bin/apt-get"
chmod +x "$tmp/bin/"*
expect "deps without root or sudo prints the line to run" 3 '^deps: .*apt-get install .*libcjson-dev$' \
    env -u ELAPSE_SKIP_DEPS PATH="$tmp/bin:$PATH" tests/deps.sh
printf '#!/bin/bash\necho 0\n' >"$tmp/bin/id"
expect "deps says so when apt-get fails" 3 'deps: apt-get failed; run: apt-get update' \
    env -u ELAPSE_SKIP_DEPS PATH="$tmp/bin:$PATH" tests/deps.sh
check "deps does nothing when nothing is missing" env ELAPSE_SKIP_DEPS= tests/deps.sh

printf '#!/bin/bash\necho "ok - a"\necho "not ok - b"\n' >"$tmp/one"
printf '#!/bin/bash\nkill -SEGV $$\n' >"$tmp/dies"
printf '#!/bin/bash\nexit 0\n' >"$tmp/empty"
chmod +x "$tmp/one" "$tmp/dies" "$tmp/empty"
for case in "one:1 passed, 1 failed" "dies:0 passed, 1 failed" "empty:0 passed, 1 failed"; do
    ELAPSE_ONLY_BINARIES=1 expect "run.sh: ${case%%:*}" 1 "^${case#*:}" tests/run.sh "$tmp/${case%%:*}"
done
printf '#!/bin/bash\nsleep 0.5\necho "ok - late"\n' >"$tmp/late"
chmod +x "$tmp/late"
in_order() {
    [ "$(ELAPSE_ONLY_BINARIES=1 tests/run.sh "$tmp/late" "$tmp/dies" "$tmp/one" | grep -Eo '^(late|dies|one) |^[0-9].*' | tr '\n' ' ')" = \
        "late  dies  one  2 passed, 2 failed " ]
}
verify "run.sh: side by side, shown in the order given" in_order
printf '#!/bin/bash\n[ -e %s ] && echo "ok - once" && exit\ntouch %s\necho "not ok - once"\n' "$tmp/tried" "$tmp/tried" >"$tmp/once"
chmod +x "$tmp/once"
ELAPSE_ONLY_BINARIES=1 expect "run.sh: a second try counts where it is asked for" 1 '^1 passed, 1 failed$' \
    env TEST_RETRIES=1 tests/run.sh "$tmp/once" "$tmp/dies"
verify "run.sh: and says what failed at first" grep -q '^failed at first: once$' "$tmp/expect.out"
until=$(($(date +%s) + 8)) # a busy machine starts the test before it; the test fails after it
printf '#!/bin/bash\nuntil [ "$(date +%%s)" -gt %s ]; do sleep 0.1; done\necho "not ok - late"\n' "$until" >"$tmp/fails-late"
chmod +x "$tmp/fails-late"
ELAPSE_ONLY_BINARIES=1 expect "run.sh: what failed is not left out for time" 1 '^0 passed, 1 failed$' \
    env TEST_RETRIES=1 TEST_UNTIL=$until tests/run.sh "$tmp/fails-late"
rm "$tmp/tried"
ELAPSE_ONLY_BINARIES=1 expect "run.sh: else it fails" 1 '^0 passed, 1 failed$' tests/run.sh "$tmp/once"
printf '#!/bin/bash\n# repeated: yes\necho "ok - ${ELAPSE_TEST_ALL:-few}"\n' >"$tmp/more.sh"
printf '#!/bin/bash\n# group: slow\necho "ok - slow"\n' >"$tmp/slow.sh"
chmod +x "$tmp/more.sh" "$tmp/slow.sh"
ELAPSE_ONLY_BINARIES=1 expect "run.sh: more processor time than allowed fails, and is written down" 1 \
    '^failed: the tests took [0-9.]* s of processor time, more than 0.0001 s$' \
    env TEST_CPU_LIMIT=0.0001 TEST_TIMES="$tmp/times" tests/run.sh "$tmp/more.sh" "$tmp/slow.sh"
verify "run.sh: a line for each test" grep -qx '[0-9.]* [0-9.]* quick more.sh' "$tmp/times"
ELAPSE_ONLY_BINARIES=1 expect "run.sh: less is fine" 0 '^1 passed, 0 failed$' \
    env TEST_CPU_LIMIT=100 tests/run.sh "$tmp/more.sh" "$tmp/slow.sh"
ELAPSE_ONLY_BINARIES=1 expect "run.sh: behind the quick ones, others and their repetitions" 0 '^2 passed, 0 failed$' \
    env TEST_GROUPS="slow repeated" TEST_TIMES="$tmp/times" tests/run.sh "$tmp/more.sh" "$tmp/slow.sh"
verify "run.sh: in groups of their own" test "$(awk '{print $3, $4}' "$tmp/times" | sort | xargs)" = "repeated more.sh slow slow.sh"
programs=$(dirname "$(readlink -f "$elapse")")/../tests
filtered() { # a pattern chooses among the tests of a program, and every program knows it
    local program bad=0
    [ "$(ELAPSE_TEST_FILTER='nearest_name__guesses*' "$programs/test_units" 2>&1 | grep -c '^ok ')" = 1 ] || bad=1
    for program in "$programs"/test_*; do
        [[ -x $program && $program != *.* ]] || continue
        grep -q ELAPSE_TEST_FILTER "$program" || { echo "$program"; bad=1; }
    done
    [ $bad = 0 ]
}
if [ -x "$programs/test_units" ]; then
    CMOCKA_MESSAGE_OUTPUT=TAP verify "ELAPSE_TEST_FILTER: one test of a program" filtered
else
    skip "ELAPSE_TEST_FILTER" "no test programs here"
fi
expect "a user without HOME has one all the same" 0 rtx5000-paper env -u HOME -u ELAPSE_DB -u XDG_DATA_HOME "$elapse" profiles list
# An error that one process can find starts no launcher: here there is none to start.
ELAPSE_MPIRUN=$tmp/none expect "a wrong option starts no ranks" 2 "unknown option '--stepz'" "$elapse" train examples/paper/vit.json --stepz 3
ELAPSE_MPIRUN=$tmp/none expect "nor does a job that is not there" 3 "$tmp/none.json" "$elapse" train "$tmp/none.json" -n 2
ELAPSE_MPIRUN=$tmp/none expect "nor a store that is not there" 3 "cannot open store" "$elapse" train examples/paper/vit.json --db "$tmp/none.db"
echo '{"name": "two", "model": "vit-tiny", "data": {"kind": "synthetic"}, "train": {"epochs": 1, "batch": {"global": 8}},
  "pipeline": {"num_stages": 2, "num_replicas": 1}}' >"$tmp/two.json"
ELAPSE_MPIRUN=$tmp/none expect "nor a number of ranks that does not fit" 2 "must equal the number of ranks, got 3" "$elapse" train "$tmp/two.json" -n 3
ELAPSE_MPIRUN=$tmp/none expect "nor a checkpoint that is not there" 3 "cannot open '$tmp/none'" "$elapse" eval "$tmp/none" examples/paper/vit.json
finish
