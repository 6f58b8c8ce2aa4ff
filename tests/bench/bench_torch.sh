#!/bin/bash
# tests/bench/bench_torch.sh - training steps of whole models beside PyTorch, runs alternated.
# Needs python3-torch; says so and ends well where it is missing.
set -u
cd "$(dirname "$0")/../.." || exit 3
python="${PYTHON:-/usr/bin/python3}"
bench="${ELAPSE_OUT:-$(dirname "$(readlink -f build/bin)")}/tests/bench_kernels"
if [ ! -x "$bench" ]; then
    echo "no bench_kernels at $bench: skipped (built by 'make bench' where BLAS and MPI are)"
elif ! "$python" -c 'import torch' 2>/dev/null; then
    echo "python3-torch is not installed: skipped (apt install python3-torch)"
else
    "$python" tests/bench/bench_torch.py "$bench" --threads "$(nproc)" "$@"
fi
