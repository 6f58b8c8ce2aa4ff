"""Published measurements as lists of dicts. The files that are too large to repeat here lie in a
folder that the caller names (see README.md); the others are in data/."""
import csv
import os
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))

# Data sheets, as in partition/cost/cost.c, of the cards that were measured.
KINDS = {
    "a100": {"sms": 108, "peak": 312e12, "bandwidth": 1600e9},
    "h100": {"sms": 132, "peak": 989.4e12, "bandwidth": 3350e9},
    "b200": {"sms": 148, "peak": 2250e12, "bandwidth": 8000e9},
}
FILES = {"a100": "a100_pcie_matmul.csv", "b200": "b200_matmul.csv"}
# The A100 of the narrow products is an SXM module: what it reaches over the PCIe card (profiles/devices/README.md).
SXM = 1.045


def table(path):
    with open(path) as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def matmuls(kind, folder):
    """Rows of batch, m, n, k, layout, accumulate, out_bytes, flops, seconds, half, clock, bandwidth."""
    path = os.path.join(folder, FILES[kind]) if kind in FILES else HERE + "/data/h100_matmul.csv"
    return read(path, KINDS[kind], 1, KINDS[kind]["bandwidth"])


def narrow():
    """Products with a short side on another A100; rows as those of matmuls()."""
    return read(HERE + "/data/a100_narrow_matmul.csv", KINDS["a100"], SXM, 1555e9)


def sustained(numbers="sustained"):
    """Products of an H100 at its power limit, on uniform numbers or "normal" ones."""
    return read(HERE + "/data/h100_%s_matmul.csv" % numbers, KINDS["h100"], 1, KINDS["h100"]["bandwidth"])


def read(path, kind, clock, bandwidth):
    got = []
    for r in table(path):
        row = {name: int(r[name]) for name in ("batch", "m", "n", "k")}
        row["layout"] = r.get("layout", "TN")
        row["accumulate"] = r.get("accumulate") == "True"
        row["out_bytes"] = 4 if r.get("out_dtype") == "fp32" else 2
        row["flops"] = 2.0 * row["batch"] * row["m"] * row["n"] * row["k"]
        rate = float(r["gflops"]) * 1e9 if "gflops" in r else (
            float(r["efficiency"]) * kind["peak"])
        row["clock"], row["bandwidth"] = clock, bandwidth
        row["seconds"] = row["flops"] / rate
        key = ",".join(str(row[name]) for name in
                       ("batch", "m", "n", "k", "layout", "accumulate", "out_bytes"))
        row["half"] = zlib.crc32(key.encode()) % 2
        got.append(row)
    return got


def halves(all_rows):
    """The half to fit on, and the half that judges."""
    return [r for r in all_rows if r["half"] == 0], [r for r in all_rows if r["half"] == 1]
