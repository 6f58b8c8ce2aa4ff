#!/bin/bash
# tests/e2e/e2e_speed.sh - the table of speed (tests/bench/speed_table.py): written from a bench's output, and refused
# where the machine was busy, the code has changed since, or somebody has edited it.
# seconds: 3
. "$(dirname "$0")/lib.sh"
begin
script=$PWD/tests/bench/speed_table.py
mkdir -p "$tmp/tree/docs" "$tmp/tree/sim/step"
cd "$tmp/tree" || exit 3
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
printf '# a\n<!-- speed: none -->\nNone yet.\n<!-- speed ends -->\nb\n' >docs/measured.md
folder=sim/step
change() { echo "$1" >"$folder/x.c" && git add -A && git commit -qm "$1"; }
git init -q . && change one
bench() { # LOAD
    cat <<EOF
x86_64, 4 cores, A Processor, load $1
=== bench_sim
K=64 M=1024, one replica                                       12.345 ms     target <= 20  ok
  its events                                                    7.400 M/s    target >= 10  slow
gpt2-xl     h100-8x8        64  0 |     11.0      12.0      10.5         - |       1234      56 | K=8
EOF
}
bench 0.10 >alone.txt
bench 3.00 >busy.txt
check "a page without figures passes" python3 "$script" check
expect "a busy machine is refused" 1 'load 3.00 on 4 cores: measure alone' python3 "$script" write busy.txt
check "an idle one writes the table" python3 "$script" write alone.txt --age 1
check "it has the figures of both benches, and the machine" \
    grep -qz 'A Processor, load 0.10:.*| K=64 M=1024, one replica | 12.345 ms | <= 20 |.*one replica: its events | 7.400 M/s | >= 10 |.*plan gpt2-xl on h100-8x8, batch 64 | 10.5 ms' docs/measured.md
check "it is as old as its code" python3 "$script" check
change two
check "one commit later is allowed" python3 "$script" check
change three
expect "two commits later are not" 1 '2 commits changed the measured code since .*; the table allows 1' python3 "$script" check
python3 "$script" write alone.txt --age 1
sed -i 's/12.345 ms/11.345 ms/' docs/measured.md
expect "a figure that was edited is found" 1 'is not what speed_table.py wrote' python3 "$script" check
finish
