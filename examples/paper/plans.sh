#!/bin/sh
# On the paper's cluster, for each number F of frozen layers: our plan's predicted step beside that
# of the released rules. First with the paper's batch of 320 a pipeline (a step of R replicas then
# holds 320 R samples, so compare s/1000, the seconds of 1,000 samples), then with the same global
# batch of 640 for both, then with the cache filled.
#   usage: examples/paper/plans.sh [path of elapse]
cd "$(dirname "$0")/../.." || exit 3
elapse=${1:-build/bin/elapse}
plan() {
    "$elapse" plan examples/paper/vit.json --all-frozen --set pipeline.balancer=optimal \
        --set pipeline.schedule=auto --set pipeline.frozen=auto "$@" || exit $?
}
echo "== 320 samples a pipeline"
plan
echo
echo "== 640 samples in all"
plan --set 'train.batch={"global":640}'
echo
echo "== 320 samples a pipeline, cache filled"
plan --cached
echo
echo "== K = 8 and R = 2 kept: better cut, schedule and M alone"
plan --set pipeline.num_stages=8 --set pipeline.num_replicas=2
