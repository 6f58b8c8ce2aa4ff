"""The device that PyTorch computes on: its name, its clock of waiting work, its memory."""
import platform
import re
import time

import torch

from .errors import BridgeError


def open_device(name):
    kind = name.split(":")[0]
    present = {"cpu": True, "cuda": torch.cuda.is_available(),
               "mps": hasattr(torch.backends, "mps") and torch.backends.mps.is_available(),
               "xpu": hasattr(torch, "xpu") and torch.xpu.is_available()}
    if kind not in present:
        raise BridgeError(f"unknown device '{name}', one of: " + " ".join(present))
    if not present[kind]:
        raise BridgeError(f"PyTorch {torch.__version__} finds no {kind} device here", code=3)
    return torch.device(name)


def synchronize(device):
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def now_ns(device):
    """The time after all work so far has ended."""
    synchronize(device)
    return time.perf_counter_ns()


class Marks:
    """Times between places of the device's work, each as long as the device works or, if that is
    longer, as the host takes to issue it. A CUDA device waits HEAD_START cycles (about 2 ms) in front
    of the first place, so that it does not wait for the host after it."""

    HEAD_START = 4_000_000

    def __init__(self, device):
        self.device, self.hosts, self.events = device, [], []
        synchronize(device)
        if device.type == "cuda":
            torch.cuda._sleep(self.HEAD_START)
        self.mark()

    def mark(self):
        if self.device.type == "cuda":
            self.events.append(torch.cuda.Event(enable_timing=True))
            self.events[-1].record()
            self.hosts.append(time.perf_counter_ns())
        else:
            self.hosts.append(now_ns(self.device))

    def spans(self):
        """[ns] between each two marks."""
        synchronize(self.device)
        found = [b - a for a, b in zip(self.hosts, self.hosts[1:])]
        for i, (a, b) in enumerate(zip(self.events, self.events[1:])):
            found[i] = max(found[i], round(a.elapsed_time(b) * 1e6))
        return found


def peak_reset(device):
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device):
    """Since peak_reset(), above what is allocated now; 0 where PyTorch does not count."""
    if device.type != "cuda":
        return 0
    return torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)


def describe(device):
    """The columns of a profile about the device."""
    if device.type == "cuda":
        p = torch.cuda.get_device_properties(device)
        words = [w for w in re.split(r"[^a-z0-9]+", p.name.lower())
                 if w and w not in ("nvidia", "amd", "tesla", "geforce", "quadro", "instinct")]
        kind, title, mem = words[0] if words else "cuda", p.name, p.total_memory
        clock = getattr(p, "clock_rate", 0) // 1000
        driver = f"cuda {torch.version.cuda}" if torch.version.cuda else f"hip {torch.version.hip}"
    else:
        kind, title, mem, clock, driver = device.type, platform.processor() or "cpu", 0, 0, ""
        try:
            with open("/proc/cpuinfo") as f:
                text = f.read()
            title = re.search(r"model name\s*: (.*)", text).group(1)
            clock = int(float(re.search(r"cpu MHz\s*: (.*)", text).group(1)))
        except (OSError, AttributeError):
            pass
    return {"device_kind": kind, "device_name": title, "mem_bytes": mem,
            "cores": torch.get_num_threads() if device.type == "cpu" else 0, "clock_mhz": clock,
            "driver": driver, "host": platform.node(),
            "libraries": f"torch {torch.__version__}, Python {platform.python_version()}",
            "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
