# Sourced in the guest: Linux' own NFS server over RDMA (port 20049), MOUNT by TCP on port 20048. $CLIENT talks to it:
# `kernel` is the guest's own client and tells whether the machine works at all, `odafs` is ours.

step() { STEP=$*; printf '%6s  %s\n' "$SECONDS" "$STEP"; }
die() { echo "FAILED in \"$STEP\": $*"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
sum() { local line; line=$(sha256sum <"$1") || die "cannot read $1"; echo "${line%% *}"; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
SECONDS=0

step "Linux serves over RDMA"
for directory in run tmp export var/lib/nfs; do mount -t tmpfs tmp "$KNFSD/$directory"; done
mkdir "$KNFSD"/var/lib/nfs/{sm,v4recovery} "$KNFSD/run/rpcbind"
touch "$KNFSD"/var/lib/nfs/{etab,rmtab}
mount --bind /dev "$KNFSD/dev"
mount -t nfsd nfsd /proc/fs/nfsd
mount --rbind /proc "$KNFSD/proc"
chroot "$KNFSD" /sbin/rpcbind -w
chroot "$KNFSD" /usr/sbin/exportfs -ra
chroot "$KNFSD" /usr/sbin/rpc.mountd -p 20048 -N 4
chroot "$KNFSD" /usr/sbin/rpc.nfsd -N 4 2
echo "rdma 20049" >/proc/fs/nfsd/portlist
grep -q rdma /proc/fs/nfsd/portlist || die "no RDMA listener"
dd if=/dev/urandom of=/tmp/in bs=1M count="$MEGABYTES" status=none
cp /tmp/in "$KNFSD/export/out"
want=$(sum /tmp/in)

with_kernel() {
    step "the kernel's client mounts it, reads and writes $MEGABYTES MiB"
    mkdir /mnt/t
    mount -i -t nfs -o "addr=$GUEST,vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,mountaddr=$GUEST,nolock" \
        "$GUEST:/export" /mnt/t
    grep -q 'proto=rdma' /proc/mounts || die "not over RDMA"
    same "$(sum /mnt/t/out)" "$want"
    cp /tmp/in /mnt/t/in
    umount /mnt/t
    same "$(sum "$KNFSD/export/in")" "$want"
}

with_odafs() {
    # Paths of the URL are below the export.
    url() { echo "odafs://$GUEST:20049/export/$1?mountport=20048"; }
    step "odafs stat, ls"
    "$ODAFS" stat "$(url out)" >/tmp/stat || die "stat"
    tr -d , </tmp/stat | grep -q " $((MEGABYTES << 20)) bytes" || die "no size in: $(cat /tmp/stat)"
    for i in {1..300}; do echo "content $i" >"$KNFSD/export/file-$i"; done
    "$ODAFS" ls "$(url '')" >/tmp/list || die "ls"
    same "$(grep -c 'file-[0-9]*' /tmp/list)" 300
    step "odafs get of $MEGABYTES MiB, and of a few bytes"
    "$ODAFS" get "$(url out)" /tmp/back || die "get"
    same "$(sum /tmp/back)" "$want"
    "$ODAFS" get "$(url file-7)" /tmp/few || die "get of a short file"
    same "$(cat /tmp/few)" "content 7"
    step "odafs put of $MEGABYTES MiB, and of a few bytes"
    "$ODAFS" put /tmp/in "$(url in)" || die "put"
    same "$(sum "$KNFSD/export/in")" "$want"
    "$ODAFS" put /tmp/few "$(url few)" || die "put of a short file"
    same "$(cat "$KNFSD/export/few")" "content 7"
    step "odafs mkdir, mv, rm"
    "$ODAFS" mkdir "$(url d)" || die "mkdir"
    "$ODAFS" mv "$(url few)" "$(url d/few)" || die "mv"
    same "$(cat "$KNFSD/export/d/few")" "content 7"
    "$ODAFS" rm "$(url d/few)" || die "rm"
    [ ! -e "$KNFSD/export/d/few" ] || die "rm left it there"
    step "what is not there is refused"
    if "$ODAFS" get "$(url no-such-file)" /tmp/none 2>/tmp/error; then die "get of nothing went through"; fi
    grep -qi 'no such' /tmp/error || die "an odd error: $(cat /tmp/error)"
}

"with_$CLIENT"
step done
