#!/bin/bash
# tests/e2e/soak.sh - a long run: 10,000 steps and 200 changes of plan on two ranks, and nothing grows.
#
#   tests/e2e/soak.sh [STEPS]        10000: a change every 50 steps
#
# Layers freeze and thaw, and the pipeline has two stages and one in turn. tests/e2e/chaos_strike.c notes what each
# rank holds whenever it makes a group of ranks: communicators, windows of shared memory, open descriptors,
# mappings in /dev/shm, resident memory, what SQLite has allocated, and what all others have. The largest figures
# of the changes around step 1,000 (a tenth of the run) and of as many at its end are printed beside each other.
#
# Exit 1 if there are more communicators, windows, descriptors or mappings at the end. SQLite keeps pages of run.db,
# up to 2,000 KiB (tests/unit/profiles/test_record.c); that may grow. All other memory may grow by HEAP_KIB (256), and what is
# resident by SOAK_KIB (512) more than SQLite's.
. "$(dirname "$0")/lib.sh"
begin
steps=${1:-10000} every=50 allowed_kib=${SOAK_KIB:-512} allowed_heap=${HEAP_KIB:-256}
changes=$((steps / every)) window=4
watch=$(dirname "$elapse")/../tests/chaos_strike.so
for needed in "$elapse" "${elapse}-exec" "$watch"; do
    [ -e "$needed" ] || { skip "soak" "no $needed here"; finish; }
done
cycle() { # N WORDS: the words again and again, N in all, with commas
    local n=$1 i list=""
    shift
    for ((i = 0; i < n; i++)); do list+=,${*:i % $# + 1:1}; done
    echo "${list:1}"
}
cat >"$tmp/job.json" <<JOB
{ "name": "soak",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 8, "patch": 4, "hidden": 16, "heads": 2,
            "mlp": 32, "layers": 3, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 1600, "test_samples": 16},
  "train": {"epochs": $((steps / 100)), "batch": {"global": 16}, "reduction": "canonical", "clip_norm": 1.0,
            "optimizer": {"kind": "adamw", "lr": 0.001}, "checkpoint_every_steps": 1000, "seed": 1},
  "pipeline": {"num_microbatches": 4, "schedule": "1f1b"},
  "freeze": {"policy": "table", "every_steps": $every, "table": [$(cycle "$changes" 0 1 2 1)]},
  "elastic": {"stages": [$(cycle "$changes" 2 1)]},
  "cache": {"policy": "on"} }
JOB
mkdir "$tmp/held"
began=$SECONDS
LD_PRELOAD=$watch CHAOS_DIR=$tmp/held CHAOS_LOG=1 "$elapse" train "$tmp/job.json" --out "$tmp/out" -n 2 --json \
    </dev/null >"$tmp/json" 2>"$tmp/err" || { tail -5 "$tmp/err"; echo "not ok - a run of $steps steps"; exit 1; }
took=$((SECONDS - began))
changed=$(grep -o '"transition"' "$tmp/out/metrics.jsonl" | wc -l)

# most RANK FIRST LAST: the largest figures of these lines of its notes
most() {
    sed -n "$2,$3p" "$tmp/held/live.$1" |
        awk '{for (i = 1; i <= NF; i++) if ($i > m[i]) m[i] = $i} END {for (i = 1; i <= NF; i++) printf "%d ", m[i]; print ""}'
}
lines=$(wc -l <"$tmp/held/live.0")
each=$((lines / changes)) # groups that are made at a change
span=$((each * window))
printf '%d steps, %d turns, %d s\n' "$steps" "$changes" "$took"
printf '%-6s %-12s %14s %8s %12s %9s %14s %12s %11s\n' rank at communicators windows descriptors mappings \
    'resident, KiB' 'SQLite, KiB' 'other, KiB'
bad=0
for rank in 0 1; do
    read -r g1 w1 d1 m1 k1 s1 o1 < <(most $rank $((lines / 10)) $((lines / 10 + span)))
    read -r g2 w2 d2 m2 k2 s2 o2 < <(most $rank $((lines - span)) "$lines")
    line="%-6d %-12s %14d %8d %12d %9d %14d %12d %11d\n"
    # shellcheck disable=SC2059
    printf "$line" $rank "step $((steps / 10))" "$g1" "$w1" "$d1" "$m1" "$k1" "$s1" "$o1"
    # shellcheck disable=SC2059
    printf "$line" $rank "step $steps" "$g2" "$w2" "$d2" "$m2" "$k2" "$s2" "$o2"
    [ "$g2" -le "$g1" ] && [ "$w2" -le "$w1" ] && [ "$d2" -le "$d1" ] && [ "$m2" -le "$m1" ] &&
        [ $((o2 - o1)) -le "$allowed_heap" ] && [ $((k2 - k1)) -le $((allowed_kib + s2 - s1)) ] || bad=1
done
{ echo "changes recorded: $changed"; tail -3 "$tmp/err"; } | report $bad "$steps steps and $changes turns without growth"
finish
