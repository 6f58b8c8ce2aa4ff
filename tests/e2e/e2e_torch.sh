#!/bin/bash
# The Python package with PyTorch (bridge/torch/tests/check.sh), which is installed where it is missing.
# group: slow, seconds: 100
cd "$(dirname "$0")/../.." || exit 3
timeout --kill-after=10 600 bridge/torch/tests/check.sh
rc=$?
[ $rc -ne 77 ] || { echo "ok - elapse_torch with PyTorch # SKIP no PyTorch to install here" && exit 0; }
exit $rc
