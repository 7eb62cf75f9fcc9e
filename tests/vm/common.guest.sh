# Sourced in the guest by the stages.
#
#   step WORDS, die WORDS           says where a stage is; ends it
#   same GOT WANTED, sum FILE       compares; prints a checksum
#   linux_serves                    Linux' own NFS server on $KNFSD/export: RDMA on port 20049, MOUNT by TCP on port 20048
#   linux_mounts SERVER:PATH DIRECTORY PORT MOUNTPORT    Linux' client, over RDMA

step() { STEP=$*; printf '%6s  %s\n' "$SECONDS" "$STEP"; }
die() { echo "FAILED in \"$STEP\": $*"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
sum() { local line; line=$(sha256sum <"$1") || die "cannot read $1"; echo "${line%% *}"; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
SECONDS=0

linux_serves() {
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
    # The daemons end with the stage, this would not.
    trap 'echo 0 >/proc/fs/nfsd/threads' EXIT
    echo "rdma 20049" >/proc/fs/nfsd/portlist
    grep -q rdma /proc/fs/nfsd/portlist || die "no RDMA listener"
}

# What mount(8) is told.
linux_options() { echo "addr=$1,vers=3,proto=rdma,port=$2,mountproto=tcp,mountport=$3,mountaddr=$1,nolock,hard"; }

linux_mounts() {
    mkdir -p "$2"
    mount -i -t nfs -o "$(linux_options "${1%%:*}" "$3" "$4")" "$1" "$2" || die "mount $1"
    grep -q " $2 .*proto=rdma" /proc/mounts || die "not over RDMA"
}
