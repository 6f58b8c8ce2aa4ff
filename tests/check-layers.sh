#!/bin/sh
# tests/check-layers.sh - execute the include rule of ARCHITECTURE.md ("rooms").
#
#   1 includes     a room includes only the rooms it may, every path written from the root
#   2 wings        the same inside a room, folder by folder
#   3 circles      no wing depends on itself by way of others, and no file of exec
#   4 own-header   a .c file with a header of its own includes it first
#   5 libraries    sqlite3.h and cJSON.h in profiles only; MPI, CUDA, NCCL, BLAS, libcrypto in exec only
#   6 pure         partition does no I/O
#   7 names        file names are unique in the tree
#   8 headers      every header compiles alone as C (those of rule 4 do in the build), those with the extern "C"
#                  guard together as C++ too
#   9 stubs        cuda_cudnn.c has all its functions where cuDNN's headers are missing
#  10 paths        every path that a comment or a page names exists
#  11 walls        only the files that walls.txt lists include an optional wing, between comments that say so
#
# Prints one TAP line a rule, and each breach as "file:line: why". ROOT=dir checks another tree (the
# test of this test). Exit 1 on a breach.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "${ROOT:-$here/..}" || exit 3
failed=0
rooms="partition profiles sim exec cli library"
may_include() {
    case $1 in
    partition) echo "partition" ;;
    profiles) echo "partition|profiles" ;;
    sim) echo "partition|sim" ;;
    exec) echo "partition|profiles|exec" ;;
    cli) echo "partition|profiles|sim|cli" ;;
    library) echo "partition|profiles|sim|library" ;;
    esac
}
sources() { # of a room
    [ -d "$1" ] && find "$1" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort
}
rule() { # NAME BREACHES
    if [ -z "$2" ]; then
        echo "ok - layers: $1"
    else
        echo "not ok - layers: $1"
        printf '%s\n' "$2" | sed 's/^/# /'
        failed=1
    fi
}

breaches=$(for room in $rooms; do
    files=$(sources "$room")
    [ -z "$files" ] && continue
    # shellcheck disable=SC2086
    grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' $files |
        grep -vE "\"($(may_include "$room"))/[^\"]*\"" |
        sed "s/\$/   <- $room may include $(may_include "$room" | tr '|' ' ')/"
    # shellcheck disable=SC2086
    grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]([^">]*/)?\.\.?/' $files
done
# A path that names no file would be found through another -I: also a breach.
for room in $rooms; do
    for file in $(sources "$room"); do
        sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]*)".*/\1/p' "$file" |
            while read -r path; do [ -e "$path" ] || echo "$file: no '$path' from the root"; done
    done
done)
rule "a room includes only what it may" "$breaches"

# A wing, and the other wings of its room that it may include. main.c includes any; library has no wings.
wings="partition/base:
partition/model: base
partition/cluster: base
partition/cost: base model cluster
partition/freeze: base model
partition/layout: base model cluster cost
partition/schedule: base
partition/plan: base model cluster cost freeze layout schedule
partition/step: base model cluster cost layout schedule plan
partition/search: base model cluster cost layout plan step
profiles/base:
profiles/json: base
profiles/frameworks: base json
profiles/job: base json
profiles/store: base json
profiles/cost: store
profiles/devices: job
sim/step:
sim/run: step
sim/faults:
exec/base:
exec/cpu: base
exec/cuda: base
exec/comm: base
exec/stage: base
exec/data: base stage
exec/cache: base comm stage data
exec/step: base comm stage data cache
exec/device: base cpu comm
exec/measure: base comm stage data cache device
exec/weights: base stage
exec/checkpoint: base comm stage weights
exec/record: checkpoint step
exec/trainer: base comm stage data cache step device weights checkpoint record
exec/probe: base trainer
exec/change: base checkpoint trainer probe
exec/run: base data device weights checkpoint trainer probe change
exec/commands: comm device measure weights checkpoint trainer run
exec/serve: base comm stage data device weights checkpoint run commands
cli/base:
cli/launch: base
cli/plans: base
cli/runs: base launch
cli/simulate: base plans runs
cli/figures: base plans runs simulate
cli/faults: base plans simulate
cli/frameworks: base plans simulate
cli/commands: base launch plans runs simulate faults figures frameworks"
wing_breaches() {
    local file wing room may
    for room in $rooms; do
        [ "$room" = library ] || sources "$room" | grep -E "^$room/[^/]*$" | grep -vx "$room/main.c" |
            sed 's/$/: lies in no wing/'
        for wing in $(sources "$room" | sed -n 's|^\([a-z]*/[a-z]*\)/.*|\1|p' | sort -u); do
            echo "$wings" | grep -q "^$wing:" || { echo "$wing is in no line of the table"; continue; }
            may=$(echo "$wings" | sed -n "s|^$wing: *||p")
            # shellcheck disable=SC2046,SC2086
            grep -HnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"$room/" $(sources "$wing") /dev/null |
                grep -vE "\"$room/(${wing#*/}$(printf '|%s' $may))/[^\"]*\"" |
                sed "s/\$/   <- ${wing#*/} may include itself${may:+, $may}/"
        done
    done
}
rule "a wing includes only what it may" "$(wing_breaches)"
echo "$wings" | sed 's/^/#   /'

