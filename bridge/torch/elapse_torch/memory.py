"""Memory that this process may still take, as profiles/base/machine_memory.c finds it, and room in a folder."""
import os

TREES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
         ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"))


def _number(path, key=""):
    """The number after `key` at the begin of a line, or None."""
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            for line in f:
                words = line[len(key):].split()
                if line.startswith(key) and words and words[0].isdigit():
                    return int(words[0])
    except OSError:
        pass
    return None


def _place(root, second):
    """Where the process is in the tree of control groups: 0::PATH, or N:...,memory,...:PATH."""
    try:
        with open(f"{root}/proc/self/cgroup", encoding="utf-8", errors="replace") as f:
            for line in f:
                _, names, place = line.rstrip("\n").split(":", 2)
                if names == "" if second else "memory" in names.split(","):
                    return place.rstrip("/")
    except (OSError, ValueError):
        pass
    return ""


def available(root=""):
    """Bytes, by the kernel's estimate and the limits of all control groups around this process; None: unknown."""
    kib = _number(f"{root}/proc/meminfo", "MemAvailable:")
    found = [] if kib is None else [kib << 10]
    for top, limit, use, unused in TREES:
        place = _place(root, limit == "memory.max")
        while True:
            folder = f"{root}{top}{place}"
            most = _number(f"{folder}/{limit}")
            if most is not None:
                used = (_number(f"{folder}/{use}") or 0) - (_number(f"{folder}/memory.stat", unused + " ") or 0)
                found.append(max(0, most - used))
            if not place:
                break
            place = place.rpartition("/")[0]
    return min(found, default=None)


def room_in(folder):
    """Bytes that files in a folder may take: of its file system, and of memory where that is where they are."""
    st = os.statvfs(folder)
    free = st.f_bavail * st.f_frsize
    with open("/proc/mounts", encoding="utf-8", errors="replace") as f:
        mounts = [line.split()[1:3] for line in f]
    path = os.path.realpath(folder)
    inside = [m for m in mounts if path == m[0] or path.startswith(m[0].rstrip("/") + "/")]
    kind = max(inside, key=lambda m: len(m[0]), default=["", ""])[1]
    memory = available() if kind in ("tmpfs", "ramfs") else None
    return free if memory is None else min(free, memory)
