#!/bin/bash
# The script of examples/kubernetes/job.yaml: what a pod runs trains, is stopped by SIGTERM as a drained pod
# is, and goes on in the pod in its place with the same bits.
# group: slow
# seconds: 30
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

manifest=examples/kubernetes/job.yaml
script=$(awk '/^ +- \|$/ {inside = 1; depth = match($0, /-/) + 1; next} inside && match($0, /[^ ]/) <= depth {exit} inside {print substr($0, depth + 1)}' "$manifest")
if python3 -c 'import yaml' 2>/dev/null; then
    read_by_yaml() {
        python3 - "$manifest" "$script" <<'EOF'
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
pod = job["spec"]["template"]["spec"]
train = pod["containers"][0]
assert job["kind"] == "Job" and pod["restartPolicy"] == "OnFailure"
assert {mount["name"] for mount in train["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
assert train["args"][0].rstrip() == sys.argv[2].rstrip()
EOF
    }
    verify "kubernetes: the manifest is a Job" read_by_yaml
else
    skip "kubernetes: the manifest is a Job" "python3 has no yaml"
fi
freezing_vit
sed -i 's/"epochs": 4/"epochs": 40/' "$tmp/vit.json"
train vit whole -n 2
mkdir "$tmp/jobs"
cp "$tmp/vit.json" "$tmp/jobs/job.json"
PATH=$(readlink -f "$(dirname "$elapse")"):$PATH
pod() { (cd "$tmp/jobs" && exec /bin/sh -c "$script"); }
drained() { # as kubelet does, SIGTERM to the container's first process
    local pid
    (cd "$tmp/jobs" && exec /bin/sh -c "$script") >"$tmp/pod.out" 2>&1 &
    pid=$!
    for _ in $(seq 1200); do [ -s "$tmp/jobs/run/metrics.jsonl" ] && break; sleep 0.05; done
    kill -TERM $pid
    wait $pid
    [ $? -eq 143 ] && ls "$tmp"/jobs/run/checkpoint-*/manifest.json || { cat "$tmp/pod.out"; return 1; }
}
verify "kubernetes: SIGTERM saves a checkpoint" drained
verify "kubernetes: the next pod goes on" pod
mv "$tmp/jobs/run" "$tmp/pods"
verify "kubernetes: with the same bits" same_run whole pods
finish
