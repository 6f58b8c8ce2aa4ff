#!/bin/bash
# examples/faults/curve.sh [GPUS...] - goodput of llama3-405b.json by size of the cluster, each with as
# many samples a replica, and Meta's rate of 6.5 failures per 1,000 days of a node (Kokolis et al. 2024).
cd "$(dirname "$0")" || exit 3
elapse=${ELAPSE_BIN:-../../build/bin}/elapse
[ $# -gt 0 ] || set -- 1024 8192 32768 131072
for n in "$@"; do
    nodes=$((n / 8)) replicas=$((n / 128))
    echo "$n GPUs:"
    "$elapse" sim llama3-405b.json --seeds 50 --quiet --set cluster.nodes=$nodes \
        --set pipeline.num_replicas=$replicas --set train.batch.global=$((16 * replicas)) \
        --set pipeline.num_microbatches=$((16 * replicas)) \
        --set data.train_samples=$((578125 * replicas)) --set cluster.faults.spare_nodes=$((nodes / 64)) \
        --set cluster.faults.device_per_hour=0 --set cluster.faults.node_per_hour=2.7083e-4
done
