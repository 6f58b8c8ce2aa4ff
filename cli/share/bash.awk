# cli/share/bash.awk - completion for bash, with words.awk. Needs no other package.

function quoted(text) {
    gsub(/'/, "'\\''", text)
    return "'" text "'"
}

END {
    print "# Completion of elapse for bash. Written by cli/share/share.sh."
    print ""
    print "# Words of a class, such as MODEL or a.b=v; the names of files come from the shell."
    print "_elapse_class() { # CLASS CURRENT"
    print "    case $1 in"
    for (class in words)
        names[++num_names] = class
    for (i = 1; i <= num_names; i++) # awk has no order of its own: that of the names
        for (j = i + 1; j <= num_names; j++)
            if (names[j] < names[i]) {
                swap = names[i]
                names[i] = names[j]
                names[j] = swap
            }
    for (i = 1; i <= num_names; i++)
        printf "    %s) echo %s ;;\n", names[i], quoted(words[names[i]])
    printf "    TOPIC) echo '"
    for (i = 1; i <= num_topics; i++)
        printf "%s%s", (i > 1 ? " " : ""), topics[i]
    for (i = 1; i <= num_commands; i++)
        printf "%s", commands[i] in about ? "" : " " commands[i]
    print "' ;;"
    print "    'a.b=v' | 'path=v1,v2,...')"
    print "        case $2 in"
    for (i = 1; i <= num_keys; i++)
        if (key_values[keys[i]] != "")
            printf "        %s=*) printf '%s=%%s ' %s ;;\n", keys[i], keys[i], key_values[keys[i]]
    print "        *=*) ;;"
    printf "        *) echo '"
    for (i = 1; i <= num_keys; i++)
        printf "%s%s=", (i > 1 ? " " : ""), keys[i]
    print "' ;;"
    print "        esac ;;"
    print "    *'|'*) echo \"${1//|/ }\" ;;"
    print "    *[a-z]*) echo \"$1\" ;;"
    print "    esac"
    print "}"
    print ""
    print "# The options of a command; what its arguments are; \"CLASS\" or \":words\" of an option's value."
    print "_elapse_options() {"
    print "    case $1 in"
    for (c = 1; c <= num_commands; c++) {
        printf "    %s) echo '--help", commands[c]
        for (i = 1; i <= num_options[commands[c]]; i++)
            printf " %s", option[commands[c], i]
        print "' ;;"
    }
    print "    esac"
    print "}"
    print "_elapse_takes() {"
    print "    case $1 in"
    print "    help) echo TOPIC ;;"
    for (c = 1; c <= num_commands; c++)
        if (takes[commands[c]] != "")
            printf "    %s) echo %s ;;\n", commands[c], quoted(takes[commands[c]])
    print "    esac"
    print "}"
    print "_elapse_value() { # COMMAND OPTION; fails for an option without a value"
    print "    case \"$1 $2\" in"
    for (c = 1; c <= num_commands; c++)
        for (i = 1; i <= num_options[commands[c]]; i++) {
            if (arg[commands[c], i] == "")
                continue
            text = values[commands[c], i] == "" ? arg[commands[c], i] : ":" values[commands[c], i]
            printf "    '%s %s') echo %s ;;\n", commands[c], option[commands[c], i], quoted(text)
        }
    print "    *) return 1 ;;"
    print "    esac"
    print "}"
    print "_elapse_repeats() {"
    print "    case \"$1 $2\" in"
    for (c = 1; c <= num_commands; c++)
        for (i = 1; i <= num_options[commands[c]]; i++)
            if (repeats[commands[c], i])
                printf "    '%s %s') return 0 ;;\n", commands[c], option[commands[c], i]
    print "    *) return 1 ;;"
    print "    esac"
    print "}"
    printf "_elapse_commands='"
    for (c = 1; c <= num_commands; c++)
        printf "%s ", commands[c]
    print "help --help --version'"
    while ((getline line <tail) > 0)
        print line
}
