
# Complete $current as one of the words that its class allows: set COMPREPLY.
_elapse_reply() { # CLASS
    local list=$current before=""
    case $1 in
    JOB) COMPREPLY=($(compgen -f -X '!*.json' -- "$current") $(compgen -d -- "$current")) ;;
    FILE | PATH) COMPREPLY=($(compgen -f -- "$current")) ;;
    DIR | RUN_DIR) COMPREPLY=($(compgen -d -- "$current")) ;;
    :*) # words; of a list the part behind the last comma
        [[ $list = *,* ]] && before=${list%,*},
        COMPREPLY=($(compgen -P "$before" -W "${1#:}" -- "${list##*,}"))
        return ;;
    *) COMPREPLY=($(compgen -W "$(_elapse_class "$1" "$current")" -- "$current")) ;;
    esac
    case $1 in
    MODEL | CLUSTER) COMPREPLY+=($(compgen -f -X '!*.json' -- "$current")) ;;
    JOB | FILE | PATH | DIR | RUN_DIR) compopt -o filenames 2>/dev/null ;; # a slash behind folders
    esac
}

# Set $class to what argument number $2 (from 0) of a command is; the last class repeats.
_elapse_argument() { # COMMAND NUMBER
    local all=($(_elapse_takes "$1"))
    [ ${#all[@]} -gt 0 ] || return
    class=${all[$2]:-${all[-1]}}
    # "verify DIR", "list|show": words that cannot come again
    [[ $2 -ge ${#all[@]} && $class = *[a-z]* ]] && class=""
}

_elapse() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} given=() command current previous class="" i number=0
    # The words as typed: bash also splits them at "=" and ":".
    read -ra given <<<"$line"
    [[ $line = *[[:space:]] ]] && given+=("")
    current=${given[-1]} command=${given[1]} previous=${given[-2]}
    COMPREPLY=()
    if [ ${#given[@]} -le 2 ]; then
        COMPREPLY=($(compgen -W "$_elapse_commands" -- "$current"))
        return
    fi
    for ((i = 2; i < ${#given[@]} - 1; i++)); do
        case ${given[i]} in
        -*=*) ;;
        -*) _elapse_value "$command" "${given[i]}" >/dev/null && i=$((i + 1)) ;;
        *) number=$((number + 1)) ;;
        esac
    done
    if [[ $current = --*=* ]]; then
        local name=${current%%=*}
        current=${current#*=}
        class=$(_elapse_value "$command" "$name") && _elapse_reply "$class"
        _elapse_typed "$name=$current" "$name="
        return
    elif [[ $i -ge ${#given[@]} ]] && class=$(_elapse_value "$command" "$previous"); then
        _elapse_reply "$class"
    elif [[ $current = -* ]]; then
        local options=() option
        for option in $(_elapse_options "$command"); do
            [[ " ${given[*]:2:${#given[@]}-3} " != *" $option "* ]] || _elapse_repeats "$command" "$option" ||
                continue
            options+=("$option")
        done
        COMPREPLY=($(compgen -W "${options[*]}" -- "$current"))
    else
        _elapse_argument "$command" "$number"
        [ -n "$class" ] && _elapse_reply "$class"
    fi
    _elapse_typed "$current" ""
}

# bash replaces only what stands behind the last "=" or ":" of the word: leave the rest out of the
# answers. A key ("train.seed=") is followed by its value, not by a space.
_elapse_typed() { # WORD MISSING: what the answers lack at their front
    local word=$1 behind front=""
    [[ $COMP_WORDBREAKS = *=* && $word = *=* ]] && front=${word%"${word##*=}"}
    [[ $COMP_WORDBREAKS = *:* && $word = *:* ]] && behind=${word%"${word##*:}"} &&
        [ ${#behind} -gt ${#front} ] && front=$behind
    COMPREPLY=("${COMPREPLY[@]/#/$2}")
    [ ${#COMPREPLY[@]} -gt 0 ] && COMPREPLY=("${COMPREPLY[@]#"$front"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} = *= ]] && compopt -o nospace 2>/dev/null
}

complete -F _elapse elapse
