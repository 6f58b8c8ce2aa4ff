#!/bin/bash
# A minute of tests/e2e/chaos.sh: some runs are killed, stopped and starved, and end with the weights of one that is not.
# group: slow, seconds: 62
cd "$(dirname "$0")/../.." || exit 3
export CHAOS_SECONDS="${CHAOS_SECONDS:-60}"
exec tests/e2e/chaos.sh
