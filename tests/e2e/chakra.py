"""Chakra execution traces of `elapse sim --step`: python3 chakra.py DIR OPS_CSV. Reads the files by the fields of
Chakra's schema, and compares them with the ops of the step: each has its node with its times, nodes wait for nodes
of their rank that have ended, and each receive has one send of equal size."""
import csv
import glob
import json
import os
import re
import sys

# Fields of et_def.proto: number to name and kind.
ATTR = {1: ("name", "text"), 7: ("value", "int"), 9: ("value", "int"), 13: ("value", "int"), 27: ("value", "bool"), 29: ("value", "text")}
NODE = {1: ("id", "int"), 2: ("name", "text"), 3: ("type", "int"), 5: ("deps", "ints"), 6: ("start", "int"), 7: ("duration", "int"), 10: ("attr", ATTR)}
METADATA = {1: ("version", "text")}
TYPES = {2: "C", 3: "P", 4: "F B I W R Z UPDATE ALLREDUCE TIED NORM", 5: "SEND_ACT SEND_GRAD", 6: "RECV_ACT RECV_GRAD", 7: "ALLREDUCE TIED NORM"}
ATTRS = {"is_cpu_op": 27, "start_ns": 9, "duration_ns": 9, "comm_src": 7, "comm_dst": 7, "comm_tag": 7, "comm_size": 9, "comm_type": 9, "pg_name": 29,
         "tensor_size": 13}


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def parse(data, fields):
    got, at = {"attr": {}, "deps": []}, 0
    while at < len(data):
        key, at = varint(data, at)
        name, kind = fields[key >> 3]
        got["field"] = key >> 3
        if key & 7 == 0:
            assert kind in ("int", "bool"), name
            got[name], at = varint(data, at)
        else:
            assert key & 7 == 2 and kind not in ("int", "bool"), name
            length, at = varint(data, at)
            part, at = data[at:at + length], at + length
            if kind == "text":
                got[name] = part.decode()
            elif kind == "ints":
                place = 0
                while place < len(part):
                    value, place = varint(part, place)
                    got[name].append(value)
            else:
                attr = parse(part, kind)
                assert attr["field"] == ATTRS[attr["name"]], "ASTRA-sim asks each attribute by its type"
                got["attr"][attr["name"]] = attr["value"]
    return got


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    at, messages = 0, []
    while at < len(data):
        length, at = varint(data, at)
        messages.append(data[at:at + length])
        at += length
    assert at == len(data), "messages end with the file"
    assert parse(messages[0], METADATA)["version"] == "0.0.4"
    return [parse(message, NODE) for message in messages[1:]]


folder = sys.argv[1]
with open(sys.argv[2]) as file:
    ops = list(csv.DictReader(file))
ranks = 1 + max(int(op["rank"]) for op in ops)
with open(os.path.join(folder, "groups.json")) as file:
    groups = json.load(file)
left = {}
for op in ops:
    key = (int(op["replica"]) * ranks + int(op["rank"]), op["op"], int(op["stage"]), int(op["microbatch"] or -1))
    left.setdefault(key, []).append((int(op["start_ns"]), int(op["end_ns"]) - int(op["start_ns"])))
files = glob.glob(os.path.join(folder, "elapse.*.et"))
ends, sends, recvs, longest = [], {}, {}, 0
for path in files:
    npu, done = int(path.split(".")[-2]), {}
    for node in read(path):
        kind, stage, microbatch = re.fullmatch(r"(\w+) stage (\d+)(?: micro-batch (\d+))?", node["name"]).groups()
        attr = node["attr"]
        assert kind in TYPES[node["type"]].split() and attr["is_cpu_op"] == 0, node
        start, took = attr["start_ns"], attr["duration_ns"]
        assert (node.get("start", 0), node.get("duration", 0)) == ((start + 500) // 1000, (took + 500) // 1000), node
        assert all(dep in done for dep in node["deps"]), "nodes wait for nodes before them"
        if kind in ("F", "B", "I", "W", "R", "Z", "UPDATE", "SEND_ACT", "SEND_GRAD"):
            assert start >= max([done[dep] for dep in node["deps"]], default=0), node
        done[node["id"]] = start + took
        longest = max(longest, start + took)
        if "comm_tag" in attr:
            ends = (attr["comm_src"], attr["comm_dst"], attr["comm_tag"])
            assert npu == ends[node["type"] == 6], node
            assert ends not in (into := recvs if node["type"] == 6 else sends), node
            into[ends] = (attr["comm_size"], start, took)
        if "pg_name" in attr:
            assert npu in groups[attr["pg_name"]] and len(groups[attr["pg_name"]]) > 1 and attr["comm_size"] > 0, node
        if node["type"] != 6 and not (kind == "ALLREDUCE" and npu >= ranks):
            times = left.get((npu, kind, int(stage), int(microbatch or -1)))
            if times:
                assert (start, took) in times, (node, times)
                times.remove((start, took))
            else:
                assert took == 0, node
assert sends == recvs, "each receive has its send"
assert not any(left.values()), f"ops without a node: {[key for key, times in left.items() if times][:5]}"
assert longest == max(int(op["end_ns"]) for op in ops)
print(f"{len(files)} ranks, {len(sends)} messages, {len(ops)} ops")
