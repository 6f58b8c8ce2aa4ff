#!/bin/bash
# tests/checkers/walls.sh - what is optional can go: in a copy of the tree, deletes the wings of a line of walls.txt with
# their rows, and builds the programs and the library of what is left.
#
#   tests/checkers/walls.sh [WING...]      (all of them; `make walls ONLY=exec/serve`)
#
# Prints one TAP line a wing. With ccache on the path a wing takes a link and the files that name it.
set -u
cd "$(dirname "$0")/../.." || exit 3
copy=$(mktemp -d "${TMPDIR:-/tmp}/elapse-walls.XXXXXX") || exit 3
trap 'rm -rf "$copy"' EXIT
wings=$(sed -n 's/^\([a-z/]*\)[a-z/ ]*:.*/\1/p' tests/checkers/walls.txt)
failed=0

without() { # WING: builds what is left, in $copy
    local rows folders
    rows=$(sed -n "s|^$1[a-z/ ]*: *||p" tests/checkers/walls.txt)
    folders=$(sed -n "s|^\($1[a-z/ ]*\):.*|\1|p" tests/checkers/walls.txt)
    [ -n "$folders" ] || { echo "no optional wing '$1' in tests/checkers/walls.txt"; return 1; }
    rm -rf "$copy" && mkdir "$copy" && tar -cf - --exclude=./build --exclude=./.git . | tar -xf - -C "$copy" || return
    for folder in $folders; do rm -rf "${copy:?}/$folder"; done
    for file in $rows; do
        grep -q "wall: $1 " "$file" || { echo "$file has no rows of $1"; return 1; }
        sed -i "\|wall: $1 |,/wall end/d" "$copy/$file"
    done
    for folder in $folders; do # an include of what is gone
        ! grep -rn "#include \"$folder/" "$copy"/{cli,exec,library,partition,profiles,sim} || return
    done
    make -C "$copy" --no-print-directory -j2 CUDA=0 WERROR=1 all || return
    "$copy/build/bin/elapse" --help && "$copy/build/bin/elapse-exec" --help || return
    [ "$1" != sim/faults ] || refuses_faults
}

refuses_faults() { # a job whose cluster loses nodes is not simulated without
    local job="$copy/faults.json"
    echo '{"name":"j","model":"gpt2","train":{"max_steps":9},"cluster":{"preset":"a100-2x8","faults":{"restart":"60s"}}}' >"$job"
    "$copy/build/bin/elapse" sim "$job" 2>&1 | tee /dev/stderr | grep -q 'cluster.faults: this build'
}

for wing in ${*:-$wings}; do
    if without "$wing" >"$copy.log" 2>&1; then
        echo "ok - walls: without $wing the programs build"
    else
        echo "not ok - walls: without $wing the programs build"
        grep -E 'error|undefined|warning|no (optional|rows)|Error' "$copy.log" | sed 's/^/# /' | head -40
        failed=1
    fi
    rm -f "$copy.log"
done
exit $failed