# Each breach: an include of an optional wing that does not stand between "wall: WING" and "wall end" of a listed file.
rule "an optional wing is included by its rows only" "$([ ! -e tests/checkers/walls.txt ] ||
    grep -v '^#' tests/checkers/walls.txt | while IFS=: read -r wings rows; do
        for wing in $wings; do
            [ -d "$wing" ] || echo "tests/checkers/walls.txt: no wing '$wing'"
            for file in $(grep -rl "^#include \"$wing/" $rooms 2>/dev/null | grep -vE "^($(echo "$wings" | tr ' ' '|'))/"); do
                case " $rows " in
                *" $file "*) sed "\|wall: ${wings%% *} |,/wall end/d" "$file" | grep -E "^#include \"$wing/" | sed "s|^|$file: outside its rows: |" ;;
                *) echo "$file: includes the optional wing $wing, and is not in its line of tests/checkers/walls.txt" ;;
                esac
            done
        done
    done)"

# A unit of exec is a .c (.cu) file with the header of the same name; elsewhere a wing. It depends on the units
# whose headers it includes and on those that define a function or an object that it names.
rule "no circle of wings, nor of files of exec" "$(for room in $rooms; do
    files=$(sources "$room" | grep -vx "$room/main.c")
    [ -n "$files" ] || continue
    # shellcheck disable=SC2086
    awk -v wings=1 -f "$here/circles.awk" $files $files
    # shellcheck disable=SC2086
    [ "$room" != exec ] || awk -f "$here/circles.awk" $files $files
done)"

rule "a source includes its own header first" "$(for room in $rooms; do
    for file in $(sources "$room" | grep -E '\.cu?$'); do
        own=${file%.*}.h
        [ -e "$own" ] || continue
        first=$(grep -m1 -E '^[[:space:]]*#[[:space:]]*include' "$file")
        case $first in
        *"\"$own\""*) ;;
        *) echo "$file: first include is not \"$own\"" ;;
        esac
    done
done)"

rule "libraries stay in their room" "$(for room in $rooms; do
    case $room in
    profiles) ban='openssl/[a-z0-9_]*|mpi|cuda[a-z_]*|cublas[A-Za-z]*|nccl|cudnn|nvtx[^>]*|cblas|openblas[^>]*' ;;
    exec) ban='sqlite3|cJSON|cjson/cJSON' ;;
    *) ban='openssl/[a-z0-9_]*|sqlite3|cJSON|cjson/cJSON|mpi|cuda[a-z_]*|cublas[A-Za-z]*|nccl|cudnn|nvtx[^>]*|cblas|openblas[^>]*' ;;
    esac
    files=$(sources "$room")
    [ -z "$files" ] && continue
    # shellcheck disable=SC2086
    grep -HnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($ban)\.h[>\"]" $files
done)"

