#!/bin/bash
# After one node's worker fails, ranks of one job have different values of TORCHELASTIC_RESTART_COUNT.
#
# Guess: it counts the job's restarts, all ranks of a round read the same number, and --max-restarts bounds the whole job.
# Seen (torch 2.15.0, 2026-11-29), two agents of one worker: B's worker fails once, both agents start again together, and B's
#   worker reads 1 while A's reads 0: an agent counts failures of its own workers only, and starts again with the others
#   without counting. So N nodes may fail N times --max-restarts times.
# Source: SimpleElasticAgent._invoke_run() in torch/distributed/elastic/agent/server/api.py: only a failed or unhealthy
#   group lowers _remaining_restarts, a change of members does not.
# Why it matters: a folder, a port or a seed named by that number is another one on each node after a failure.
. "$(dirname "$0")/lib"
torch
cat >"$work/worker.py" <<'P'
import os, sys, time
node, folder = sys.argv[1:]
failed = os.path.join(folder, "failed")
again = os.path.exists(failed)
print("again" if again else "first", "node", node, "ranks", os.environ["WORLD_SIZE"], "count",
      os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
if node == "B" and not again:
    time.sleep(3)
    open(failed, "w").close()
    sys.exit(1)
time.sleep(10)
P
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for node in A B; do
    timeout 120 "$python" -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --max-restarts 3 --monitor-interval 1 \
        --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" "$work/worker.py" $node "$work" >"$work/$node" 2>/dev/null &
done
wait
cat "$work/A" "$work/B" | grep node | sort | expect "again node A ranks 2 count 0
again node B ranks 2 count 1
first node A ranks 2 count 0
first node B ranks 2 count 0"
