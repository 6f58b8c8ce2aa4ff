# tests/e2e/lib.sh - sourced by the shell tests: each check prints one TAP line.
#
#   begin                          cd to the root, make $tmp (removed at exit), set $elapse
#   check NAME COMMAND...          passes when the command succeeds within CHECK_SECONDS (300)
#   expect NAME STATUS PATTERN COMMAND...
#                                  passes when the exit status is STATUS and stderr (or stdout, when
#                                  stderr is empty) has a line that matches the regular expression
#   verify NAME FUNCTION...        as check, for functions of the test; no limit of time
#   as_users_wait                  mpirun ends ranks as it does for users (tests/env.sh hurries it)
#   works PID SECONDS              waits until a process and its children have used so much processor time, or have ended: what
#                                  a busy machine delays is waited for, however long
#   within SECONDS BEGIN LIKE      whether it is at most SECONDS later than BEGIN ($SECONDS then), and 3 times what the command
#                                  LIKE took, which shows how busy the machine is
#   skip NAME WHY                  says why a test did not run; that is not a pass
#   finish                         exit status from what failed

begin() {
    set -u
    cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 3
    . tests/env.sh
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/elapse-e2e.XXXXXX") || exit 3
    trap 'rm -rf "$tmp"' EXIT
    elapse=${ELAPSE_BIN:-$PWD/build/bin}/elapse
    # The user's own store is the test's: not there at first, so costs come from the shipped profiles.
    export LC_ALL=C ELAPSE_DB="$tmp/profiles.db"
}

report() { # STATUS NAME, then what to show on failure on stdin
    if [ "$1" -eq 0 ]; then
        echo "ok - $2"
        cat >/dev/null
    else
        echo "not ok - $2"
        sed 's/^/# /' | head -40
        : >"$tmp/.checks_failed" # a file: this may be a subshell
    fi
}

# A program whose second word is "-" (python3 - FILE) reads the here-document of the check; any other
# has no input.
check() {
    local name=$1 input=/dev/null rc
    shift
    [ "${2-}" != - ] || input=/dev/stdin
    timeout -k 5 "${CHECK_SECONDS:-300}" "$@" <$input >"$tmp/check.out" 2>&1
    rc=$?
    { echo "exit $rc: $*"; cat "$tmp/check.out"; } | report $rc "$name"
}

expect() {
    local name=$1 want=$2 pattern=$3 rc bad=0
    shift 3
    timeout -k 5 "${CHECK_SECONDS:-300}" "$@" </dev/null >"$tmp/expect.out" 2>"$tmp/expect.err"
    rc=$?
    sed -Ei '/^[a-z]+: .*, (.* left|best so far .*)$/d' "$tmp/expect.err" # progress, on a slow machine
    [ $rc -eq "$want" ] || bad=1
    if [ -s "$tmp/expect.err" ]; then
        grep -Eq -- "$pattern" "$tmp/expect.err" || bad=1
    else
        grep -Eq -- "$pattern" "$tmp/expect.out" || bad=1
    fi
    { echo "$*"; echo "exit $rc, wanted $want and '$pattern'"; cat "$tmp/expect.err" "$tmp/expect.out"; } |
        report $bad "$name"
}

verify() {
    local name=$1
    shift
    "$@" >"$tmp/verify.out" 2>&1
    report $? "$name" <"$tmp/verify.out"
}

works() {
    local pid=$1 ticks=$(($2 * $(getconf CLK_TCK))) used at all
    while kill -0 "$pid" 2>/dev/null; do
        all=$pid
        for at in 1 2 3 4; do all=$(echo "$pid" $(pgrep -P "${all// /,}")); done # mpirun has daemons between
        used=$(for at in $all; do cat "/proc/$at/stat" 2>/dev/null; done | sed 's/.*) //' | awk '{t += $12 + $13} END {print t + 0}')
        [ "$used" -lt "$ticks" ] || return 0
        sleep 0.1
    done
}

within() {
    [ $((SECONDS - $2)) -le $(($1 + 3 * $3)) ] || { echo "$((SECONDS - $2)) s, more than $1 s and 3 times $3 s"; false; }
}

as_users_wait() { unset OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_odls_base_sigkill_timeout; }
skip() { echo "ok - $1 # SKIP $2"; }
finish() { [ ! -e "$tmp/.checks_failed" ]; exit; }
