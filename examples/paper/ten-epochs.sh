#!/bin/sh
# Ten epochs of the real system (README.md), each row as it was run, beside the simulation.
# Exits 1 when a row is off by more than 10 %.
#   usage: examples/paper/ten-epochs.sh [path of elapse]
cd "$(dirname "$0")/../.." || exit 3
elapse=${1:-build/bin/elapse}
echo "epoch  F  K  R  measured  simulated  error"
status=0
# epoch frozen measured_ms how
while read -r epoch frozen measured how; do
    case $how in
    computed) options="--cache-write" ;;
    read) options="--frozen-placement cached" ;;
    *) options="" ;;
    esac
    # shellcheck disable=SC2086
    answer=$("$elapse" sim examples/paper/ten-epochs.json --step --frozen "$frozen" $options --json) || exit $?
    echo "$answer" | tr ',{' '\n\n' | awk -F: -v epoch="$epoch" -v frozen="$frozen" -v real="$measured" '
        $1 == "\"pipeline_length\"" { k = $2 }
        $1 == "\"replicas\"" { r = $2 }
        $1 == "\"step_ns\"" { ms = $2 / 1e6 }
        END {
            error = 100 * (ms / real - 1)
            printf "%5d %2d %2d %2d %8d ms %8.0f ms  %+5.1f %%\n", epoch, frozen, k, r, real, ms, error
            exit error > 10 || error < -10
        }' || status=1
done <<TABLE
0 0 1480 -
1 0 1500 -
2 6 2180 computed
3 8 735 read
4 8 735 read
5 8 735 read
6 10 2420 computed
7 10 668 read
8 12 2220 computed
9 12 310 read
TABLE
exit $status
