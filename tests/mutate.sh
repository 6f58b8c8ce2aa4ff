#!/bin/bash
# tests/mutate.sh - break the code on purpose, one small edit at a time, and see the named tests fail.
#
#   tests/mutate.sh [LIST]       LIST: tests/mutants.txt
#   tests/mutate.sh --look [LIST]
#                                only look whether each edit can be done and its tests are there; builds nothing
#   MUTATE_ONLY=PATTERN          only mutants whose file or name matches this regular expression
#   MUTATE_JOBS=N                that many at a time (as many as there are cores)
#
# The work is done in copies of the tree under a temporary folder; the tree itself is not changed. A mutant is
# killed if each of its tests fails. It survives if one of them passes: that test cannot fail. It is broken if
# the old text is not in the file exactly once, or the edit does not compile. Before, each test must pass
# without an edit. Ends with "N killed, N survived, N broken"; exit 1 unless all are killed.
#
# An entry of the list is a paragraph. Several lines "-" or "+" make a text of several lines; no "+" removes it.
#
#   mutant: WHAT IT BREAKS
#   file: PATH
#   - OLD TEXT
#   + NEW TEXT
#   test: test_NAME [FILTER]     (as ELAPSE_TEST_FILTER), or a script below tests/
set -u
cd "$(dirname "$0")/.." || exit 3
. tests/env.sh
look="" && [ "${1:-}" = --look ] && look=1 && shift
list=${1:-tests/mutants.txt} only=${MUTATE_ONLY:-} jobs=${MUTATE_JOBS:-$(nproc)} limit=60
unset ELAPSE_BIN ELAPSE_OUT MAKEFLAGS MFLAGS MAKELEVEL
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C ELAPSE_SKIP_DEPS=1
build() { make --no-print-directory CUDA=0 "$@"; }

names=() files=() olds=() news=() tests=()
read_list() {
    local line n=-1
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        "mutant: "*) n=$((n + 1)) names+=("${line#*: }") files+=("") olds+=("") news+=("") tests+=("") ;;
        "file: "*) files[n]=${line#*: } ;;
        "- "*) olds[n]+=${olds[n]:+$'\n'}${line:2} ;;
        "+ "*) news[n]+=${news[n]:+$'\n'}${line:2} ;;
        "test: "*) tests[n]+=${line#*: }$'\n' ;;
        "" | "#"*) ;;
        *) echo "$list: a line begins with none of the known words: $line" >&2; exit 2 ;;
        esac
    done <"$list"
}
chosen() { [[ -z $only || ${files[$1]}:${names[$1]} =~ $only ]]; }

# source_of TEST: the file of a script, or of a program.
source_of() { find tests -name "$1" -o -name "$1.c"; }

# target TEST: what make builds for it; a script wants the programs.
target() { if [[ $1 = *.sh ]]; then echo all; else echo "$out/tests/$1"; fi; }

# passes TEST [FILTER]: run it in this copy; its output goes to ./.said. Fails also if it ran no test.
passes() {
    local ranks="" program=$out/tests/$1
    if [[ $1 = *.sh ]]; then
        program=$(source_of "$1")
    else
        ranks=$(sed '/\*\//q' "$(source_of "$1")" | sed -n 's/^\(.*[^a-z]\)\?ranks: *\([0-9]*\).*/\2/p' | head -1)
    fi
    { # Bash reports a program that a signal ends.
        ELAPSE_TEST_ALL=1 ELAPSE_TEST_FILTER=${2:-} timeout --kill-after=5 $limit \
            ${ranks:+${ELAPSE_MPIRUN:-mpirun} -n "$ranks"} "$program" </dev/null >.said 2>&1
    } 2>/dev/null && grep -q '^ok\b' .said
}

# copy N: a copy of the tree with its build folder, in $work/N.
copy() {
    mkdir "$work/$1" || exit 3
    git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' f; do
        [ ! -e "$f" ] || printf '%s\0' "$f"
    done | xargs -0 cp -a --parents -t "$work/$1"
    if [ -d "$out" ]; then
        mkdir -p "$work/$1/build"
        cp -a "$out" "$work/$1/build/"
    fi
    [ ! -e ../shared ] || ln -sfn "$(realpath ../shared)" "$work/shared"
}

