# tests/circles.awk - which of these C files depend on each other in a circle.
#
#   awk [-v wings=1] -f circles.awk FILE... FILE...      (all files twice; wings: which folders do)
#
# The first pass notes what each file defines for others: functions and objects that are not static.
# The second pass notes edges from unit to unit: an include, or the name of something defined there.
# Files are laid out by clang-format, so a definition starts in column 1 and a function's brace
# stands in a line of its own. Then units without an edge to another go, and those without an edge
# from another, as long as there are any. The edges between units that stay are printed.

function unit(path) {
    sub(/\.[a-z]+$/, "", path)
    if (wings)
        sub(/\/[^\/]*$/, "", path)
    return path
}
function add_edge(to, why) {
    if (to != me && to in units && !((me, to) in edge)) { # not one that this call was not given
        edge[me, to] = why
        out[me]++
        into[to]++
    }
}
FNR == 1 {
    pass = (FILENAME in seen) ? 2 : 1
    seen[FILENAME] = 1
    me = unit(FILENAME)
    units[me] = 1
    source = FILENAME ~ /\.cu?$/
    comment = 0
    head = ""
}
{
    line = $0
    if (pass == 2 && match(line, /^[ \t]*#[ \t]*include[ \t]*"[a-z]+\/[^"]*"/)) {
        split(line, part, "\"")
        add_edge(unit(part[2]), "includes it")
        next
    }
    gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    if (comment) {
        if (!match(line, /\*\//))
            next
        line = substr(line, RSTART + 2)
        comment = 0
    }
    while (match(line, /\/\*/)) {
        start = RSTART
        rest = substr(line, start + 2)
        line = substr(line, 1, start - 1)
        if (match(rest, /\*\//)) {
            line = line " " substr(rest, RSTART + 2)
        } else {
            comment = 1
            break
        }
    }
    sub(/\/\/.*/, "", line)
}
pass == 1 && source {
    if (line ~ /^[A-Za-z_]/)
        head = line
    else if (line ~ /^[ \t]/ && head != "")
        head = head line
    if (line ~ /^\{/ && head ~ /\(/ && head !~ /(^|[ \t])static[ \t]/ && head !~ /=|^(struct|enum|typedef|template) *[a-z_]* *$/) {
        name = head
        sub(/\(.*/, "", name)
        sub(/.*[ \t*]/, "", name)
        home[name] = me
    }
    if (line ~ /^(const )?struct [a-z_0-9]+ \*?(const )?[a-z_0-9]+(\[[^]]*\])* = /) {
        name = line
        sub(/(\[[^]]*\])* = .*/, "", name)
        sub(/.*[ \t*]/, "", name)
        home[name] = me
    }
    if (line ~ /[;{}]/)
        head = ""
}
pass == 2 {
    rest = line
    last = ""
    while (match(rest, /[A-Za-z_][A-Za-z_0-9]*/)) {
        name = substr(rest, RSTART, RLENGTH)
        before = substr(rest, 1, RSTART - 1)
        rest = substr(rest, RSTART + RLENGTH)
        if ((name in home) && source && before !~ /(\.|->)$/ && !(before == " " && (last == "struct" || last == "enum")))
            add_edge(home[name], name)
        last = name
    }
}
END {
    do {
        gone = 0
        for (u in units)
            if (out[u] + 0 == 0 || into[u] + 0 == 0) {
                delete units[u]
                gone++
                for (v in units) {
                    if ((u, v) in edge) {
                        delete edge[u, v]
                        into[v]--
                    }
                    if ((v, u) in edge) {
                        delete edge[v, u]
                        out[v]--
                    }
                }
            }
    } while (gone > 0)
    for (u in units)
        for (v in units)
            if ((u, v) in edge)
                print "circle: " u " -> " v " (" edge[u, v] ")" | "sort"
}
