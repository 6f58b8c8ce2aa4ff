"""torchrun -m elapse_torch links: messages and all-reduces between ranks, by size."""
import argparse
import time

import torch
import torch.distributed as dist

from . import files
from .cmd_run import start
from .device import describe, now_ns, open_device

WARM_UP = 3


def options(argv):
    p = argparse.ArgumentParser(prog="torchrun -m elapse_torch links", description="measure "
                                "messages between ranks 0 and 1 and all-reduces of all ranks; "
                                "writes a profile, and a cluster for the job's key 'cluster'")
    p.add_argument("--device", default="cpu", help="cpu (gloo) or cuda (NCCL) (default cpu)")
    p.add_argument("--largest", type=int, default=1 << 24, metavar="BYTES", help="(default 16 MiB)")
    p.add_argument("--rounds", type=int, default=15, help="of each size (default 15)")
    p.add_argument("-o", dest="out", default="links.json", help="the profile (default links.json)")
    p.add_argument("--cluster", default="cluster.json", help="(default cluster.json)")
    return p.parse_args(argv)


def timed(once, rounds, device):
    times = []
    for i in range(WARM_UP + rounds):
        dist.barrier()
        begin = now_ns(device)
        once()
        times.append(now_ns(device) - begin)
    return times[WARM_UP:]


def busy_ns(once, rounds):
    """Processor time of this process for each message at one of its ends; a round sends and receives one."""
    begin = time.process_time_ns()
    for _ in range(rounds):
        once()
    return (time.process_time_ns() - begin) // (2 * rounds)


def there_and_back(tensor, rank):
    def once():
        if rank == 0:
            dist.send(tensor, 1)
            dist.recv(tensor, 1)
        elif rank == 1:
            dist.recv(tensor, 0)
            dist.send(tensor, 0)
    return once


def main(argv):
    args = options(argv)
    device = start(open_device(args.device))
    rank, world = dist.get_rank(), dist.get_world_size()
    backend = "nccl" if device.type == "cuda" else "gloo"
    sizes = [1 << n for n in range(10, args.largest.bit_length(), 2)]
    links, sums, busy = [], [], []
    for size in sizes:
        tensor = torch.zeros(size // 4, device=device)
        if world > 1:
            one_way = [t / 2 for t in timed(there_and_back(tensor, rank), args.rounds, device)]
            links.append({"backend": backend, "place": "node", "ranks": 1, "bytes": size,
                          **files.spread(one_way)})
            if device.type == "cpu":  # elsewhere the processor does not compute
                busy.append((size, busy_ns(there_and_back(tensor, rank), args.rounds)))
        sums.append({"op": "allreduce", "backend": backend, "place": "node", "ranks": world,
                     "bytes": size, **files.spread(timed(lambda: dist.all_reduce(tensor),
                                                         args.rounds, device))})
    if rank == 0:
        about = describe(device)
        cluster = files.cluster_json(about["device_kind"], world, links, busy)
        curve = cluster.get("link", [])
        files.write_json(args.out, files.profile_json(
            f"torch-links-{backend}-{world}", about, [], links, sums, note=f"{backend}, {world} ranks"))
        files.write_json(args.cluster, cluster)
        print(f"{backend}, {world} ranks: latency {cluster.get('latency', '0us')}, "
              f"{curve[-1][1] if curve else 'no link'} with {sizes[-1]} bytes")
        if "message_host" in cluster:
            print(f"of the processor, at each end: {cluster['message_host']} a message" +
                  (f", and its bytes at {cluster['message_host_rate']}" if "message_host_rate" in cluster else ""))
        print(f"wrote {args.out} (elapse profiles import) and {args.cluster} (the job's \"cluster\")")
    dist.destroy_process_group()
    return 0
