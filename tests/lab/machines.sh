#!/usr/bin/env bash
# A lab on one computer: machines are namespaces (network, mounts, processes, host name), each with its own sshd,
# home, lock folder and machine id. The orchestrator's side is the network namespace `hub`. Needs root and sshd.
#
#   machines.sh up FOLDER N             starts lab1 … labN; ssh -F FOLDER/ssh_config lab1
#   machines.sh hub FOLDER COMMAND…     runs a command on the orchestrator's side
#   machines.sh inside FOLDER K COMMAND…    runs a command on a machine, without ssh
#   machines.sh cut|restore FOLDER K    takes a machine's link down and up
#   machines.sh delay FOLDER K MS       delays what goes to and comes from a machine
#   machines.sh packets FOLDER K        packets over its link so far
#   machines.sh down FOLDER             ends all of it
set -euo pipefail

verb=$1 folder=$(realpath -m "$2")
shift 2

first_child() {
    local parent children
    parent=$1
    for _ in $(seq 200); do
        children=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null || true)
        [ -z "$children" ] || { echo "${children%% *}"; return; }
        sleep 0.01
    done
    echo "process $parent has no child" >&2
    return 1
}

in_hub() { nsenter --target "$(cat "$folder/hub.pid")" --net "$@"; }

inside() {
    local machine=$1
    shift
    nsenter --target "$(cat "$folder/lab$machine/pid")" --net --mount --uts --pid "$@"
}

# The pid 1 of a machine: killed, it takes the machine with it.
init() {
    local machine=$1 own=$folder/lab$1
    hostname "lab$machine"
    mount -t tmpfs none /run/lock -o mode=1777
    mkdir -p /var/lib/matrix && mount -t tmpfs none /var/lib/matrix
    mount --bind "$own/home" /root
    [ -e /etc/machine-id ] || : > /etc/machine-id
    mount --bind "$own/machine-id" /etc/machine-id
    mkdir -p /run/sshd
    ip link set lo up
    # It speaks without being asked.
    echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
    until ip addr show eth0 2>/dev/null | grep -q 10.88; do sleep 0.02; done
    /usr/sbin/sshd -D -f "$own/sshd_config" -E "$own/sshd.log" &
    wait
}

start_machine() {
    local machine=$1 own=$folder/lab$1
    mkdir -p "$own/home"
    printf '%032x\n' "$((0x1ab000 + machine))" > "$own/machine-id"
    cat > "$own/sshd_config" <<END
ListenAddress 10.88.$machine.2
Port 22
HostKey $own/host_key
AuthorizedKeysFile $folder/authorized_keys
StrictModes no
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
PrintMotd no
END
    ssh-keygen -q -t ed25519 -N '' -f "$own/host_key"
    setsid unshare --net --mount --uts --pid --fork --mount-proc --kill-child \
        bash "$0" init "$folder" "$machine" </dev/null >"$own/out" 2>&1 &
    local outer=$!
    echo "$outer" > "$own/outer.pid"
    first_child "$outer" > "$own/pid"
    in_hub ip link add "mx$machine" type veth peer name eth0 netns "$(cat "$own/pid")"
    in_hub ip addr add "10.88.$machine.1/24" dev "mx$machine"
    in_hub ip link set "mx$machine" up
    nsenter --target "$(cat "$own/pid")" --net sh -c \
        "ip link set eth0 up; ip addr add 10.88.$machine.2/24 dev eth0"
    {
        echo "lab$machine,10.88.$machine.2 $(cut -d' ' -f1,2 "$own/host_key.pub")"
    } >> "$folder/known_hosts"
    cat >> "$folder/ssh_config" <<END
Host lab$machine
    HostName 10.88.$machine.2
    HostKeyAlias lab$machine
END
}

case $verb in
up)
    mkdir -p "$folder"
    chmod 755 "$folder"
    ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
    cp "$folder/key.pub" "$folder/authorized_keys"
    : > "$folder/known_hosts"
    cat > "$folder/ssh_config" <<END
IdentityFile $folder/key
IdentitiesOnly yes
UserKnownHostsFile $folder/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
END
    setsid unshare --net sh -c 'ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; exec sleep infinity' </dev/null >/dev/null 2>&1 &
    echo $! > "$folder/hub.pid"
    # It is in its namespace when its loopback is up.
    until [ "$(readlink "/proc/$!/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    for machine in $(seq "$1"); do start_machine "$machine"; done
    for machine in $(seq "$1"); do
        for attempt in $(seq 200); do
            in_hub ssh -F "$folder/ssh_config" -o BatchMode=yes "lab$machine" true 2>/dev/null && break
            [ "$attempt" -lt 200 ] || { echo "lab$machine does not answer:" >&2; cat "$folder/lab$machine"/{out,sshd.log} >&2; exit 1; }
            sleep 0.05
        done
    done
    ;;
# Within its namespaces; not for people.
init) init "$1" ;;
hub) in_hub "$@" ;;
inside) inside "$@" ;;
cut) in_hub ip link set "mx$1" down ;;
restore) in_hub ip link set "mx$1" up ;;
delay) sed -i "/^Host lab$1\$/a ProxyCommand python3 $(realpath "$(dirname "$0")")/delay.py $2 %h %p" "$folder/ssh_config" ;;
packets) in_hub awk -v "link=mx$1:" '$1 == link { print $3 + $11 }' /proc/net/dev ;;
down)
    # End what was started here, by its number.
    for pid in "$folder"/lab*/pid "$folder"/lab*/outer.pid "$folder/hub.pid"; do
        [ ! -e "$pid" ] || kill -9 "$(cat "$pid")" 2>/dev/null || true
    done
    ;;
*) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
