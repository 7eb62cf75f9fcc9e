#!/usr/bin/env bash
# Clones by a stock Linux NFS client (an unmodified Debian kernel in User Mode Linux) through NFS version 4.2, on exports that
# lie on XFS and btrfs, in images that this machine mounts, and on tmpfs, which has no clones. Needs root for mounts and a
# network namespace. Half a minute.
#
#   tests/linux/clones.sh [OUT]      OUT keeps the logs, a temporary directory by default
#
# A file system that this machine's kernel does not mount is named and left out; without any that has clones it fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../binary.sh"
. "$here/../packages.sh"
. "$here/uml.sh"
. "$here/walk.sh"

if [ -z "${CLONES_INSIDE:-}" ]; then
    [ "$(id -u)" = 0 ] || fail "this mounts file systems and makes a network namespace: run it as root"
    need setfattr=attr mkfs.xfs=xfsprogs mkfs.btrfs=btrfs-progs python3=python3 ip=iproute2 unshare=util-linux
    uml_fetch
    odafs_binary
    CLONES_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi

if [ $# -gt 0 ]; then
    mkdir -p "$1"; out=$(cd "$1" && pwd)
    scratch=
else
    out=$(mktemp -d); scratch=$out
fi
stores=()
clean_up() {
    local store
    walk_stop -KILL
    for store in "${stores[@]}"; do umount "$out/$store" 2>/dev/null || true; done
    [ -z "$scratch" ] || rm -rf "$scratch"
}
trap clean_up EXIT
rm -rf "$out"/{state,guest.log,*.image}

# store NAME COMMAND...: the file system that COMMAND mounts, as an export.
exports=() attributes=
store() {
    local name=$1; shift
    mkdir -p "$out/$name"
    if "$@" 2>"$out/$name.log"; then
        stores+=("$name")
        # What a local program gets, the client gets.
        if setfattr -n user.probe -v probe "$out/$name" 2>/dev/null; then
            setfattr -x user.probe "$out/$name"
            attributes+=" $name"
        fi
        exports+=(--export "/$name=$out/$name")
    else
        echo "no $name: this machine's kernel does not mount it ($(tail -1 "$out/$name.log"))"
    fi
}
# Smaller than what the guest clones, all together.
image() {
    truncate -s 320M "$out/$1.image"
    "${@:2}" "$out/$1.image" >/dev/null
    store "$1" mount -o loop "$out/$1.image" "$out/$1"
}
image xfs mkfs.xfs -q -m reflink=1
image btrfs mkfs.btrfs -q
store tmpfs mount -t tmpfs -o size=100M tmp "$out/tmpfs"
# tmpfs has no clones.
[ ${#stores[@]} -gt 1 ] || fail "this machine mounts no file system that has clones"

uml_network
walk_start "$out" "$ODAFS" serve "${exports[@]}" --state "$out/state" --nfs "$UML_HOST:2049" --allow 10.77.0.0/24 \
    --squash none --cache 64MiB
{ echo "STORES='${stores[*]}' ATTRIBUTES='$attributes' CLIENT=$UML_GUEST"; cat "$here/clones.guest.sh"; } >"$out/guest.sh"
status=0; uml_boot "$out" "$out/guest.sh" || status=$?
cat "$out/guest.log" 2>/dev/null || true
[ $status = 0 ] || { tail -5 "$out/server.log" >&2; fail "the guest ended with status $status"; }
# What the client was told is what the file systems have.
for store in "${stores[@]}"; do
    (cd "$out/$store" && sha256sum --quiet -c "$out/$store.sums") || fail "$store: the files are not what the client read"
done
walk_stop -TERM
echo "clones passed on ${stores[*]}"
