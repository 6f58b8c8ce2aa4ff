#!/bin/bash
# examples/demo.sh - the main job once through every room: profile this machine, plan, simulate,
# train for real, compare, plot. Under 3 minutes on 2 cores.
#
#   make demo                       images of the built-in procedural set
#   make demo DATA=path/to/cifar10  CIFAR-10 in its binary format
#   make demo STEPS=40              stop the training earlier
set -euo pipefail
cd "$(dirname "$0")/.."
elapse=build/bin/elapse
out=${DEMO_OUT:-build/demo}
job=examples/demo.json
db=$out/profiles.db
mkdir -p "$out"
rm -rf "$out/run" "$db" "$db-wal" "$db-shm"
start=$SECONDS

data=()
[ -n "${DATA:-}" ] && data=(--set data.kind=cifar10 --set "data.path=$(realpath "$DATA")")
[ -n "${STEPS:-}" ] && data+=(--set "train.max_steps=$STEPS")

say() { printf '\n[%3d s] %s\n' $((SECONDS - start)) "$*"; }
# field FILE KEY: the first number, text or array under that key in a one-line JSON object
field() { grep -oE "\"$2\":(\"[^\"]*\"|\[[^]]*\]|[-+0-9.eE]+)" "$1" | head -1 | sed -E 's/^"[^"]*"://; s/^"(.*)"$/\1/'; }
ms() { awk -v ns="$1" 'BEGIN { printf "%.2f ms", ns / 1e6 }'; }
percent() { awk -v x="$1" 'BEGIN { printf "%.1f %%", 100 * x }'; }

say "profile: the sublayers of the model and the links between two ranks"
model=$(sed -nE 's/^ *"model": "([^"]*)".*/\1/p' $job)
$elapse profile --quick --model "$model" -n 2 --db "$db"

say "plan: exact min-max cut by measured time, and the released greedy balancer"
for balancer in optimal released; do
    $elapse plan $job --db "$db" "${data[@]}" --set pipeline.balancer=$balancer --json >"$out/plan-$balancer.json"
done
microbatches=$(field "$out/plan-optimal.json" microbatches)

say "simulate: one step of each schedule, M=$microbatches"
for schedule in gpipe 1f1b; do
    $elapse sim $job --step --db "$db" "${data[@]}" --set pipeline.schedule=$schedule \
        --set "pipeline.num_microbatches=$microbatches" --json >"$out/sim-$schedule.json"
done

say "train: 2 ranks, the same op lists"
$elapse train $job -n 2 --db "$db" "${data[@]}" --set "pipeline.num_microbatches=$microbatches" \
    --out "$out/run" --json >"$out/train.json"

say "compare and plot"
$elapse compare "$out/run" --db "$db" --json >"$out/compare.json"
$elapse plot timeline "$out/run" --db "$db" -o "$out/timeline.svg" >/dev/null
$elapse plot loss "$out/run" -o "$out/loss.svg" >/dev/null
$elapse report "$out/run" --db "$db" -o "$out/report.html" >/dev/null

rows=$(wc -l <"$out/run/metrics.jsonl")
first=$(head -1 "$out/run/metrics.jsonl" >"$out/first.json" && field "$out/first.json" loss)
rm -f "$out/first.json"
echo
echo "model              $model"
echo "data               ${DATA:-procedural shapes}"
for balancer in optimal released; do
    printf '%-18s cut %s, K=%s R=%s M=%s, %s a step\n' "plan ($balancer)" \
        "$(field "$out/plan-$balancer.json" cut)" "$(field "$out/plan-$balancer.json" pipeline_length)" \
        "$(field "$out/plan-$balancer.json" replicas)" "$(field "$out/plan-$balancer.json" microbatches)" \
        "$(ms "$(field "$out/plan-$balancer.json" step_ns)")"
done
for schedule in gpipe 1f1b; do
    printf '%-18s %s a step, bubble %s\n' "simulated $schedule" \
        "$(ms "$(field "$out/sim-$schedule.json" step_ns)")" \
        "$(percent "$(field "$out/sim-$schedule.json" bubble_fraction)")"
done
echo "measured 1f1b      $(ms "$(field "$out/compare.json" real_step_ns)") a step, bubble $(percent "$(field "$out/compare.json" real_bubble_fraction)"); spread of equal steps $(percent "$(field "$out/compare.json" spread)")"
signed() { awk -v x="$1" 'BEGIN { printf "%+.1f %%", 100 * x }'; }
low=$(field "$out/compare.json" error_low || true) # null where the run is too short to have parts
off="off by $(signed "$(field "$out/compare.json" error)")"
[ -z "$low" ] || off+="; of six parts of the run $(signed "$low") to $(signed "$(field "$out/compare.json" error_high)")"
grep -q '"noisy":true' "$out/compare.json" && off="not judged, because equal steps spread too much (the machine is noisy)"
echo "prediction         $(ms "$(field "$out/compare.json" sim_step_ns)"), $off"
printf 'loss               %.3f -> %.3f in %d steps\n' "$first" "$(field "$out/train.json" final_loss)" "$rows"
echo "accuracy           $(percent "$(field "$out/train.json" initial_accuracy)") before, $(percent "$(field "$out/train.json" eval_accuracy)") after"
echo
echo "files: $db $out/plan-optimal.json $out/sim-1f1b.json $out/compare.json"
echo "       $out/run/ (metrics.jsonl summary.json run.db checkpoint) $out/timeline.svg $out/loss.svg"
echo "report: $out/report.html (open it in a browser)"
say "done"
