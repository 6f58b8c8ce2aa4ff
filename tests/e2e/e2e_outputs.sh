#!/bin/bash
# Outputs that are inputs: no command replaces a file that it reads, nor a file in a checkpoint's folder.
# seconds: 8
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

freezing_vit
train vit run -n 1 --steps 2
cp "$tmp/vit.json" "$tmp/job.json"
ln -s job.json "$tmp/link.svg"
"$elapse" plan "$tmp/job.json" -o "$tmp/plan.json" >/dev/null
point=$(ls -d "$tmp"/run/checkpoint-2)
stage=$point/stage-00000.safetensors

# keeps NAME FILE PATTERN COMMAND...: refused with exit 2 and the pattern; FILE is as before, nothing is beside it.
keeps() {
    local name=$1 file=$2 pattern=$3 before
    shift 3
    before=$(sha256sum "$file")
    expect "$name" 2 "$pattern" "$elapse" "$@"
    verify "... is refused, and leaves it as it was" test "$before" = "$(sha256sum "$file"; ls "$(dirname "$file")" | grep '[.]tmp[.]')"
}
reads="^elapse: cannot write '.*': this command reads it$"
keeps "plan -o onto its job" "$tmp/job.json" "$reads" plan "$tmp/job.json" -o "$tmp/job.json"
keeps "plan -o by another name of it" "$tmp/job.json" "$reads" plan "$tmp/job.json" -o "$tmp/../$(basename "$tmp")/job.json"
keeps "sim --trace onto its job" "$tmp/job.json" "$reads" sim "$tmp/job.json" --step --trace "$tmp/job.json"
keeps "sim --ops onto its plan" "$tmp/plan.json" "$reads" sim "$tmp/job.json" --plan "$tmp/plan.json" --step --ops "$tmp/plan.json"
keeps "sim --timeline onto its job" "$tmp/job.json" "$reads" sim "$tmp/job.json" --faults node_per_hour=1 --seeds 2 --timeline "$tmp/job.json"
keeps "train --trace onto its job" "$tmp/job.json" "$reads" train "$tmp/job.json" -n 1 --out "$tmp/other" --steps 1 --trace "$tmp/job.json"
keeps "compare --trace onto the run's store" "$tmp/run/run.db" "$reads" compare "$tmp/run" --trace "$tmp/run/run.db"
ln -s run/metrics.jsonl "$tmp/link.html"
keeps "report -o by a link to the run's metrics" "$tmp/run/metrics.jsonl" "$reads" report "$tmp/run" -o "$tmp/link.html"
keeps "plot -o by a link to its job" "$tmp/job.json" "$reads" plot timeline "$tmp/job.json" -o "$tmp/link.svg"
"$elapse" profiles export rtx5000-paper -o "$tmp/paper.json"
"$elapse" profiles import "$tmp/paper.json" --replace >/dev/null
keeps "profiles export -o onto its store" "$ELAPSE_DB" "$reads" profiles export rtx5000-paper -o "$ELAPSE_DB"
keeps "export -o onto a file of the checkpoint" "$stage" "its folder is a checkpoint$" export "$point" -o "$stage"
keeps "export -o into its folder" "$point/manifest.json" "its folder is a checkpoint$" export "$tmp/run" -o "$point"
keeps "plan -o into it" "$point/manifest.json" "its folder is a checkpoint$" plan "$tmp/job.json" -o "$point/plan.json"
mkdir "$tmp/web" && echo '{}' >"$tmp/web/manifest.json"
expect "a folder with another manifest is written to" 0 . "$elapse" plan "$tmp/job.json" -o "$tmp/web/plan.json"
expect "an output of before is replaced" 0 . "$elapse" plan "$tmp/job.json" -o "$tmp/plan.json"

expect "two outputs in one file" 2 "two options write '$tmp/two'" "$elapse" sim --step --model gpt2 --cluster a100-1x2 --trace "$tmp/two" --ops "$tmp/two"
expect "a page under another suffix" 2 "-o must end in .html, got 'p.pdf'" "$elapse" page -o p.pdf
expect "a report under another suffix" 2 "-o must end in .html, got '.*/r.pdf'" "$elapse" report "$tmp/run" -o "$tmp/r.pdf"
expect "a key without effect is told" 0 "^note: train.lora.alpha has no effect without train.lora.rank$" "$elapse" plan "$tmp/job.json" --set train.lora.alpha=16
expect "... in a training log" 0 "^note: data.path has no effect without data.kind$" "$elapse" train "$tmp/job.json" --no-measure --steps 1 --out "$tmp/noted" --set data.path=/data/cifar10
expect "a measured time in a wrong unit" 0 "row 1: .* times as long as computed: is its unit right" \
    "$elapse" calibrate --step "--model gpt2 --cluster a100-1x2 --stages 2" --measured 2h -o strange
verify "- is standard input" bash -c '"$0" schedule --kind 1f1b --stages 2 --microbatches 2 --csv | "$0" schedule --check -' "$elapse"

