# tests/e2e/nodes.sh - sourced behind lib.sh by tests that want several machines: nodes out of
# namespaces of this one, each with its own network, host name, processes, /dev/shm and clock. Only
# the file system is shared, as by NFS. They end with the script that made them.
#
#   nodes_as_root         start the script again among mounts of its own, and as root of a user
#                         namespace where it is not root; to be called before begin
#   in_memory FOLDER      a tmpfs on it, until the script's end
#   nodes_here            whether this machine lets us; else $why_not says what is missing
#   nodes_up NAME...      make nodes that reach each other by name (10.77.0.N);
#                         $nodes/elapse is $elapse, run on the first
#   on NODE COMMAND...    run it there, in this environment and folder
#   launcher HOST...      mpirun's words for these ("a:2": two ranks on a), to be run on the first;
#                         it reaches the others as by ssh: fresh environment, home folder
#   unplug NODE, plug NODE take its cable out, which nobody is told; put it back
#   left NODE NAME        how many processes of that name live there
#   wire NODE             bytes that it has received from others
why_not= node_pids= memory= mpirun=${ELAPSE_MPIRUN:-mpirun}

nodes_as_root() {
    local user=
    [ "$(id -u)" -eq 0 ] || user="--user --map-root-user"
    [ -n "${NODES_MOUNTS:-}" ] || ! unshare $user --mount true 2>/dev/null || NODES_MOUNTS=own exec unshare $user --mount "$0"
}

in_memory() { [ -n "${NODES_MOUNTS:-}" ] && mount -t tmpfs -o size=1g tmpfs "$1" && memory=$1; }

nodes_here() {
    local tool
    for tool in ip unshare nsenter setpriv pgrep; do
        command -v $tool >/dev/null || { why_not="no '$tool' here"; return 1; }
    done
    why_not=$(node_namespaces sh -c 'mount -t tmpfs tmpfs /dev/shm && ip link add name here type veth peer name there && ip link add name middle type bridge' 2>&1) ||
        { why_not="no namespaces here: $(echo $why_not | tail -c 150)"; return 1; }
}

node_namespaces() { exec setpriv --pdeathsig KILL unshare --net --uts --ipc --mount --pid --time --fork --kill-child "$@"; }

# A node's first process: it sets the node up and then only reaps what others leave.
node_hold() { # NAME NUMBER
    node_namespaces --monotonic $((1000 * $2)) bash -c "
        hostname $1 && mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm && mount --bind '$nodes/hosts' /etc/hosts &&
        ip link set lo up && touch '$nodes/$1.up'; while :; do sleep 1000 & wait; done" &
    node_pids="$node_pids $!"
    for _ in $(seq 100); do [ -e "$nodes/$1.up" ] && break; sleep 0.05; done
    pgrep -P $! >"$nodes/$1.pid" && [ -e "$nodes/$1.up" ]
}

nodes_up() {
    local name i=0
    nodes="$tmp/nodes"
    mkdir -p "$nodes" && mkfifo "$nodes/ssh" || return
    trap 'kill $node_pids 2>/dev/null; [ -z "$memory" ] || umount -l "$memory"; rm -rf "$tmp"' EXIT
    echo "127.0.0.1 localhost" >"$nodes/hosts"
    for name in "$@"; do echo "10.77.0.$((i += 1)) $name" >>"$nodes/hosts"; done
    node_hold switch 0 || return
    switch add name middle type bridge && switch set middle up || return
    i=0
    for name in "$@"; do
        node_hold "$name" $((i += 1)) &&
            switch add name "to-$name" type veth peer name port netns "$(cat "$nodes/$name.pid")" &&
            plug "$name" &&
            on "$name" ip address add "10.77.0.$i/24" dev port && on "$name" ip link set port up || return
    done
    node_ssh_server &
    node_pids="$node_pids $!"
    # Asks the server by a pipe, waits, and hands its exit status on.
    cat >"$nodes/ssh.sh" <<SSH
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done # ssh's options
host=\$1
shift
call=\$(mktemp -d "$nodes/call.\$(hostname).\$host.XXXXXX") && mkfifo "\$call/status" && exec 4<>"\$call/status" || exit 255
echo "\$*" >"\$call/command"
echo "\$host \$call" >"$nodes/ssh"
read -r status <&4
cat "\$call/out"
exit "\$status"
SSH
    printf '#!/bin/bash\nexec %s "%s" "$@"\n' "$(on_words "$1")" "$elapse" >"$nodes/elapse"
    chmod +x "$nodes/ssh.sh" "$nodes/elapse"
}

node_ssh_server() {
    local host call
    while read -r host call; do
        {
            on "$host" env -i PATH="$PATH" HOME="${HOME:-/}" sh -c "cd; $(cat "$call/command")" >"$call/out" 2>&1 </dev/null
            echo $? 1<>"$call/status"
        } &
    done 0<>"$nodes/ssh"
}

switch() { nsenter -t "$(cat "$nodes/switch.pid")" --net ip link "$@"; }
unplug() {
    switch set "to-$1" nomaster
    rm -f "$nodes"/call.*".$1."*/status # nor does a call ever hear of its end
}
plug() { switch set "to-$1" master middle up; }

on_words() { echo "nsenter -t $(cat "$nodes/$1.pid") --net --uts --ipc --mount --pid --time"; }
on() {
    local words
    words=$(on_words "$1") || return
    shift
    $words "$@"
}

launcher() {
    local hosts
    hosts=$(IFS=,; echo "$*")
    if $mpirun --version 2>&1 | grep -q HYDRA; then
        echo "$mpirun -launcher ssh -launcher-exec $nodes/ssh.sh -genv UCX_NET_DEVICES port -hosts $hosts" # not lo
    else
        echo "$mpirun --mca plm_rsh_agent $nodes/ssh.sh --mca orte_tmpdir_base $nodes --host $hosts"
    fi
}

left() { on "$1" pgrep -c -x "$2"; }
wire() { on "$1" sed -n 's/^ *port: *\([0-9]*\).*/\1/p' /proc/net/dev; }
