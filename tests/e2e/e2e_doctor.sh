#!/bin/bash
# tests/e2e/e2e_doctor.sh - `elapse doctor`: what it finds here, and what it says without elapse-exec, MPI, gnuplot.
# group: slow, seconds: 6
. "$(dirname "$0")/lib.sh"
begin

# look NAME PYTHON: the checks of $tmp/doctor.json as `checks`, the whole answer as `answer`
look() {
    python3 - "$tmp/doctor.json" "$2" <<'PY' >"$tmp/look.out" 2>&1
import json, sys
answer = json.load(open(sys.argv[1]))
checks = {check["name"]: check for check in answer["checks"]}
assert answer["ok"] == all(check["ok"] for check in checks.values() if check["needed"]), answer
assert all(check["detail"] for check in checks.values()), answer
exec(sys.argv[2])
PY
    report $? "$1" < <(cat "$tmp/look.out" "$tmp/doctor.json")
}

mkdir "$tmp/alone" "$tmp/bin"
cp "$elapse" "$tmp/alone/elapse"
ln -s "$(command -v sh)" "$(command -v cat)" "$(command -v grep)" "$tmp/bin"
expect "without elapse-exec and gnuplot the answer is no" 1 '^elapse: missing or too small: gnuplot elapse-exec$' \
    env PATH="$tmp/bin" "$tmp/alone/elapse" doctor --json --out "$tmp"
cp "$tmp/expect.out" "$tmp/doctor.json"
look "it names both, each with the line that installs it" '
assert not checks["gnuplot"]["ok"] and checks["gnuplot"]["install"].endswith("apt-get install -y gnuplot-nox")
assert "libopenblas-dev" in checks["elapse-exec"]["install"] and "ping" not in checks'
expect "a folder that cannot hold runs" 1 'missing or too small:.* out' \
    "$tmp/alone/elapse" doctor --out /proc/nowhere/runs
expect "people get a table" 1 '^elapse: missing' "$tmp/alone/elapse" doctor
grep -q '^MISSING elapse-exec ' "$tmp/expect.out"
report $? "the table says MISSING" <"$tmp/expect.out"

if [ -x "$elapse-exec" ]; then
    ELAPSE_MPIRUN="$tmp/no-launcher" "$elapse" doctor --json >"$tmp/doctor.json" 2>"$tmp/err"
    look "without a launcher ping is missing, and only that" '
assert not checks["ping"]["ok"] and "openmpi-bin" in checks["ping"]["install"], checks["ping"]
assert "no-launcher" in checks["ping"]["detail"] and checks["mpi"]["ok"] and checks["blas"]["ok"]'
    if command -v gnuplot >/dev/null; then
        expect "here all that is needed is there" 0 . "$elapse" doctor --json --out "$tmp"
        cp "$tmp/expect.out" "$tmp/doctor.json"
        look "a machine that is busy is told" '
load = checks["load"]
assert load["ok"] != load["busy"] and not load["needed"] and "load average" in load["detail"], load
assert load["busy"] == (int(load["detail"].split()[3]) > 20) or "20 %" in load["detail"], load'
        for _ in $(seq "$(nproc)"); do timeout 20 sh -c 'while :; do :; done' & done
        "$elapse" doctor --json --out "$tmp" >"$tmp/busy.json" 2>"$tmp/err"
        kill $(jobs -p) 2>/dev/null
        cp "$tmp/doctor.json" "$tmp/quiet.json" && cp "$tmp/busy.json" "$tmp/doctor.json"
        look "with every core taken it is busy, and nothing is missing" '
assert checks["load"]["busy"] and "unreliable now" in checks["load"]["detail"] and answer["ok"], checks["load"]'
        cp "$tmp/quiet.json" "$tmp/doctor.json"
        look "two ranks have a latency below 50 ms" '
assert checks["ping"]["detail"].startswith("2 ranks: ") and "GB/s" in checks["ping"]["detail"]
value, unit = checks["ping"]["detail"].split()[2:4]
assert 0 < float(value) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[unit] < 0.05, checks["ping"]'
    else
        skip "here all that is needed is there" "no gnuplot here"
    fi
else
    skip "two ranks have a latency" "no elapse-exec here"
fi
finish
