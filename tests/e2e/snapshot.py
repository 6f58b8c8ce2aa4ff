"""A memory snapshot of `elapse sim --step`: python3 snapshot.py FILE SIM_JSON. What its allocations and
releases add up to is each rank's peak. With torch installed, its own script reads the file too."""
import json
import pickle
import sys

with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
with open(sys.argv[2]) as file:
    sim = json.load(file)
peaks = {device["rank"]: device["peak_bytes"] for device in sim["devices"] if device["replica"] == 0}
assert len(snapshot["device_traces"]) == len(peaks), "a trace a rank"
for rank, events in enumerate(snapshot["device_traces"]):
    live, held, most, now = {}, 0, 0, 0
    for event in events:
        assert event["time_us"] >= now, "events are in order"
        now = event["time_us"]
        if event["action"] == "alloc":
            assert event["addr"] not in live, "an address is used once"
            live[event["addr"]] = event["size"]
            held += event["size"]
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"], "what is released was allocated"
            held -= event["size"]
        most = max(most, held)
    assert most == peaks[rank], f"rank {rank}: {most}, the simulator says {peaks[rank]}"
    left = {block["address"]: block["size"] for segment in snapshot["segments"] if segment["device"] == rank for block in segment["blocks"]}
    assert left == live, "segments hold what is live at the end"
try:
    from torch.cuda import _memory_viz
except ImportError:
    print("no torch")
else:
    assert "segments" in _memory_viz.segsum(snapshot)
    assert _memory_viz.trace(snapshot) and "snapshot" in _memory_viz.trace_plot(snapshot)
    print("read by torch.cuda._memory_viz")
