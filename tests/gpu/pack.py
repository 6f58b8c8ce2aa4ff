#!/usr/bin/env python3
"""The results of a GPU check as one archive: pack.py FOLDER ARCHIVE [MIB]

Small files come first, until the archive has MIB (15) MiB. What is left out is named in left-out.txt inside it, and on
stdout. Checkpoints and caches are no results.
"""
import io
import os
import sys
import tarfile

folder, archive = sys.argv[1:3]
limit = int(float(sys.argv[3] if len(sys.argv) > 3 else 15) * 2**20)
wanted = (".json", ".jsonl", ".csv", ".txt", ".log", ".err", ".tap", ".db", ".ncu-rep", ".nsys-rep", ".html", ".svg")
files = []
for at, folders, names in os.walk(folder):
    folders[:] = [f for f in folders if not f.startswith((".", "checkpoint-"))]
    for name in names:
        path = os.path.join(at, name)
        if name.endswith(wanted) and os.path.isfile(path) and not os.path.islink(path):
            files.append((os.path.getsize(path), path))
files.sort()
left_out, packed = [], 0
temporary = archive + ".new"
with open(temporary, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as tar:
    for size, path in files:
        # A file may turn out not to shrink at all, so its whole size must find room.
        raw.flush()
        if raw.tell() + size > limit:
            left_out.append(f"{size:12d} {os.path.relpath(path, folder)}")
            continue
        tar.add(path, os.path.join("results", os.path.relpath(path, folder)))
        packed += 1
    text = "".join(line + "\n" for line in left_out).encode()
    about = tarfile.TarInfo("results/left-out.txt")
    about.size = len(text)
    tar.addfile(about, io.BytesIO(text))
os.replace(temporary, archive)
print(f"{archive}: {packed} files, {os.path.getsize(archive) / 2**20:.2f} MiB" + (f", {len(left_out)} left out (too large)" if left_out else ""))
for line in left_out[:8]:
    print("  left out: " + line.strip())