# snprintf and friends work on memory and are fine; sim touches no files either.
rule "partition and sim do no I/O" "$(for room in partition sim; do
    files=$(sources "$room")
    [ -z "$files" ] && continue
    # shellcheck disable=SC2086
    grep -HnE '\b(f?printf|vf?printf|puts|fputs|putchar|fopen|fdopen|freopen|fread|fwrite|fgets|getline|scanf|fscanf|perror|exit|_exit|abort|getenv|system|popen|open|creat|unlink|rename|mkdir|stat)[[:space:]]*\(' $files |
        grep -vE ':[[:space:]]*(/?\*|//)'
    # shellcheck disable=SC2086
    grep -HnwE '(stdout|stderr|stdin)' $files | grep -vE '"[^"]*std(out|err|in)[^"]*"' | grep -vE ':[[:space:]]*(/?\*|//)'
done)"

rule "file names are unique" "$(for room in $rooms plots tests; do
    [ -d "$room" ] && find "$room" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' \)
done | grep -vE '/(main\.c|run\.sh)$' | sed 's|.*/||' | sort | uniq -d | sed 's/^/two files are named /')"

# Headers alone: those that no source includes first. Those that need MPI or CUDA are looked at where the library is.
cc=${CC:-cc}
flags="-std=c11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only"
libs=$(pkg-config --cflags sqlite3 libcjson ompi-c openblas 2>/dev/null ||
    pkg-config --cflags sqlite3 libcjson 2>/dev/null)
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] && libs="$libs -I$(realpath "$(dirname "$(realpath "$nvcc")")/../include")"
missing=$(for lib in mpi cuda_runtime_api nccl cudnn cblas; do
    echo "#include <$lib.h>" | $cc $libs -fsyntax-only -x c - 2>/dev/null || printf '%s|' "$lib"
done)
headers=$(for room in $rooms; do sources "$room" | grep '\.h$'; done |
    xargs grep -LE "include *<(${missing}no-such-header)\.h>" /dev/null)
headers_alone() {
    for header in $headers; do
        [ -e "${header%.h}.c" ] || echo "#include \"$header\"" | $cc $flags $libs -x c - 2>&1 | sed "s|^<stdin>|$header alone|"
    done
    # shellcheck disable=SC2086
    ! command -v c++ >/dev/null || grep -l 'extern "C"' $headers /dev/null | sed 's/.*/#include "&"/' |
        c++ -std=c++17 -D_GNU_SOURCE -I. -fsyntax-only $libs -x c++ - 2>&1
}
rule "every header compiles alone" "$(headers_alone)"

# A path starts with the name of a room. One that stands for several files has NAME, <name>, *, { or the like.
rule "every path in a comment or a page exists" "$({ find $rooms tests packaging examples docs -type f 2>/dev/null
    ls Makefile ./*.md 2>/dev/null; } |
    grep -vE '^tests/(golden|fuzz/(corpus|found))/|^(docs|examples)/.*\.(svg|png|csv|json)$|^tests/e2e/e2e_cli.sh$' |
    xargs -d '\n' grep -HnoE "(^|[^A-Za-z0-9_/.\$}-])($(echo "$rooms" | tr ' ' '|')|tests|docs|plots|packaging)/[A-Za-z0-9_./-]*[A-Za-z0-9_](-?[*<{\$%[])?" |
    sed -E 's/^([^:]*:[0-9]*):[^a-z]?/\1 /' | while read -r place path; do
        case $path in
        *[*\<{\$%[] | *NAME* | *PARSER*) ;;
        *) [ -e "$path" ] || [ -e "${place%%/*}/$path" ] || echo "$place: no '$path'" ;;
        esac
    done)"

# A machine may have CUDA and no cuDNN: the backend links there all the same.
functions() { # functions FLAG...: what cuda_cudnn.c defines
    # shellcheck disable=SC2086
    $cc -std=c11 -D_GNU_SOURCE -I. $libs "$@" -c exec/cuda/cuda_cudnn.c -o "$objects/cudnn.o" || echo "does not compile"
    nm -g --defined-only "$objects/cudnn.o" | sed 's/.* //'
}
rule "without cuDNN's headers nothing is missing" "$(if [ -e exec/cuda/cuda_cudnn.c ] &&
    echo '#include <cudnn.h>' | $cc $libs -fsyntax-only -x c - 2>/dev/null; then
    objects=$(mktemp -d)
    functions >"$objects/with"
    functions -DELAPSE_NO_CUDNN >"$objects/without"
    diff "$objects/with" "$objects/without"
    grep 'does not compile' "$objects/with"
    rm -rf "$objects"
fi)"
exit $failed
