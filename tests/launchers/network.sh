# Hosts of a local network, for scripts that source this file: network namespaces on a bridge.
# Each has an address, a host name, and names of the others in a hosts file of its own.
#
#   network_missing && exit 0           says why this machine cannot have it
#   network_up 100 one two three        three hosts at 100 Mbit/s
#   in_host 1 COMMAND ..                runs it on the second
#   network_unplug 1                    its cable is pulled
#   network_down                        ends what runs on the hosts, by id, and removes them
#
# The `lab namespaces` of tests/lab has two hosts and the cable between them, which live in its own
# process; here are many, for programs that are started as their users start them.

# Of the network that is set aside for measurements (RFC 2544).
network_address() { echo "198.18.8.$(($1 + 1))"; }

network_prefix="chunkcomm-$$"
network_spaces=()

# Nothing here takes longer on a machine that is alive.
network_patience_s=180

network_missing() {
    local tool
    [ "$(uname)" = Linux ] || { echo "skipped: only Linux has network namespaces"; return 0; }
    [ "$(id -u)" = 0 ] || { echo "skipped: network namespaces need root"; return 0; }
    for tool in ip tc ss unshare "$@"; do
        command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; return 0; }
    done
    network_leftovers
    # The kernel may lack any of them, and a container may not be let.
    if ! network_try 2>"$work/try"; then
        echo "skipped: this system gives no bridge with veth and tbf: $(tail -1 "$work/try")"
        return 0
    fi
    return 1
}

network_try() {
    local status=0
    network_up 100 try || status=$?
    network_down
    return "$status"
}

# A rate in Mbit/s, which holds at both ends of each cable; then the hosts' names.
network_up() {
    local mbit=$1 index=0 name switch="$network_prefix-switch"
    shift
    network_space "$switch" &&
        ip -n "$switch" link add lan type bridge &&
        ip -n "$switch" link set lan up || return 1
    mkdir -p "$work/hosts"
    echo "nameserver 127.0.0.1" >"$work/hosts/resolv.conf"
    for name in "$@"; do
        network_cable "$index" "$mbit" || return 1
        echo "$name" >"$work/hosts/$index.name"
        echo "127.0.0.1 localhost" >"$work/hosts/$index.hosts"
        index=$((index + 1))
    done
}

network_space() {
    ip netns add "$1" || return 1
    network_spaces+=("$1")
}

network_cable() {
    local host="$network_prefix-$1" port="port$1" switch="$network_prefix-switch"
    local shaped=(root tbf rate "$2mbit" burst 128kb latency 50ms)
    network_space "$host" &&
        ip -n "$switch" link add "$port" type veth peer name lan0 netns "$host" &&
        ip -n "$switch" link set "$port" master lan up &&
        ip -n "$host" address add "$(network_address "$1")/24" dev lan0 &&
        ip -n "$host" link set lo up &&
        ip -n "$host" link set lan0 up &&
        tc -n "$host" qdisc add dev lan0 "${shaped[@]}" &&
        tc -n "$switch" qdisc add dev "$port" "${shaped[@]}"
}

# The host of this index knows these names for that one, from now on.
network_name() {
    local knows=$1 index=$2
    shift 2
    # In place: a mounted file stays the one that it was.
    echo "$(network_address "$index") $*" >>"$work/hosts/$knows.hosts"
}

in_host() {
    local index=$1
    shift
    # Its own names; both are seen by this command alone.
    # shellcheck disable=SC2016
    timeout --kill-after=5 "$network_patience_s" \
        ip netns exec "$network_prefix-$index" unshare --uts sh -c '
        mount --bind "$0.hosts" /etc/hosts || exit 125
        mount --bind "${0%/*}/resolv.conf" /etc/resolv.conf || exit 125
        cat "$0.name" >/proc/sys/kernel/hostname || exit 125
        exec "$@"' "$work/hosts/$index" "$@"
}

network_unplug() { ip -n "$network_prefix-switch" link set "port$1" down; }
network_plug() { ip -n "$network_prefix-switch" link set "port$1" up; }

# Processes on the hosts whose program is this file.
network_running() {
    local space pid
    for space in "${network_spaces[@]}"; do
        for pid in $(ip netns pids "$space"); do
            [ "$(readlink "/proc/$pid/exe")" != "$1" ] || echo "$pid"
        done
    done
}

network_down() {
    local space
    for space in "${network_spaces[@]}"; do network_remove "$space"; done
    network_spaces=()
}

network_remove() {
    local pids
    for _ in $(seq 50); do
        pids=$(ip netns pids "$1")
        [ -n "$pids" ] || break
        # shellcheck disable=SC2086
        kill -9 $pids 2>/dev/null || true
        sleep 0.1
    done
    ip netns delete "$1" || true
}

# Of a script that was killed before it could clean up.
network_leftovers() {
    local space pid
    for space in $(ip netns list | sed -n 's/^\(chunkcomm-[0-9]*-[a-z0-9]*\).*/\1/p'); do
        pid=${space#chunkcomm-}
        [ -d "/proc/${pid%-*}" ] || network_remove "$space"
    done
}
