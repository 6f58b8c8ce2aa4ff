#!/bin/sh
# cli/share/share.sh ELAPSE FOLDER - write man pages and completion into FOLDER, as they lie under
# share/ of a prefix.
#
# Names, options, values and help come from ELAPSE (--help=rows), the variables from
# docs/environment.md, the examples from README.md. SOURCE_DATE_EPOCH (seconds) dates the pages, else
# the last commit, else README.md. LC_ALL=C: the files have the same bytes everywhere.
set -eu
export LC_ALL=C
elapse=$1 out=$2 here=$(dirname "$0")
root=$here/../..
new=$out.new
rm -rf "$new"
mkdir -p "$new/man/man1" "$new/man/man5" "$new/bash-completion/completions" "$new/zsh/site-functions"

seconds=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/README.md")}
date=$(date -u -d "@$seconds" +%Y-%m-%d)
version=$("$elapse" --version | sed -n '1s/^elapse \([^ ]*\).*/\1/p')
"$elapse" --help=rows >"$new/rows"
{
    "$elapse" --help | sed -n 's/^exit codes: /exits\t/p'
    # "| `NAME` | read by | says |" of the table of variables
    sed -n 's/^| \(`ELAPSE_[^|]*\) | [^|]* | \(.*\) |$/variable\t\1\t\2/p' "$root/docs/environment.md"
    # commands of README.md's blocks, a long one on one line
    sed -n '/^```sh/,/^```/p' "$root/README.md" | sed -e ':more' -e '/\\$/{N;s/ *\\\n */ /;b more' -e '}' |
        sed -n 's/^\(elapse [a-z].*\)/example\t\1/p'
} >"$new/texts"

awk -v out="$new/man" -v date="$date" -v version="$version" -f "$here/man.awk" "$new/texts" "$new/rows"
awk -v tail="$here/elapse.bash" -f "$here/words.awk" -f "$here/bash.awk" "$new/rows" >"$new/bash-completion/completions/elapse"
awk -f "$here/words.awk" -f "$here/zsh.awk" "$new/rows" >"$new/zsh/site-functions/_elapse"
rm "$new/rows" "$new/texts"
rm -rf "$out"
mv "$new" "$out"
