#!/bin/bash
# examples/elastic/report.sh OUT - the tables of what run.sh has measured, OUT/results.json and
# figures. A run that is not there (yet) is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
elapse=${ELAPSE:-build/bin/elapse}
field() { grep -oE "\"$2\":(\"[^\"]*\"|\[[^]]*\]|[-+0-9.eE]+|null)" "$1" | head -1 | sed -E 's/^"[^"]*"://; s/^"(.*)"$/\1/'; }

# run DIR: "train_ns steps_ns transition_ns simulated_ns accuracy K R M" of a run folder
run() {
    local dir=$1 sim=null steps
    if grep -q '"elastic":true' "$dir.compare.json" 2>/dev/null; then
        sim=$(field "$dir.compare.json" sim_total_ns)
    elif [ -s "$dir.compare.json" ]; then
        steps=$(field "$dir.json" steps)
        sim=$(($(field "$dir.compare.json" sim_step_ns) * steps))
    fi
    steps=$(sed -E 's/.*"step_ns":([0-9]*).*/\1/' "$dir/metrics.jsonl" | awk '{s += $1} END {printf "%.0f", s}')
    echo "$(field "$dir.json" train_ns) $steps $(field "$dir.json" transition_ns) $sim" \
        "$(field "$dir.json" eval_accuracy) $(field "$dir.json" pipeline_length)" \
        "$(field "$dir.json" replicas) $(field "$dir.json" microbatches)"
}

: >"$out/runs.txt" # part variant seed ...
for dir in "$out"/vit-*-[0-9] "$out"/minilm-*-[0-9]; do
    [ -s "$dir/summary.json" ] && [ -s "$dir.json" ] || continue
    name=$(basename "$dir")
    variant=${name#*-}
    echo "${name%%-*} ${variant%-*} ${name##*-} $(run "$dir")" >>"$out/runs.txt"
done

[ -s "$out/runs.txt" ] || { echo "report.sh: no run in $out has ended" >&2; exit 1; }

names="static-k2:static,_K=2_R=1 static:static,_planner's_best freeze-only:freeze_only no-dp:no_AutoDP no-cache:no_cache all:all"
for part in vit minilm; do
    grep -q "^$part [^ ]* 1 " "$out/runs.txt" || continue
    awk -v part=$part -v names="$names" '
        function seconds(ns) { return ns == "null" || ns == "" ? "-" : sprintf("%.1f", ns / 1e9) }
        $1 == part && $3 == 1 { t[$2] = $4; steps[$2] = $5; change[$2] = $6; sim[$2] = $7; acc[$2] = $8; shape[$2] = "K=" $9 " R=" $10 " M=" $11 }
        $1 == part && $3 > 0 && $2 == "static" { a[$3] = $8; ta[$3] = $4 }
        $1 == part && $3 > 0 && $2 == "all" { b[$3] = $8; tb[$3] = $4 }
        END {
            split("12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262", student, " ")
            base = "static" in t ? t["static"] : 0
            printf "%s\n%-24s %10s %10s %8s %9s %9s %9s\n", part, "", "measured", "simulated", "error", "faster", "vs K=2", "accuracy"
            n = split(names, list, " ")
            for (i = 1; i <= n; i++) {
                split(list[i], pair, ":")
                v = pair[1]
                if (!(v in t)) continue
                gsub("_", " ", pair[2])
                printf "%-24s %8s s %8s s %6.1f %% %9.2f %9.2f %7.2f %%\n", pair[2], seconds(t[v]), seconds(sim[v]),
                    100 * (sim[v] / t[v] - 1), base / t[v], t["static-k2"] / t[v], 100 * acc[v]
            }
            for (s in a) if (s in b) { d = 100 * (b[s] - a[s]); sum += d; square += d * d; m++; ratio += ta[s] / tb[s]; list2 = list2 sprintf(" %+.2f", d) }
            if (m > 1) {
                mean = sum / m; sd = sqrt((square - m * mean * mean) / (m - 1))
                printf "all against static over %d seeds: accuracy %+.2f points, 95 %% interval %+.2f to %+.2f (each:%s); %.2f times faster\n",
                    m, mean, mean - student[m - 1] * sd / sqrt(m), mean + student[m - 1] * sd / sqrt(m), list2, ratio / m
            }
        }' "$out/runs.txt"
    awk -v part=$part -v names="$names" '
        $1 == part && $3 == 1 { t[$2] = $4; sim[$2] = $7 }
        END { n = split(names, list, " "); for (i = 1; i <= n; i++) { split(list[i], pair, ":"); v = pair[1]
              if (v in t) { gsub("_", " ", pair[2]); printf "\"%s\" %.3f %.3f\n", pair[2], t[v] / 1e9, sim[v] / 1e9 } } }' \
        "$out/runs.txt" >"$out/$part.dat"
    gnuplot -e "data='$out/$part.dat'; figure='$out/$part.svg'; name='$part'" examples/elastic/breakdown.gp ||
        echo "no figure: gnuplot failed" >&2
    for kind in throughput loss; do
        [ ! -d "$out/$part-static-1" ] || [ ! -d "$out/$part-all-1" ] ||
            "$elapse" plot $kind "$out/$part-static-1" "$out/$part-all-1" -o "$out/$part-$kind.svg" >/dev/null
    done
done

first=$out/$(awk 'NR == 1 { print $1 "-" $2 "-" $3 }' "$out/runs.txt")
{
    printf '{"schema":1,"date":"%s","command":"examples/elastic/run.sh","version":"%s",\n' "$(date -u +%Y-%m-%d)" \
        "$(field "$first.json" version)"
    printf ' "machine":"%s","libraries":"%s","cores":%s,"alpha":"1/3",\n "runs":[' "$(field "$first.json" device_name)" \
        "$(field "$first.json" libraries)" "$(field "$first.json" cores_at_hand)"
    awk '{printf "%s\n  {\"part\":\"%s\",\"variant\":\"%s\",\"seed\":%s,\"train_ns\":%s,\"steps_ns\":%s,\"transition_ns\":%s,\"simulated_ns\":%s,\"eval_accuracy\":%s,\"last_plan\":{\"pipeline_length\":%s,\"replicas\":%s,\"microbatches\":%s}}",
        (NR > 1 ? "," : ""), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11}' "$out/runs.txt"
    printf ']}\n'
} >"$out/results.json"
echo "$out/results.json"
