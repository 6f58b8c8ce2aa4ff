#!/bin/bash
# `elapse cluster import`: matrices of nvidia-smi and logs of nccl-tests become cluster files, or one line says why not.
. "$(dirname "$0")/lib.sh"
begin
# The inputs are in the forms of nvidia-smi 535 to 570 and nccl-tests 2.13 to 2.17, with times of a law: latency and wire.
python3 - "$tmp" <<'EOF'
import sys
def log(name, program, hosts, each, latency_us, rate, device="NVIDIA H100 80GB HBM3", end=True, said=True, old=False, wrong=0):
    n = hosts * each
    factor = 2 * (n - 1) / n if program == "all_reduce_perf" else (n - 1) / n
    op = "sum" if "reduce" in program else "none"
    lines = [f"> mpirun -np {n} ./build/{program} -b 1M -e 8G -f 2 -g 1"] if said else []
    lines += ["# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20", "#", "# Using devices"]
    for r in range(n):
        lines.append(f"#  Rank {r:2d} Group  0 Pid {6000 + r} on node-{r // each} device {r % each:2d} [0000:{r:02x}:00] {device}")
    lines += ["#", "#                                             out-of-place                       in-place",
              "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
              "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"]
    if old: lines[-2] = "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
    for k in [3] + list(range(20, 34)):
        size = 2 ** k
        us = latency_us + (0 if k == 3 else factor * size / rate / 1e3)
        gb = size / us / 1e3
        root = "" if old else "      -1"
        lines.append(f"{size:12d} {size // 4:12d}     float  {op:>6s}{root} {us:10.4f} {gb:7.2f} {gb * factor:7.2f}      0 {us:10.4f} {gb:7.2f} {gb * factor:7.2f}      0")
    if end: lines += ["# Out of bounds values : 0 OK" if not wrong else f"# Out of bounds values : {wrong} FAILED", f"# Avg bus bandwidth    : {rate / 2:.3f}", "#"]
    open(f"{sys.argv[1]}/{name}", "w").write("\n".join(lines) + "\n")
log("one", "all_reduce_perf", 1, 8, 42, 460.0)
log("two", "all_reduce_perf", 2, 8, 120, 340.0)
log("gather", "all_gather_perf", 1, 8, 30, 350.0, old=True)
log("unsaid", "all_reduce_perf", 1, 8, 42, 460.0, said=False)
log("unknown", "all_gather_perf", 1, 8, 42, 460.0, said=False)
log("cut", "all_reduce_perf", 1, 8, 42, 460.0, end=False)
log("wrong", "all_reduce_perf", 1, 8, 42, 460.0, wrong=3)
log("alone", "all_reduce_perf", 1, 1, 42, 460.0)
log("other", "all_reduce_perf", 1, 8, 42, 460.0, device="Some Card 9000")
def topo(name, n, link, rows=None, colour=False):
    head = "\t" + "\t".join(f"GPU{i}" for i in range(n)) + "\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    if colour: head = "\t\033[4m" + head[1:].replace("\t", "\t\033[4m") + "\033[0m"
    lines = [head] + [f"GPU{i}\t" + "\t".join(" X " if i == j else link(i, j) for j in range(n)) + "\tPIX\t0-31\t0\t\tN/A" for i in range(rows or n)]
    lines += ["NIC0\t" + "PIX\t" * n + " X", "", "Legend:", "", "  X    = Self", "  SYS  = Connection traversing PCIe as well as the SMP interconnect"]
    open(f"{sys.argv[1]}/{name}", "w").write("\n".join(lines) + "\n")
topo("nv18", 8, lambda i, j: "NV18", colour=True)
topo("three", 3, lambda i, j: "NV12")
topo("pairs", 4, lambda i, j: "NV4" if i // 2 == j // 2 else "SYS")
topo("halved", 8, lambda i, j: "NV18", rows=5)
topo("odd", 2, lambda i, j: "XYZ")
topo("few", 4, lambda i, j: "NV18")
EOF
check "cluster import: two tests and a matrix" "$elapse" cluster import "$tmp/nv18" "$tmp/one" "$tmp/two" "$tmp/gather" -o "$tmp/c.json"
times() { # the file's points give the times of the law back, as docs/clusters.md computes them
    python3 - "$tmp/c.json" <<'EOF'
import json, sys
c = json.load(open(sys.argv[1]))
assert (c["nodes"], c["devices_per_node"], c["kind"]) == (2, 8, "h100"), c
def close(of, latency, n, passes, link, wait, law):
    got = passes * (n - 1) * float(of[wait][:-2])
    assert abs(got / latency - 1) < 1e-3, (got, latency)
    for size, r in of[link]:
        t = got + 1e9 * passes * (n - 1) / n * size / r
        want = latency + passes * (n - 1) / n * size / law
        assert abs(t / want - 1) < 1e-3, (size, t, want)
    assert of[link][-1][0] == 2 ** 33 and len(of[link]) > 3, of
all = c["collective"]["all-reduce"]
close(all, 42e3, 8, 2, "link", "latency", 460.0)
close(all, 120e3, 16, 2, "uplink", "uplink_latency", 340.0)
close(c["collective"]["all-gather"], 30e3, 8, 1, "link", "latency", 350.0)
EOF
}
export -f times
export tmp
check "cluster import: the file has the measured times" bash -c times
expect "cluster import: the file is a cluster" 0 '"step_ns"' "$elapse" sim --step --model llama2-7b --cluster "$tmp/c.json" --tensor 8 --replicas 2 --batch 8 --microbatches 8 --json
expect "cluster import: all-reduce shows by its bus bandwidth" 0 '"all-reduce"' "$elapse" cluster import "$tmp/unsaid"
expect "cluster import: three devices are a node" 0 '"devices_per_node":[[:space:]]*3' "$elapse" cluster import "$tmp/three" --kind a100
expect "cluster import: other links with a test" 0 '"devices_per_node":[[:space:]]*8' "$elapse" cluster import "$tmp/one"
while IFS='|' read -r what says files; do
    # shellcheck disable=SC2086 # $files is several words
    expect "cluster import: $what" 2 "$says" bash -c 'cd "$1" && shift && "$@"' - "$tmp" "$elapse" cluster import $files
done <<'EOF'
a log that was cut|cut is cut: it has no line 'Avg bus bandwidth'|cut
wrong values|the test found wrong values|wrong
one rank|1 ranks measure no link|alone
no program|no line says which program of nccl-tests|unknown
a device that is not known|no file names a known kind of device|other
a matrix without a kind|no file names a known kind of device|nv18
links without a rate|the devices meet by SYS, and a matrix does not say its rate|pairs --kind a100
rows that are missing|the matrix has 5 rows for 8 GPUs|halved --kind h100
a link that is not known|GPU0 and GPU1 have the link 'XYZ'|odd --kind h100
more ranks than devices|nccl-tests ran on 8 devices a node, the matrix has 4|few one
two matrices|a second matrix of nvidia-smi|nv18 few
no file|FILE is missing|
EOF
echo hello >"$tmp/text"
expect "cluster import: another text" 2 "neither 'nvidia-smi topo -m' nor nccl-tests printed it" "$elapse" cluster import "$tmp/text"
expect "cluster import: a file that is missing" 3 'no-such-file' "$elapse" cluster import "$tmp/no-such-file"
expect "cluster: --kind is for imports" 2 'only .cluster import. takes' "$elapse" cluster h100-1x8 --kind a100
finish
