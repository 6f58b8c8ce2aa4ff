#!/bin/bash
# Named pipes and devices in place of files: each option and argument that names an input refuses them at once, and so does
# each file of a folder that is read. Nobody writes to these pipes, so a command that opened one would wait for ever.
# seconds: 15
. "$(dirname "$0")/lib.sh"
begin
cat >"$tmp/job.json" <<'JOB'
{"name": "small", "model": "llama:layers=1,hidden=16,heads=2,mlp=32,vocab=256,seq=16", "cluster": "a100-1x2",
 "data": {"kind": "synthetic", "train_samples": 8}, "train": {"batch": {"global": 4}, "epochs": 1}, "pipeline": {"num_microbatches": 1}}
JOB
echo 'a text' >"$tmp/text.txt"
printf 'model,cluster,batch,measured\ngpt2,a100-1x2,8,1s\n' >"$tmp/rows.csv"
cd "$tmp" || exit 3
for end in json csv db txt sqlite safetensors png; do mkfifo "pipe.$end"; ln -s /dev/zero "zero.$end"; done
mkdir -p config/elapse/devices cache/models--a--b/refs pipe.d zero.d
for name in adapter_config.json summary.json run.db; do mkfifo "pipe.d/$name"; ln -s /dev/zero "zero.d/$name"; done
mkfifo config/elapse/devices/mine.json cache/models--a--b/refs/main

# A line a way to name an input: @ is pipe or zero.
ways=(
    "model @.json" "balance @.json --stages 2" "cluster @.json" "cluster import @.txt --kind a100"
    "freeze --layers 4 --epochs 3 --table @.json" "freeze --layers 4 --epochs 3 --policy gradient-norm --norms @.json"
    "freeze --layers 4 --epochs 3 --policy safe --evidence @.json" "schedule --check @.csv"
    "plan @.json" "plan job.json --cluster @.json" "plan job.json --db @.db" "plan --model @.json --cluster 1x2 --batch 8"
    "plan --from megatron @.txt --cluster a100-1x2"
    "sim @.json" "sim job.json --step --plan @.json" "sim job.json --db @.db" "sim job.json --record @.db"
    "sim job.json --faults @.json" "sim job.json --faults trace=@.csv,restart=1s" "sim job.json --faults trace_steps=@.csv,restart=1s"
    "sim --step --model gpt2 --stages 2 --schedule-csv @.csv"
    "profiles list --db @.db" "profiles import @.json --db new.db" "profiles import @.csv --db new.db"
    "runs import @.csv --db new.db" "runs list --db @.db" "report @.json -o out.html" "report job.json --db @.db -o out.html"
    "report job.json --plan @.json -o out.html" "plot loss @.json -o out.svg" "plot sweep @.csv -o out.svg"
    "compare run --db @.db" "calibrate --csv @.csv -o c" "calibrate --csv rows.csv --judge @.csv -o c" "calibrate --run @.d -o c"
    "calibrate --measured @.json -o c --step job.json" "calibrate --measured @.sqlite -o c --step job.json"
)
trains=(
    "train @.json" "train job.json --plan @.json" "train job.json --init @.safetensors" "train job.json --init @.json" "train job.json --db @.db"
    "train job.json --out out --plan-losses @.csv --max-restarts 1" "train job.json --init text.txt --adapter @.d"
    "train job.json --set data.kind=text --set data.path=@.txt" "train job.json --set data.kind=text --set data.path=@.json"
    "train job.json --set data.kind=text --set data.path=text.txt --set data.vocab=@.json"
    "train job.json --set data.kind=text --set data.path=text.txt --set data.vocab=@.txt" "eval @.safetensors job.json"
    "generate run --prompt x --vocab @.json" "predict classes @.png" "predict classes --job @.json"
)
refused() { # KIND PATTERN WAY: within 60 s, although the machine is busy
    local rc
    # shellcheck disable=SC2086
    timeout -k 5 60 "$elapse" ${3//@/$1} </dev/null >way.out 2>way.err
    rc=$?
    [ $rc -eq 2 ] && grep -q "it is a $2, not a file" way.err || { echo "exit $rc: elapse ${3//@/$1}"; cat way.err; false; }
}
all_refused() { # KIND PATTERN WAY...
    local kind=$1 pattern=$2 bad=0
    shift 2
    for way; do refused "$kind" "$pattern" "$way" || bad=1; done
    return $bad
}
if [ -x "${elapse%/*}/elapse-exec" ]; then
    "$elapse" train job.json --out run -n 1 --no-measure --quiet >run.out 2>&1 || cat run.out
    "$elapse" train job.json --out classes -n 1 --no-measure --quiet --set model.preset=vit-tiny:layers=1,hidden=16,heads=2,mlp=32,image=8,patch=4 >run.out 2>&1 || cat run.out
    ways+=("${trains[@]}")
else
    skip "pipes of a training" "elapse-exec is not built (no MPI, BLAS or libcrypto)"
fi
verify "a named pipe in place of each input" all_refused pipe 'named pipe' "${ways[@]}"
verify "a device in place of each input" all_refused zero device "${ways[@]}"
every_option() { # that names an input, by the rows of the help
    local option missing=0
    for option in $("$elapse" --help=rows | awk -F'\t' '$1 == "option" && $3 ~ /FILE|PATH|^(RUN_)?DIR$/ {print $2}' | sort -u); do
        case $option in -o | --out | --timeline | --trace | --memory-snapshot | --ops | --chakra | --tensorboard | --resume) continue ;; esac
        [[ " ${ways[*]} ${trains[*]} " == *" $option "* ]] || { echo "no way has $option"; missing=1; }
    done
    return $missing
}
verify "each option that names an input was tried" every_option
expect "a device kind of the user's" 2 'mine.json.: it is a named pipe' env XDG_CONFIG_HOME="$tmp/config" timeout 60 "$elapse" plan --model gpt2 --cluster 1x2 --batch 4 --set cluster.kind=mine
expect "a model of the hub's cache" 2 "its config.json is not in" env HF_HUB_CACHE="$tmp/cache" timeout 60 "$elapse" model a/b
expect "the store of the environment" 2 'it is a named pipe' env ELAPSE_DB="$tmp/pipe.db" timeout 60 "$elapse" profiles list

# Files of a run's folder, one at a time. What a command does not read does not matter to it.
each_file() { # COMMAND...: ends, whatever file of the run is a pipe; @ is the run
    local file rc bad=0
    for file in $(cd run && find . -type f); do
        rm -rf x out.html out
        cp -r run x && rm "x/$file" && mkfifo "x/$file" || return
        timeout -k 5 60 "$elapse" "${@//@/x}" </dev/null >way.out 2>way.err
        rc=$?
        [ $rc -le 3 ] || { echo "exit $rc with $file: elapse $*"; cat way.err; bad=1; }
    done
    return $bad
}
if [ -d run ]; then
    verify "a run goes on with a pipe among its files, or is refused" each_file train --resume @ -n 1 --no-measure --quiet --set train.epochs=2 --override
    verify "it restarts, or is refused" each_file train --resume @ -n 1 --no-measure --quiet --set train.epochs=2 --override --max-restarts 1
    verify "a run with a pipe is reported, or refused" each_file report @ -o out.html
    verify "evaluated" each_file eval @
    verify "exported" each_file export @ -o out
    verify "generated from" each_file generate @ --prompt x --max-tokens 1
    verify "checked" each_file checkpoint verify @
    verify "compared" each_file compare @
fi
finish
