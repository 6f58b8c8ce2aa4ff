#!/bin/bash
# `elapse predict`: a sample gives the same probabilities whether it is read from the test split or as a file of its
# own; the accuracy is that of `elapse eval`; and what is refused.
# seconds: 3
. "$(dirname "$0")/lib.sh"
begin
python3 - "$tmp" <<'PY'
import json, os, random, struct, sys
top, draw = sys.argv[1], random.Random(3)
def picture():
    return bytes(draw.randrange(256) for _ in range(3072))
def bmp(path, planes):
    rows = b"".join(bytes(planes[2048 - 1024 * c + 32 * y + x] for x in range(32) for c in range(3))
                    for y in reversed(range(32)))
    open(path, "wb").write(struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(rows), 0, 0, 54, 40, 32, 32, 1, 24, 0,
                                       len(rows), 0, 0, 0, 0) + rows)
os.makedirs(top + "/cifar"), os.makedirs(top + "/shown/deep")
train = [bytes([i % 10]) + picture() for i in range(32)]
test = [bytes([i % 10]) + picture() for i in range(12)]
open(top + "/cifar/data_batch_1.bin", "wb").write(b"".join(train))
open(top + "/cifar/test_batch.bin", "wb").write(b"".join(test))
for i, where in enumerate(("a.bmp", "b.bmp", "deep/c.bmp")):
    bmp(top + "/shown/" + where, test[i][1:])
words = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film very , a".split()
open(top + "/vocab.txt", "w").write("\n".join(words) + "\n")
rows = [("good film", "pos"), ("bad film", "neg"), ("a very good film", "pos"), ("very , very bad", "neg")] * 4
open(top + "/train.csv", "w").write("text,label\n" + "".join('"%s",%s\n' % r for r in rows))
open(top + "/dev.csv", "w").write("text,label\n" + "".join('"%s",%s\n' % r for r in rows[:4]))
os.makedirs(top + "/words")
for name in ("train", "dev"):
    os.rename(top + "/%s.csv" % name, top + "/words/%s.csv" % name)
open(top + "/bare.csv", "w").write("text\n" + "".join('"%s"\n' % t for t, _ in rows[:4]))
open(top + "/bare.txt", "w").write("".join(t + "\n" for t, _ in rows[:4]))
open(top + "/bare.jsonl", "w").write("".join(json.dumps({"text": t}) + "\n" for t, _ in rows[:4]))
size = {"hidden": 16, "heads": 2, "mlp": 32, "layers": 1}
alone = {"num_stages": 1, "num_replicas": 1, "num_microbatches": 2, "schedule": "1f1b"}
train = {"epochs": 1, "batch": {"global": 8}}
json.dump({"model": {"preset": "vit-tiny", "image": 32, "patch": 8, "classes": 10, **size},
           "data": {"kind": "cifar10", "path": "cifar"}, "train": train, "pipeline": alone}, open(top + "/seen.json", "w"))
json.dump({"model": {"preset": "bert-base", "seq": 16, "max_seq": 16, "vocab": 16, "classes": 2, **size},
           "data": {"kind": "table", "path": "words", "vocab": "vocab.txt"}, "train": train, "pipeline": alone},
          open(top + "/read.json", "w"))
PY
"$elapse" train "$tmp/seen.json" --out "$tmp/seen" >"$tmp/log" 2>&1 || cat "$tmp/log"
"$elapse" train "$tmp/read.json" --out "$tmp/read" >"$tmp/log" 2>&1 || cat "$tmp/log"
values() { sed 1d | sed 's/.*p(.*//' | awk -F, -v from="$1" -v n="$2" '{ for (i = from; i < from + n; i++) printf "%s ", $i; print "" }'; }
seen() { "$elapse" predict "$tmp/seen" "$@" --csv 2>/dev/null; }
near() { # two files of numbers
    awk 'NR == FNR { for (i = 1; i <= NF; i++) a[FNR, i] = $i; rows = FNR; next }
         { for (i = 1; i <= NF; i++) if (($i - a[FNR, i]) ^ 2 > 1e-11) bad = 1; seen++ }
         END { exit bad || seen != rows || rows == 0 }' "$1" "$2"
}
seen | head -4 | values 6 10 >"$tmp/split"
seen "$tmp/shown" | values 5 10 >"$tmp/pictures"
verify "a picture has the probabilities of its sample" near "$tmp/split" "$tmp/pictures"
sums() { awk '{ s = 0; for (i = 1; i <= NF; i++) s += $i; if ((s - 1) ^ 2 > 1e-9) exit 1 }' "$1"; }
verify "probabilities add up to 1" sums "$tmp/split"
accuracy() { sed -n 's/.*accuracy \([0-9.]* %\).*/\1/p'; }
same() { [ -n "$1" ] && [ "$1" = "$2" ]; }
verify "the accuracy is that of eval" same "$("$elapse" predict "$tmp/seen" 2>&1 >/dev/null | accuracy)" \
    "$("$elapse" eval "$tmp/seen" | accuracy)"
ranks() { same "$("$elapse" predict "$tmp/seen" --csv 2>/dev/null)" "$("$elapse" predict "$tmp/seen" -n 2 --csv 2>/dev/null)"; }
verify "two ranks give the same rows" ranks
"$elapse" predict "$tmp/read" --csv 2>/dev/null | values 6 2 >"$tmp/split"
for form in csv txt jsonl; do
    "$elapse" predict "$tmp/read" "$tmp/bare.$form" --csv 2>/dev/null | values 5 2 >"$tmp/rows"
    verify "rows of .$form have the probabilities of the labelled table" near "$tmp/split" "$tmp/rows"
done
expect "classes have the names of the table" 0 '^text 1  (pos|neg) [0-9.]+ %, (pos|neg) ' \
    "$elapse" predict "$tmp/read" --text "good film"
expect "JSON lines name file and row" 0 '"input":".*bare.txt:4".*"name":"(pos|neg)".*"classes":\[\{"class":[01],[^}]*\}\]\}' \
    "$elapse" predict "$tmp/read" "$tmp/bare.txt" --json --top 1
"$elapse" predict "$tmp/read" "$tmp/bare.csv" -o "$tmp/out.jsonl"
verify "-o FILE.jsonl has JSON lines" test "$(grep -c '^{"input"' "$tmp/out.jsonl")" = 4
expect "pictures for a model of texts" 2 "the name of a table must end in" "$elapse" predict "$tmp/read" "$tmp/shown/a.bmp"
expect "texts for a model of pictures" 2 "takes pictures, not texts" "$elapse" predict "$tmp/seen" --text a
expect "a file that is not there" 3 "cannot open '.*none.png'" "$elapse" predict "$tmp/seen" "$tmp/none.png"
expect "a file that is no picture" 2 "bare.csv" "$elapse" predict "$tmp/seen" "$tmp/bare.csv"
mkdir "$tmp/empty"
expect "a folder without a picture" 2 "holds no picture" "$elapse" predict "$tmp/seen" "$tmp/empty"
expect "a table without the column" 2 "has no column 'review'" "$elapse" predict "$tmp/read" "$tmp/bare.csv" --set data.text=review
expect "a second text for some" 2 "text-pair must be given once for each" \
    "$elapse" predict "$tmp/read" --text a --text b --text-pair c
finish