# An unreadable input is named, with what helps.
train vit froze -n 1 --steps 14
echo '{"torn' >"$tmp/froze/norms.json"
expect "report over norms that cannot be read" 2 "norms.json:1:" "$elapse" report "$tmp/froze" -o "$tmp/page.html"
expect "plot freeze over them" 2 "norms.json:1:" "$elapse" plot freeze "$tmp/froze" -o "$tmp/page.svg"
expect "a device as freeze.norms" 2 "cannot read '/dev/zero': it is a device" "$elapse" plan "$tmp/job.json" --set freeze.norms=/dev/zero
expect "a device as data" 2 "cannot open '/dev/zero': it is a device" "$elapse" train "$tmp/job.json" --set model=minilm-l6 \
    --set 'data={"kind":"sst2","path":"/dev","vocab":"/dev/zero"}' --out "$tmp/none"
expect "both missing keys are named" 2 "data.path and data.vocab are missing" "$elapse" train "$tmp/job.json" --set model=minilm-l6 \
    --set 'data={"kind":"sst2"}' --out "$tmp/none"
rm "$point/manifest.json"
expect "the only checkpoint has lost its manifest" 3 "^hint: no checkpoint of this run can be used" "$elapse" train --resume "$tmp/run"
expect "... given by itself" 3 "^hint: a checkpoint's folder has a manifest.json" "$elapse" train --resume "$point"
narrow() { # COLUMNS: the longest line of a table in a terminal that wide, and its head
    script -qec "stty cols $1; '$elapse' sim --step --model gpt2 --cluster a100-1x2 --replicas 2 --quiet --sweep microbatches=1,2" /dev/null \
        </dev/null | tr -d '\r' | awk 'length > most { most = length } /^ *microbatches/ { head = $0 } END { print most "; " head }'
}
narrow_tables_fit() {
    local wide small
    wide=$(narrow 200) small=$(narrow 80)
    grep -q 'all-reduce.*MFU' <<<"$wide" && [ "${small%%;*}" -le 80 ] && grep -q 'step.*tokens/s/dev' <<<"$small" && ! grep -q all-reduce <<<"$small"
}
row_of() { # COLUMNS ARGS...: head and first row of a table in a terminal that wide
    script -qec "stty cols $1; '$elapse' ${*:2}" /dev/null </dev/null | tr -d '\r' |
        awk '/^ *(epoch|device|item|profile|run|machine|TFLOP.s) +[a-z]/ && !/:/ { print; getline; print; exit }'
}
all_tables_fit() { # at 80 and at 40 columns, with fewer columns than at 200
    local columns ask rows failed=0
    "$elapse" sim examples/demo.json --set data.train_samples=64 --record "$tmp/narrow.db" >/dev/null
    for ask in 'sim examples/demo.json --set data.train_samples=64' 'sim --step --model gpt2 --cluster a100-1x2 --stages 2' \
        'model gpt2' 'profiles list' "runs list --db $tmp/narrow.db" "runs show --db $tmp/narrow.db" 'cluster' 'devices'; do
        for columns in 80 40; do
            rows=$(row_of "$columns" "$ask")
            [ "$(wc -l <<<"$rows")" -eq 2 ] && [ "$(wc -L <<<"$rows")" -le "$columns" ] || { echo "elapse $ask: in $columns columns" "$rows"; failed=1; }
        done
        [ "$(row_of 200 "$ask" | head -1 | wc -w)" -gt "$(head -1 <<<"$rows" | wc -w)" ] || { echo "elapse $ask: at 200"; failed=1; }
    done
    return $failed
}
long_lines_go_on_below() { # in 80 columns, each word as elsewhere; JSON is one line
    local ask words
    for ask in 'plan examples/what-if/gpt2-xl.json --work 2000' 'schedule --kind 1f1b --stages 4 --microbatches 8' 'sim --step --model gpt2 --cluster a100-1x2 --stages 2 --no-wall' \
        'help plan' 'doctor'; do
        script -qec "stty cols 80; '$elapse' $ask" /dev/null </dev/null | tr -d '\r' >"$tmp/terminal"
        [ "$(wc -L <"$tmp/terminal")" -le 80 ] && [ -s "$tmp/terminal" ] || { echo "elapse $ask"; cat "$tmp/terminal"; return 1; }
    done
    "$elapse" help plan | tr -s ' \n' '\n' >"$tmp/words"
    script -qec "stty cols 80; '$elapse' help plan" /dev/null </dev/null | tr -d '\r' | tr -s ' \n' '\n' | cmp - "$tmp/words" || return 1
    "$elapse" schedule --kind 1f1b --stages 4 --microbatches 8 | grep -o '[0-9][FB][0-9]' | sort >"$tmp/words"
    script -qec "stty cols 80; '$elapse' schedule --kind 1f1b --stages 4 --microbatches 8" /dev/null </dev/null | grep -o '[0-9][FB][0-9]' | sort | cmp - "$tmp/words" || return 1
    [ "$(script -qec "stty cols 80; '$elapse' cluster dgx-h100 --json" /dev/null </dev/null | wc -l)" -eq 1 ]
}
if command -v script >/dev/null; then
    verify "long lines go on below themselves" long_lines_go_on_below
    verify "every table leaves out columns that a terminal has no room for" all_tables_fit
    verify "a table leaves out columns that a terminal has no room for" narrow_tables_fit
else
    skip "a table in a narrow terminal" "script is missing"
fi
finish
