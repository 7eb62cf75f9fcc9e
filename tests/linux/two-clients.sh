#!/usr/bin/env bash
# Two stock Linux NFS clients (two unmodified Debian kernels in User Mode Linux) share a server by the version that Linux
# takes when nobody names one, 4.2, and by the others that lock: locks, delegations, databases and repositories of both; a
# network that is cut; a server that is killed; a client that is killed. Needs root for a private network namespace. Two minutes
# and a half, on a machine that does nothing else: clients that get no processor for seconds lose what they hold.
#
#   tests/linux/two-clients.sh [OUT]      OUT keeps the logs. By default a temporary directory, which stays if the test fails
#
# SEED=N STEPS=300: what is locked at random, and how often.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../binary.sh"
. "$here/../packages.sh"
. "$here/uml.sh"
. "$here/walk.sh"
# A client of version 3 hears within 5 s, or within the next 5, that the server has started anew. Then it waits 3 s and 6 s for a
# connection, and reclaims only after that. A callback that nobody answers for a quarter of a lease is given up.
LEASE=20
SEED=${SEED:-$RANDOM} STEPS=${STEPS:-300}
export SEED STEPS

if [ -z "${CLIENTS_INSIDE:-}" ]; then
    [ "$(id -u)" = 0 ] || fail "this makes a network namespace: run it as root"
    need python3=python3 sqlite3=sqlite3 git=git ip=iproute2 unshare=util-linux
    # What mount.nfs is linked with.
    need_installed libgssapi-krb5-2 libmount1
    uml_fetch
    odafs_binary
    scratch=
    if [ $# = 0 ]; then scratch=$(mktemp -d); set -- "$scratch"; fi
    mkdir -p "$1"
    CLIENTS_INSIDE=1 unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" "$1" & inside=$!
    ended() {
        local status=$?
        # All that runs there ends with it.
        kill -KILL $inside 2>/dev/null || true
        if [ $status != 0 ]; then
            echo "the logs are in $1; the same ranges once more: SEED=$SEED STEPS=$STEPS $0" >&2
        elif [ -n "$scratch" ]; then
            rm -rf "$scratch"
        fi
    }
    trap 'ended "$1"' EXIT
    wait $inside
    exit
fi

out=$(cd "$1" && pwd)
rm -rf "$out"/{tree,state,shared,one,two,events}
mkdir -p "$out"/{tree,shared,one,two}

# network NAME NET
network() {
    UML_TAP=tap-$1 UML_HOST=$2.1 UML_GUEST=$2.2
    uml_network
}
# What happens outside of the guests, with the time.
event() { local at=$EPOCHREALTIME; printf '%(%T)T.%s  %s\n' "${at%[.,]*}" "${at: -6:1}" "$*" >>"$out/events"; }
# guest NAME NET SCRIPT: a guest with its directory. $OUT is its own; both find $SHARED.
guest() {
    local name=$1 net=$2 script=$out/$1/guest.sh
    {
        [ "$name" = one ] || uml_locks "client-$name" /mnt/out/statd
        echo "ME=$name LEASE=$LEASE CLIENT=$net.2 SHARED=$out/shared UML_CACHE=$UML_CACHE HERE=$here SEED=$SEED STEPS=$STEPS"
        cat "$3"
    } >"$script"
    (
        status=0
        (UML_TAP=tap-$name UML_HOST=$net.1 UML_GUEST=$net.2 UML_TIMEOUT=1200 uml_boot "$out/$name" "$script") || status=$?
        event "the guest $name ends with status $status"
        # Who fails does not leave the other waiting.
        [ $status = 0 ] || { touch "$out/shared/over"; exit 1; }
    ) &
}

walk_start "$out" "$ODAFS" serve "$out/tree" --state "$out/state" --nfs 0.0.0.0:2049 --allow 10.77.0.0/16 \
    --squash none --cache 64MiB --lease "${LEASE}s" --portmap 0.0.0.0:111
network one 10.77.1
network two 10.77.2
guest one 10.77.1 "$here/two-clients.guest.sh"; one=$!
guest two 10.77.2 "$here/two-clients.guest.sh"; two=$!

status=0
# A guest whose network is cut may not get further than to say that it failed.
failed() { [ -e "$out/shared/over" ] || grep -qs '^[0-9:.]*  FAILED' "$out"/{one,two}/guest.log; }
asked() { [ -e "$out/shared/$1" ] && rm "$out/shared/$1"; }
while { kill -0 $one 2>/dev/null || kill -0 $two 2>/dev/null; } && ! failed; do
    # The server is killed when the guests ask for it.
    if asked kill; then
        event "the server is killed"
        walk_stop -KILL
        sleep 1
        walk_start "$out" "${WALK_COMMAND[@]}"
        event "the server is there again"
        touch "$out/shared/killed"
    fi
    # The second guest goes without a word, and comes back to say that it has started anew.
    if asked come-back; then
        wait $two || { event "the guest two did not go as it was to"; status=1; break; }
        mv "$out/two/guest.log" "$out/two/before.log"
        guest two 10.77.2 "$here/again.guest.sh"; two=$!
    fi
    sleep 0.05
done
# If one has failed, either may wait for the server for ever.
for guest in $one $two; do [ $status != 0 ] || failed || wait "$guest" || status=1; done
! failed || status=1
# By the time. What a program says has none, and stays where it was said.
for name in one two host; do
    logs=("$out/$name"/{before,guest}.log)
    [ $name != host ] || logs=("$out/events")
    # Not each has said something.
    { cat "${logs[@]}" 2>/dev/null || true; } |
        awk -v name=$name '/^[0-9][0-9]:[0-9:.]+ / { at = $1; sub(/^[^ ]+ +/, "") } { printf "%-10s  %-4s  %s\n", at, name, $0 }'
done | sort -s -k1,1
[ $status = 0 ] || { tail -5 "$out/server.log" >&2; fail "a client failed (seed $SEED, $STEPS steps)"; }
walk_stop -TERM
echo "two clients passed"
