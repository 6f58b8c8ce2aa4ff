# cli/share/zsh.awk - completion for zsh, with words.awk: a call of _arguments for each command.

# Text inside '...', and inside "[...]" or before ":" of a specification of _arguments.
function quoted(text) {
    gsub(/'/, "'\\''", text)
    return text
}
function described(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/\[/, "\\[", text)
    gsub(/\]/, "\\]", text)
    gsub(/:/, "\\:", text)
    return quoted(text)
}

# How an argument of a class is completed.
function action(class, list) {
    if (list != "" && class ~ /,/)
        return "_sequence _elapse_words " list
    if (list != "")
        return "(" list ")"
    if (class == "JOB")
        return "_files -g \"*.json(-.)\""
    if (class == "FILE" || class == "PATH")
        return "_files"
    if (class == "DIR" || class == "RUN_DIR")
        return "_files -/"
    if (class == "MODEL" || class == "CLUSTER")
        return " _elapse_named \"" words[class] "\"" # the space: no arguments before ours
    if (class in words)
        return "(" words[class] ")"
    if (class == "a.b=v" || class == "path=v1,v2,...")
        return " _elapse_keys"
    if (class ~ /[a-z]/ && class !~ /[^a-z|]/) {
        gsub(/\|/, " ", class)
        return "(" class ")"
    }
    return " "
}

function write_command(command,    i, n, parts, name, what) {
    printf "(%s)\n    _arguments \\\n", command
    for (i = 1; i <= num_options[command]; i++) {
        name = option[command, i]
        if (!repeats[command, i] && name ~ /^--/)
            printf "        '(%s)%s%s[%s]", name, name, arg[command, i] == "" ? "" : "=", described(help[command, i])
        else
            printf "        '%s%s%s[%s]", repeats[command, i] ? "*" : "", name, \
                arg[command, i] != "" && name ~ /^--/ ? "=" : "", described(help[command, i])
        if (arg[command, i] != "")
            printf ":%s:%s", described(arg[command, i]), quoted(action(arg[command, i], values[command, i]))
        print "' \\"
    }
    n = split(takes[command], parts, " ")
    for (i = 1; i <= n; i++) {
        what = parts[i]
        printf "        '%s:%s:%s' \\\n", i < n || what ~ /[a-z]/ ? i : "*", described(what), quoted(action(what, ""))
    }
    print "        '--help[a short text on the options]'"
    print "    ;;"
}

END {
    print "#compdef elapse"
    print "# Completion of elapse for zsh. Written by cli/share/share.sh."
    print ""
    print "# For _sequence: one of a list of words."
    print "_elapse_words() { compadd \"$@[1,(r)--]\" -- \"${@[(r)--,-1][2,-1]}\" }"
    print "# A preset, or a JSON file."
    print "_elapse_named() {"
    print "    local -a names=(${=1})"
    print "    _alternative 'names:name:compadd -a names' 'files:file:_files -g \"*.json(-.)\"'"
    print "}"
    print "# A key of a job, then its value."
    print "_elapse_keys() {"
    print "    local -A choices=("
    for (i = 1; i <= num_keys; i++)
        printf "        %s '%s'\n", keys[i], key_values[keys[i]]
    print "    )"
    print "    local key=${PREFIX%%=*}"
    print "    if compset -P 1 '*='; then"
    print "        compadd -- ${=choices[$key]}"
    print "    else"
    print "        compadd -S = -q -- ${(k)choices}"
    print "    fi"
    print "}"
    print ""
    print "local -a commands=("
    for (c = 1; c <= num_commands; c++)
        printf "    '%s:%s'\n", commands[c], quoted(summary[commands[c]])
    print "    'help:names and keys of a topic'"
    print ")"
    print "if (( CURRENT == 2 )); then"
    print "    _describe command commands"
    print "    compadd -- --help --version"
    print "    return"
    print "fi"
    print "local command=$words[2]"
    print "shift words"
    print "(( CURRENT-- ))"
    print "case $command in"
    for (c = 1; c <= num_commands; c++)
        write_command(commands[c])
    printf "(help)\n    compadd --"
    for (i = 1; i <= num_topics; i++)
        printf " %s", topics[i]
    for (c = 1; c <= num_commands; c++)
        printf "%s", commands[c] in about ? "" : " " commands[c]
    print "\n    ;;"
    print "esac"
}
