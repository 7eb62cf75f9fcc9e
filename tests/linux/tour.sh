#!/usr/bin/env bash
# A stock Linux NFS client (an unmodified Debian kernel in User Mode Linux) mounts the
# server and does what users do. Needs root for a private network namespace. About a minute.
#
#   tests/linux/tour.sh [OUT]      OUT keeps the logs, a temporary directory by default
#
# TOUR_VERSION=2, 4.0, 4.1 or 4.2: the version of NFS, 3 by default.
# TOUR_SERVER='COMMAND' TOUR_EXPORT=/x TOUR_TREE=DIR walk it through another server instead.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../binary.sh"
. "$here/../packages.sh"
. "$here/uml.sh"
. "$here/walk.sh"
TOUR_SERVER=${TOUR_SERVER:-}

if [ -z "${TOUR_INSIDE:-}" ]; then
    [ "$(id -u)" = 0 ] || fail "the tour makes a network namespace: run it as root"
    need setfattr=attr setfacl=acl nfs4_setfacl=nfs4-acl-tools python3=python3 ip=iproute2 unshare=util-linux setpriv=util-linux
    uml_fetch
    [ -n "${TOUR_SERVER:-}" ] || odafs_binary
    TOUR_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi

if [ $# -gt 0 ]; then
    mkdir -p "$1"; out=$(cd "$1" && pwd)
    scratch=
    rm -rf "$out"/restart* "$out/can-restart"
else
    out=$(mktemp -d); scratch=$out
fi
clean_up() { walk_over; [ -z "$scratch" ] || rm -rf "$scratch"; }
trap clean_up EXIT
tree=${TOUR_TREE:-$out/tree}
rm -rf "$out/state" "$out/tree"
walk_tree "$tree" 10000
uml_network

if [ -n "${TOUR_SERVER:-}" ]; then
    bash -c "exec $TOUR_SERVER" >>"$out/server.log" 2>&1 &
    # shellcheck disable=SC2034 # walk.sh ends it.
    WALK_SERVER=$!
    sleep 4
else
    # Beside the export of the tour there is another: clients see both from the root.
    other=$out/other
    rm -rf "$other"; mkdir "$other"; echo elsewhere >"$other/here"; chmod 777 "$other"
    two=(); [ "${TOUR_VERSION:-3}" != 2 ] || two=(--nfs2 on)
    walk_start "$out" "$ODAFS" serve "${two[@]}" --export "/tour=$tree" --export "/deep/other=$other,read-only" \
        --state "$out/state" --nfs "$UML_HOST:2049" --allow 10.77.0.0/24 \
        --squash none --cache 256MiB --lease 10s --portmap "$UML_HOST:111"
fi
# What local programs get of the file system of the export, the client gets. (By version 2 there are no lists.)
acls= clones=
echo probe >"$tree/probe"
[ "${TOUR_VERSION:-3}" = 2 ] || ! setfacl -m u:4321:r "$tree/probe" 2>/dev/null || acls=yes
! cp --reflink=always "$tree/probe" "$tree/probe-clone" 2>/dev/null || clones=yes
rm -f "$tree/probe" "$tree/probe-clone"
# By version 2 every 8 KiB are synced.
megabytes=100; [ "${TOUR_VERSION:-3}" != 2 ] || megabytes=20
{ [ "${TOUR_VERSION:-3}$TOUR_SERVER" != 3 ] || uml_locks; echo "MEGABYTES=$megabytes"; echo "EXPORT=${TOUR_EXPORT:-${other:+/tour}} OTHER=${other:+/deep/other} MOUNT_PORT=${TOUR_MOUNT_PORT:-2049} VERSION=${TOUR_VERSION:-3} CLIENT=$UML_GUEST ACLS=$acls CLONES=$clones"; cat "$here/tour.guest.sh"; } >"$out/guest.sh"
status=0; walk "$out" uml_boot "$out" "$out/guest.sh" || status=$?
cat "$out/guest.log" 2>/dev/null || true
[ $status = 0 ] || { tail -5 "$out/server.log" >&2; fail "the tour ended with status $status"; }
[ -n "${TOUR_SERVER:-}" ] || walk_end "$out"
echo "tour of version ${TOUR_VERSION:-3} passed"
