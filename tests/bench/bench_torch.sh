#!/bin/bash
# tests/bench/bench_torch.sh - training steps of whole models beside PyTorch, runs alternated.
#
#   bench_torch.sh                    one process, then two ranks
#   bench_torch.sh OPTION...          one process, with options of bench_torch.py
#   bench_torch.sh ranks [OPTION...]  two ranks, with options of bench_torch_ranks.py
#
# Needs python3-torch; says so and ends well where it is missing.
set -u
cd "$(dirname "$0")/../.." || exit 3
python="${PYTHON:-/usr/bin/python3}"
bench="${ELAPSE_OUT:-$(dirname "$(readlink -f build/bin)")}/tests/bench_kernels"
elapse="$(readlink -f "${ELAPSE_BIN:-build/bin}")/elapse"
one() { "$python" tests/bench/bench_torch.py "$bench" --threads "$(nproc)" "$@"; }
ranks() { "$python" tests/bench/bench_torch_ranks.py "$elapse" "$@"; }

if [ ! -x "$bench" ]; then
    echo "no bench_kernels at $bench: skipped (built by 'make bench' where BLAS and MPI are)"
elif ! "$python" -c 'import torch' 2>/dev/null; then
    echo "python3-torch is not installed: skipped (apt install python3-torch)"
elif [ $# -eq 0 ]; then
    one && ranks
elif [ "$1" = ranks ]; then
    ranks "${@:2}"
else
    one "$@"
fi