# seek N: the text of its file before and behind the old text; false unless that is there exactly once.
seek() {
    local text old=${olds[$1]}
    [ -f "${files[$1]}" ] && [ -n "$old" ] || return
    text=$(cat "${files[$1]}" && echo x)
    before=${text%%"$old"*}
    [ "$before" != "$text" ] || return
    behind=${text:${#before}+${#old}}
    [[ $behind != *"$old"* ]]
}

# edit N: put the new text into the file of this copy; false if seek is.
edit() {
    local before behind
    seek "$1" || return
    behind=${news[$1]}$behind
    printf '%s' "$before${behind%x}" >"${files[$1]}"
    line=$(($(printf '%s' "$before" | wc -l) + 1))
}

# verdict N: try it in this copy, and print one line.
verdict() {
    local line=0 name=${names[$1]} file=${files[$1]} object=$out/${files[$1]}.o test what=killed why="" targets=()
    while read -r test _; do targets+=("$(target "$test")"); done <<<"${tests[$1]%$'\n'}"
    cp -p "$file" .source 2>/dev/null
    cp -p "$object" .object 2>/dev/null
    if ! edit "$1"; then
        what=BROKEN why="the old text is not in the file exactly once"
    elif ! build "${targets[@]}" >.made 2>&1; then
        what=BROKEN why=$(grep -m1 -E 'error|No rule' .made)
    else
        while read -r test filter; do
            why=$test
            passes "$test" "$filter" && what=SURVIVED && break
        done <<<"${tests[$1]%$'\n'}"
    fi
    printf '%-9s%s:%d  %s  (%s)\n' "$what" "$file" "$line" "$name" "$why"
    [ ! -e .source ] || mv .source "$file"
    # A fresh date: what was linked from the mutant is older.
    if [ -e .object ]; then mv .object "$object" && touch "$object"; fi
}

worker() { # N: every jobs-th of the chosen
    cd "$work/$1" || exit 3
    for ((i = $1; i < ${#order[@]}; i += jobs)); do
        verdict "${order[i]}"
    done
}

read_list
order=()
for i in "${!names[@]}"; do
    if [ -z "${files[i]}" ] || [ -z "${tests[i]}" ]; then
        echo "$list: '${names[i]}' wants a file and a test" >&2
        exit 2
    fi
    ! chosen "$i" || order+=("$i")
done
[ ${#order[@]} -gt 0 ] || { echo "mutate: none of ${#names[@]} mutants matches '$only'" >&2; exit 2; }
[ "$jobs" -le ${#order[@]} ] || jobs=${#order[@]}

if [ -n "$look" ]; then
    bad=0
    for i in "${order[@]}"; do
        seek "$i" || { echo "${files[i]}: '${names[i]}': the old text is not in the file exactly once"; bad=1; }
        while read -r test _; do
            [ -e "$(source_of "$test")" ] || { echo "$list: '${names[i]}': no test '$test'"; bad=1; }
        done <<<"${tests[i]%$'\n'}"
    done
    exit $bad
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/elapse-mutate.XXXXXX") || exit 3
trap 'for job in $(jobs -p); do pkill -P "$job"; done; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
first=$(build -s list-tests | sed -n 1p)
out=${first%/tests/*}

# Without an edit everything builds and passes.
copy 0
(
    cd "$work/0" || exit 3
    for i in "${order[@]}"; do printf '%s' "${tests[i]}"; done | sort -u >.tests
    mapfile -t targets < <(while read -r test _; do target "$test"; done <.tests | sort -u)
    build -j "$jobs" "${targets[@]}" >.made 2>&1 || { tail -5 .made; echo "mutate: no build"; exit 1; }
    while read -r test filter; do
        passes "$test" "$filter" && continue
        grep -A 5 '^not ok' .said || tail -5 .said
        echo "mutate: without any edit '$test $filter' does not pass"
        exit 1
    done <.tests
) || exit 1
for ((n = 1; n < jobs; n++)); do cp -a "$work/0" "$work/$n"; done
for ((n = 0; n < jobs; n++)); do worker "$n" & done | tee "$work/said"
count() { grep -c "^$1" "$work/said"; }
echo "$(count killed) killed, $(count SURVIVED) survived, $(count BROKEN) broken"
[ "$(count killed)" -eq ${#order[@]} ]
