#!/usr/bin/env bash
# What open, read and close of small files cost a stock Linux client (in User Mode Linux) by NFS version 4.2 over TCP: with
# delegations, and without. Run by hand, as root (for a private network namespace).
#
#   tests/linux/opens.sh [OUT]     OUT keeps the logs, a temporary directory by default
#
# FILES=100 ROUNDS=50 TURNS=3: a turn reads each file once, and then ROUNDS times on the clock, in each of four ways:
#
#   local              copies in the guest's own memory: what its system calls and the program take
#   delegated          version 4.2: the server delegates the files
#   open-for-writing   version 4.2, and another client has them open for writing: the server delegates none
#   minor-version-0    version 4.0, in which the server delegates nothing
#
# A line has the nanoseconds of an open, read and close, and what calls all of them made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../binary.sh"
. "$here/../packages.sh"
. "$here/uml.sh"
. "$here/walk.sh"

if [ -z "${OPENS_INSIDE:-}" ]; then
    [ "$(id -u)" = 0 ] || fail "this makes a network namespace: run it as root"
    need python3=python3 ip=iproute2 unshare=util-linux
    uml_fetch
    odafs_binary
    OPENS_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi

FILES=${FILES:-100}
if [ $# -gt 0 ]; then
    mkdir -p "$1"; out=$(cd "$1" && pwd)
    scratch=
else
    out=$(mktemp -d); scratch=$out
fi
clean_up() { walk_stop -KILL; [ -z "$scratch" ] || rm -rf "$scratch"; }
trap clean_up EXIT

rm -rf "$out/tree" "$out/state"
mkdir -p "$out/tree/small"
for ((i = 0; i < FILES; i++)); do head -c 4096 /dev/urandom >"$out/tree/small/$i"; done
uml_network
walk_start "$out" "$ODAFS" serve "$out/tree" --state "$out/state" --nfs "$UML_HOST:2049" --allow 10.77.0.0/24 \
    --squash none --cache 64MiB
{
    echo "FILES=$FILES ROUNDS=${ROUNDS:-50} TURNS=${TURNS:-3} CLIENT=$UML_GUEST"
    echo "cat >/run/rounds.py <<'PYTHON'"
    cat "$here/opens.py"
    echo PYTHON
    cat "$here/opens.guest.sh"
} >"$out/guest.sh"
status=0; uml_boot "$out" "$out/guest.sh" || status=$?
cat "$out/guest.log" 2>/dev/null || true
[ $status = 0 ] || { tail -5 "$out/server.log" >&2; fail "the guest ended with status $status"; }
awk '
    $2 ~ /^[0-9]+$/ { n[$1]++; if (!least[$1] || $2 < least[$1]) least[$1] = $2 }
    END {
        for (way in least) if (way != "delegated")
            printf "%s / delegated, the least of each: %.2f\n", way, least[way] / least["delegated"]
        for (way in least) if (way != "delegated" && way != "local" && least["delegated"] > least["local"])
            printf "%s / delegated, beyond local: %.2f\n", way,
                (least[way] - least["local"]) / (least["delegated"] - least["local"])
    }' "$out/guest.log"
