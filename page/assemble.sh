#!/bin/sh
# page/assemble.sh VERSION MODULE_FOLDER - print the page: page.html with its parts in place of the lines
# and words between @.
set -eu
dir=$(dirname "$0")
base64 -w0 "$2/elapse.wasm.gz" >"${TMPDIR:-/tmp}/elapse-page.$$"
trap 'rm -f "${TMPDIR:-/tmp}/elapse-page.$$"' EXIT
awk -v dir="$dir" -v module="$2" -v version="$1" -v code="${TMPDIR:-/tmp}/elapse-page.$$" '
    function put(path,  line) { while ((getline line < path) > 0) print line; close(path) }
    /^@elapse\.js@$/ { put(module "/elapse.js"); next }
    /^@[a-z.]+@$/ { put(dir "/" substr($0, 2, length($0) - 2)); next }
    /@MODULE@/ { getline text < code; i = index($0, "@MODULE@"); print substr($0, 1, i - 1) text substr($0, i + 8); next }
    { gsub(/@VERSION@/, version); print }' "$dir/page.html"
