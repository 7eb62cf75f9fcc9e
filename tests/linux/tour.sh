#!/usr/bin/env bash
# A stock Linux NFS client (an unmodified Debian kernel in User Mode Linux) mounts the
# server and does what users do. Needs root for a private network namespace. About a minute.
#
#   tests/linux/tour.sh [OUT]      OUT keeps the logs, a temporary directory by default
#
# TOUR_SERVER='COMMAND' TOUR_EXPORT=/x TOUR_TREE=DIR walk it through another server instead.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../binary.sh"
. "$here/../packages.sh"
. "$here/uml.sh"

if [ -z "${TOUR_INSIDE:-}" ]; then
    [ "$(id -u)" = 0 ] || fail "the tour makes a network namespace: run it as root"
    need ip=iproute2 unshare=util-linux setpriv=util-linux
    uml_fetch
    [ -n "${TOUR_SERVER:-}" ] || odafs_binary
    TOUR_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi

if [ $# -gt 0 ]; then
    mkdir -p "$1"; out=$(cd "$1" && pwd)
    rm -f "$out"/restart* "$out/can-restart"
else
    out=$(mktemp -d); scratch=$out
fi
server= scratch=${scratch:-}
stop_server() {
    [ -n "$server" ] || return 0
    kill "$1" "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
clean_up() { stop_server -KILL; [ -z "$scratch" ] || rm -rf "$scratch"; }
trap clean_up EXIT
tree=${TOUR_TREE:-$out/tree}
rm -rf "$out/state" "$out/tree"
mkdir -p "$tree/many"
(cd "$tree/many" && seq -f 'entry-number-%g' 0 8999 | xargs touch)
uml_network

start_server() {
    if [ -n "${TOUR_SERVER:-}" ]; then
        bash -c "exec $TOUR_SERVER" >>"$out/server.log" 2>&1 &
        server=$!
        sleep 4
        return
    fi
    : >"$out/ready"
    "$ODAFS" serve "$tree" --state "$out/state" --nfs "$UML_HOST:2049" --allow 10.77.0.0/24 \
        --squash none --cache 256MiB >"$out/ready" 2>>"$out/server.log" &
    server=$!
    for _ in {1..600}; do
        grep -q '^ready ' "$out/ready" && return
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    tail -20 "$out/server.log" >&2
    fail "the server did not start (see $out/server.log)"
}

# Kills the server in the middle of what the guest is doing, and starts it again on the same state.
restart_server() {
    sleep 0.15
    stop_server -KILL
    sleep 1
    start_server
    touch "$out/restarted"
}

start_server
[ -n "${TOUR_SERVER:-}" ] || touch "$out/can-restart"
{ echo "EXPORT=${TOUR_EXPORT:-/} MOUNT_PORT=${TOUR_MOUNT_PORT:-2049}"; cat "$here/tour.guest.sh"; } >"$out/guest.sh"
( uml_boot "$out" "$out/guest.sh" ) & guest=$!
while kill -0 $guest 2>/dev/null; do
    if [ -e "$out/restart-please" ]; then
        rm "$out/restart-please"
        restart_server
    fi
    sleep 0.05
done
status=0; wait $guest || status=$?
cat "$out/guest.log" 2>/dev/null || true
[ $status = 0 ] || { tail -5 "$out/server.log" >&2; fail "the tour ended with status $status"; }

# What the client was told is what the disk holds.
if [ -e "$out/can-restart" ]; then
    want=$(cat "$out/big.sha256")
    for name in big restarted; do
        got=$(sha256sum <"$tree/$name")
        [ "${got%% *}" = "$want" ] || fail "$name on the server's disk is not what the client wrote"
    done
    kill -TERM $server; code=0; wait $server || code=$?; server=
    [ $code = 0 ] || fail "the server ended with status $code on SIGTERM"
fi
echo "tour passed"
