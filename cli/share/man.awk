# cli/share/man.awk - man pages from the tables of `elapse --help=rows`, and from share.sh's texts.
#
# man1/elapse.1 names the commands; man1/elapse-COMMAND.1 has the options of one; man5/elapse-job.5 the
# keys of a job file. In man(7) macros; `mandoc -Tlint` accepts every page.

BEGIN { FS = "\t" }

# Text for roff: nothing in it is a request or an escape.
function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/'/, "\\(aq", text)
    gsub(/`/, "", text)
    gsub(/\^/, "\\(ha", text)
    gsub(/~/, "\\(ti", text)
    return text
}

# Text as lines of at most 76 characters, none of which starts with a dot.
function filled(text,    words, n, i, line, all) {
    n = split(escaped(text), words, / +/)
    for (i = 1; i <= n; i++) {
        if (words[i] == "")
            continue
        if (line != "" && length(line) + 1 + length(words[i]) > 76) {
            all = all line "\n"
            line = ""
        }
        if (line == "" && substr(words[i], 1, 1) == ".")
            line = "\\&"
        line = line (line == "" || line == "\\&" ? "" : " ") words[i]
    }
    return all line
}

# The beginning of a page.
function head(file, title, section, name, summary) {
    printf ".\\\" Written by cli/share/share.sh.\n.TH %s %s \"%s\" \"Elapse %s\"\n", \
        toupper(escaped(title)), section, date, version >file
    printf ".SH NAME\n%s \\-\n%s\n", escaped(name), filled(summary) >file
}

# ".TP", the bold term, after it a word in italics, and the text.
function entry(file, term, word, text) {
    printf ".TP\n\\fB%s\\fR%s\n%s\n", escaped(term), \
        word == "" ? "" : " \\fI" escaped(word) "\\fR", filled(text == "" ? "-" : text) >file
}

$1 == "exits" { exits = $2 }
$1 == "variable" { num_variables++; variable[num_variables] = $2; says[num_variables] = $3 }
$1 == "example" {
    split($2, words, " ")
    example[words[2]] = example[words[2]] $2 "\n"
}
$1 == "command" {
    n++
    name[n] = $2
    args[$2] = $3
    summary[$2] = $4
    takes[$2] = $5
}
$1 == "word" && $2 == "FIGURE" { figures[++num_figures] = $3; shows[num_figures] = $4 }
$1 == "option" { options[name[n]] = options[name[n]] $0 "\n" }
$1 == "topic" { topics[++num_topics] = $2; about[$2] = $3 }
$1 == "key" { keys[++num_keys] = $0 }

function write_options(file, command,    rows, fields, i, group, text) {
    split(options[command], rows, "\n")
    printf ".SH OPTIONS\n" >file
    for (i = 1; rows[i] != ""; i++) {
        split(rows[i], fields, "\t")
        if (fields[6] != group)
            printf ".SS %s\n", escaped(fields[6]) >file
        group = fields[6]
        text = fields[7]
        if (fields[5] == "repeat" && text !~ /repeatable/)
            text = text " (repeatable)"
        entry(file, fields[2], fields[3], text)
    }
    printf "%s", group == "" ? "" : ".SS help\n" >file
    entry(file, "--help", "", "print a short text on the options")
}

# The examples of a command, each as a paragraph that is not filled, broken before its options.
function write_examples(file, command,    rows, i) {
    if (example[command] == "")
        return
    printf ".SH EXAMPLES\n" >file
    split(example[command], rows, "\n")
    for (i = 1; rows[i] != ""; i++)
        printf "%s.nf\n%s\n.fi\n", (i > 1 ? ".PP\n" : ""), unfilled(rows[i]) >file
}

function unfilled(text,    words, n, i, line, all) {
    n = split(text, words, " ")
    for (i = 1; i <= n; i++) {
        if (line != "" && length(line) + 1 + length(words[i]) > 68) {
            all = all escaped(line) " \\e\n"
            line = "   "
        }
        line = line (line == "" ? "" : " ") words[i]
    }
    return all escaped(line)
}

function write_exits(file,    parts, i, code, text, count) {
    printf ".SH EXIT STATUS\n" >file
    count = split(exits, parts, "; ")
    for (i = 1; i <= count; i++) {
        code = text = parts[i]
        sub(/ .*/, "", code)
        if (parts[i] ~ /^[0-9]+ and [0-9]+ /) {
            match(parts[i], /^[0-9]+ and [0-9]+/)
            code = substr(parts[i], 1, RLENGTH)
        }
        entry(file, code, "", substr(text, length(code) + 2))
    }
}

function write_command(command,    file, i) {
    file = out "/man1/elapse-" command ".1"
    head(file, "elapse-" command, 1, "elapse-" command, summary[command])
    printf ".SH SYNOPSIS\n.B elapse %s\n%s\n", escaped(command), filled(args[command]) >file
    printf ".SH DESCRIPTION\n%s.\n", filled(toupper(substr(summary[command], 1, 1)) \
                                            substr(summary[command], 2)) >file
    if (command in about)
        printf "The command\n.B elapse help %s\nlists %s.\n", escaped(command), \
            filled("names and keys: " about[command]) >file
    if (takes[command] ~ /^FIGURE/) {
        printf ".SH KINDS\n" >file
        for (i = 1; i <= num_figures; i++)
            entry(file, figures[i], "", shows[i])
    }
    write_options(file, command)
    write_examples(file, command)
    write_exits(file)
    printf ".SH SEE ALSO\n.BR elapse (1),\n.BR elapse\\-job (5)\n" >file
    close(file)
}

function write_main(    file, i) {
    file = out "/man1/elapse.1"
    head(file, "elapse", 1, "elapse", "plan, simulate and run elastic pipeline training of transformers")
    printf ".SH SYNOPSIS\n.B elapse\n.I command\n[arguments]\n.br\n.B elapse help\n.I topic\n" >file
    printf ".br\n.B elapse \\-\\-version\n[\\-\\-json]\n" >file
    printf ".SH DESCRIPTION\n%s\n", filled("One job file is profiled, planned, simulated, trained, " \
        "compared with its prediction and plotted. Each command has a page of its own, such as " \
        "elapse-plan(1), and --help. Commands that answer a question have --json.") >file
    printf ".SH COMMANDS\n" >file
    for (i = 1; i <= n; i++)
        entry(file, name[i], "", summary[name[i]])
    printf ".SH TOPICS\n%s\n", filled("Lists of names and keys, by elapse help TOPIC:") >file
    for (i = 1; i <= num_topics; i++)
        entry(file, topics[i], "", about[topics[i]])
    write_exits(file)
    printf ".SH ENVIRONMENT\n" >file
    for (i = 1; i <= num_variables; i++)
        entry(file, variable[i], "", says[i])
    printf ".SH SEE ALSO\n.BR elapse\\-job (5)" >file
    for (i = 1; i <= n; i++)
        printf ",\n.BR elapse\\-%s (1)", escaped(name[i]) >file
    printf "\n" >file
    close(file)
}

function write_job(    file, i, fields, group, part, values) {
    file = out "/man5/elapse-job.5"
    head(file, "elapse-job", 5, "elapse-job", "the job file of elapse plan, sim and train")
    printf ".SH DESCRIPTION\n%s\n", filled("A job is one JSON object. Keys are nested objects in the " \
        "file, so train.epochs is {\"train\": {\"epochs\": 3}}. --set train.epochs=3 overrides a " \
        "value. Paths are relative to the file. Defaults are in brackets.") >file
    printf ".SH KEYS\n" >file
    for (i = 1; i <= num_keys; i++) {
        split(keys[i], fields, "\t")
        part = fields[2]
        if (!sub(/\..*/, "", part))
            part = "job"
        if (part != group)
            printf ".SS %s\n", escaped(part) >file
        group = part
        values = fields[3]
        gsub(/ /, ", ", values)
        entry(file, fields[2], "", (values == "" ? "" : values ": ") fields[4])
    }
    printf ".SH SEE ALSO\n.BR elapse (1),\n.BR elapse\\-plan (1),\n.BR elapse\\-sim (1),\n" >file
    printf ".BR elapse\\-train (1)\n" >file
    close(file)
}

END {
    for (i = 1; i <= n; i++)
        write_command(name[i])
    write_main()
    write_job()
}
