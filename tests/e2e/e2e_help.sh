#!/bin/bash
# tests/e2e/e2e_help.sh - help topics: what they list, the commands accept.
# seconds: 4
. "$(dirname "$0")/lib.sh"
begin

topics=$("$elapse" --help | sed -nE 's/^    ([a-z]+) .*/\1/p')
for topic in job model cluster data schedule freeze profile; do
    grep -qx "$topic" <<<"$topics"
    report $? "topic $topic is listed" <<<"$topics"
    "$elapse" help "$topic" >"$tmp/$topic" 2>&1
    { echo "exit $?"; awk 'length > 100 || / $/' "$tmp/$topic"; } >"$tmp/bad"
    { [ "$(cat "$tmp/bad")" = "exit 0" ] && [ "$(wc -l <"$tmp/$topic")" -gt 8 ]; }
    report $? "topic $topic: lines of at most 100 columns" <"$tmp/bad"
done
expect "a topic that is a command names its help" 0 "^'elapse model --help' lists" "$elapse" help model
expect "a command names the topic of its argument" 0 "^see also 'elapse help model'" "$elapse" model --help
expect "plan names that of a job" 0 "^see also 'elapse help job'" "$elapse" help plan
expect "no topic" 2 "no command or topic 'foo'" "$elapse" help foo

absent=""
for command in $("$elapse" --help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
    grep -Eq "^(elapse|checkpoint=.*elapse) $command( |\$)" docs/commands.md README.md || absent+=" $command"
done
[ -z "$absent" ]
report $? "README.md and docs/commands.md have an example of each command" <<<"absent:$absent"

# section TOPIC HEADING: the names in the left column under a heading
section() { sed -n "/^$2/,/^\$/p" "$tmp/$1" | sed -nE 's/^  ([^ ]+) .*/\1/p'; }
# each NAME COMMAND...: the command takes every word of stdin in place of WORD
each() {
    local name=$1 word count=0 bad=""
    shift
    while read -r word; do
        count=$((count + 1))
        "${@//WORD/$word}" >/dev/null 2>"$tmp/each.err" || bad+="$word: $(cat "$tmp/each.err")"$'\n'
    done
    [ -z "$bad" ] && [ $count -gt 2 ]
    report $? "$name" <<<"$count words; $bad"
}
section schedule schedules | grep -vx auto |
    each "every schedule of the topic generates" "$elapse" schedule --kind WORD --stages 4 --microbatches 8
section freeze policies | each "every policy of the topic is known" bash -c \
    '! "$0" freeze --layers 4 --policy WORD --norms "$1" 2>&1 | grep "unknown freeze policy"' "$elapse" "$tmp/none"
section cluster machines | each "every machine of the topic is a cluster" "$elapse" cluster WORD-2
sed -n '/^presets/,/^train/p' "$tmp/model" | grep -v '^train' | sed -n '2,$p' | sed 's/^  [a-z]* *//; s/^ *//' |
    tr ' ' '\n' | grep -E '^(vit|bert|gpt|llama|qwen|mix|mis|deep|mini)' |
    each "every preset of the topic is a model" "$elapse" model WORD
sed -n '/^keys of uniform/,/^$/p' "$tmp/model" | sed -nE 's/^  ([a-z_]+) +time .*/\1/p' |
    each "every time of uniform is one" "$elapse" model uniform:WORD=500us

# The rows for programs: each kind of line has its number of fields.
"$elapse" --help=rows >"$tmp/rows"
awk -F'\t' -v OFS='\t' 'BEGIN { n["command"] = 5; n["option"] = 7; n["topic"] = 3; n["word"] = 4; n["key"] = 4; n["field"] = 5 }
    NF != n[$1] || $2 == "" { print NR, $0; bad = 1 } { seen[$1]++ }
    END { for (k in n) if (!seen[k]) { print "no " k; bad = 1 } exit bad }' "$tmp/rows" >"$tmp/rows.bad"
report $? "--help=rows: every line is of a known kind" <"$tmp/rows.bad"
diff <(awk -F'\t' '$1 == "key" { print $2 }' "$tmp/rows" | sort) <(section job keys: | sort) >"$tmp/keys.diff"
report $? "its keys are those of the topic job" <"$tmp/keys.diff"

# A reader that leaves at once is no error of any command.
piped=""
for command in "" $(awk -F'\t' '$1 == "command" { print $2 }' "$tmp/rows"); do
    for form in "$command --help" "$command --help=rows" "help $command"; do
        "$elapse" $form 2>"$tmp/err" | true
        [ "${PIPESTATUS[0]}" -eq 0 ] && [ ! -s "$tmp/err" ] || piped+="$form: $(cat "$tmp/err")"$'\n'
    done
done
"$elapse" report examples/paper/vit.json -o /dev/stdout 2>"$tmp/err" | true
[ "${PIPESTATUS[0]}" -eq 0 ] && [ ! -s "$tmp/err" ] || piped+="report: $(cat "$tmp/err")"
[ -z "$piped" ]
report $? "help and a report into a closed pipe are no error" <<<"$piped"

# The programs name the sources that they were built from.
for program in "$elapse" "$elapse-exec"; do
    name=$(basename "$program")
    [ -x "$program" ] || { skip "$name --version" "not built here"; continue; }
    "$program" --version --json >"$tmp/version.json"
    python3 - "$tmp/version.json" "$("$program" --version)" <<'PY' >"$tmp/version.out" 2>&1
import json, re, sys
facts, text = json.load(open(sys.argv[1])), sys.argv[2].splitlines()
assert facts["schema"] == 1 and text[0].split()[1] == facts["version"], text
for key in "date compiler flags mpi blas cuda cuda_archs sqlite".split():
    assert facts[key] and any(line.split(None, 1) == [key, facts[key]] for line in text[1:]), key
assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["date"]) and re.fullmatch("[0-9a-f]*(-dirty)?", facts["commit"])
PY
    report $? "$name --version: facts as lines and as JSON" <"$tmp/version.out"
done
finish
