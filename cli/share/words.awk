# cli/share/words.awk - what bash.awk and zsh.awk read from the rows of `elapse --help=rows`.

BEGIN { FS = "\t" }

$1 == "command" {
    command = commands[++num_commands] = $2
    summary[command] = $4
    takes[command] = $5
}
# num_options[command], and by (command, i): option, its placeholder, values, whether it repeats, help
$1 == "option" {
    i = ++num_options[command]
    option[command, i] = $2
    arg[command, i] = $3
    values[command, i] = $4
    repeats[command, i] = $5 == "repeat"
    help[command, i] = $7
}
$1 == "topic" { topics[++num_topics] = $2; about[$2] = $3 }
$1 == "word" && !(($2, $3) in known) {
    known[$2, $3] = 1
    words[$2] = words[$2] (words[$2] == "" ? "" : " ") $3
}
$1 == "key" { keys[++num_keys] = $2; key_values[$2] = $3 }
