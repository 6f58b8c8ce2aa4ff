#!/bin/bash
# tests/e2e/e2e_share.sh - man pages and completion, as cli/share writes them: pages that lint and say what the
# tables say, and what bash and zsh offer for a line that is being typed.
# seconds: 6
. "$(dirname "$0")/lib.sh"
begin

verify "the files are written" cli/share/share.sh "$elapse" "$tmp/share"
commands=$("$elapse" --help=rows | awk -F'\t' '$1 == "command" { print $2 }')
pages=("$tmp"/share/man/man1/*.1 "$tmp"/share/man/man5/*.5)
[ ${#pages[@]} -eq $(($(wc -w <<<"$commands") + 2)) ]
report $? "a page a command, elapse.1 and elapse-job.5" <<<"${pages[*]}"
if command -v mandoc >/dev/null; then
    mandoc -Tlint "${pages[@]}" >"$tmp/lint" 2>&1
    report $? "mandoc -Tlint finds nothing" <"$tmp/lint"
    mandoc -Tutf8 "$tmp/share/man/man1/elapse-train.1" | col -b >"$tmp/page"
    missing=""
    for option in $("$elapse" train --help=rows | awk -F'\t' '$1 == "option" { print $2 }'); do
        grep -q -- "^ *$option\( \|\$\)" "$tmp/page" || missing+=" $option"
    done
    [ -z "$missing" ]
    report $? "elapse-train(1) has every option" <<<"$missing"
else
    skip "mandoc -Tlint finds nothing" "no mandoc here"
fi
kinds=$("$elapse" --help=rows | awk -F'\t' '$1 == "word" && $2 == "FIGURE" { print $3 }')
[ "$(sed -n '/^.SH KINDS/,/^.SH OPTIONS/s/^\\fB\(.*\)\\fR$/\1/p' "$tmp/share/man/man1/elapse-plot.1" | tr -d '\\')" = "$kinds" ]
report $? "elapse-plot(1) has every kind of figure" <<<"$kinds"
SOURCE_DATE_EPOCH=86400 cli/share/share.sh "$elapse" "$tmp/again"
grep -q '"1970-01-02"' "$tmp/again/man/man1/elapse.1"
report $? "SOURCE_DATE_EPOCH dates the pages" < <(head -3 "$tmp/again/man/man1/elapse.1")
SOURCE_DATE_EPOCH=86400 cli/share/share.sh "$elapse" "$tmp/same"
check "written again, they have the same bytes" diff -r "$tmp/again" "$tmp/same"

# offers LINE prints the completions of a line, one word a line.
mkdir "$tmp/work" "$tmp/work/runs"
touch "$tmp/work/job.json" "$tmp/work/notes.txt"
# A line as it is being typed, and what is offered for it.
cat >"$tmp/cases" <<'CASES'
elapse comp|compare
elapse help fr|freeze
elapse plan --exp|--explain
elapse plan --json --j|
elapse plan --set a=1 --s|--seq --set --simulate --stages --sweep
elapse plan |job.json runs
elapse sim --step --schedule zb|zb-h1 zb-h2 zb-v
elapse sim --step --schedule=zb-h|zb-h1 zb-h2
elapse sim j --set freeze.pol|freeze.policy=
elapse sim j --set freeze.policy=cl|closed-form
elapse model gpt3-1.|gpt3-1.3b
elapse model nothing:|
elapse compare --schedules gpipe,1f|gpipe,1f1b
elapse train job.json --out r|runs
elapse plot thr|throughput
elapse plot loss |job.json notes.txt runs
elapse profiles ex|export
elapse devices h2|h20 h200
elapse nothing |
CASES
cut -d'|' -f1 "$tmp/cases" >"$tmp/lines"
cat >"$tmp/ask.bash" <<ASK
cd "$tmp/work"
. "$tmp/share/bash-completion/completions/elapse"
while IFS= read -r line; do
    COMP_LINE=\$line COMP_POINT=\${#line} COMP_WORDBREAKS=\$' \t\n"><=;|&(:' COMPREPLY=()
    _elapse
    echo "\$line|\$(printf '%s\n' "\${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd' ')"
done
ASK
bash "$tmp/ask.bash" <"$tmp/lines" >"$tmp/got" 2>&1
diff "$tmp/cases" "$tmp/got" >"$tmp/diff"
report $? "bash completes commands, options, values, keys, presets and files" <"$tmp/diff"

# A zsh on a terminal of its own, whose compadd writes down what it is given.
cat >"$tmp/.zshrc" <<ZSHRC
PROMPT= RPROMPT= fpath=('$tmp/share/zsh/site-functions' \$fpath)
cd '$tmp/work'
autoload -Uz compinit && compinit -u -D
compadd() {
    local -a hits
    if (( ! \${@[(I)-[OAD]*]} )); then
        builtin compadd -A hits "\$@"
        (( \$#hits )) && print -rl -- \$hits >>'$tmp/hits'
    fi
    builtin compadd "\$@"
}
_ask() { _main_complete; compstate[insert]= compstate[list]=; : >'$tmp/done' }
zle -C ask list-choices _ask
bindkey '^T' ask
zle-line-init() { : >'$tmp/done' }
zle -N zle-line-init
ZSHRC
cat >"$tmp/ask.zsh" <<ASK
zmodload zsh/zpty zsh/zselect
wait_for() { local n=0; until [[ -e '$tmp/done' ]] || (( n++ > 1000 )) { zselect -t 1 }; rm -f '$tmp/done' }
export ZDOTDIR='$tmp' TERM=dumb
zpty shell zsh -i
wait_for
while IFS= read -r line; do
    : >'$tmp/hits'
    zpty -w -n shell "\$line"\$'\x14'
    wait_for
    print -r -- "\$line|\$(LC_ALL=C sort -u '$tmp/hits' | paste -sd' ')"
    zpty -w -n shell \$'\x15'
done
zpty -d shell
ASK
if command -v zsh >/dev/null; then
    # zsh adds "=" behind a key itself, and offers what stands behind the last comma of a list.
    zsh -f "$tmp/ask.zsh" <"$tmp/lines" >"$tmp/got" 2>"$tmp/err"
    diff <(sed 's/=$//; s/|gpipe,/|/' "$tmp/cases") "$tmp/got" >"$tmp/diff"
    report $? "zsh completes them, too" < <(cat "$tmp/diff" "$tmp/err")
else
    skip "zsh completes them, too" "no zsh here"
fi
finish
