# Sourced in the guest by the stages.
#
#   step WORDS, die WORDS           says where a stage is; ends it
#   same GOT WANTED, sum FILE       compares; prints a checksum
#   linux_serves [4]                Linux' own NFS server on $KNFSD/export, of version 3, or of 4 too, where that is the
#                                   root: RDMA on port 20049, MOUNT by TCP on port 20048
#   linux_mounts SERVER:PATH DIRECTORY PORT MOUNTPORT [VERSION]    Linux' client, over RDMA, by version 3 or another

step() { STEP=$*; printf '%6s  %s\n' "$SECONDS" "$STEP"; }
die() { echo "FAILED in \"$STEP\": $*"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
sum() { local line; line=$(sha256sum <"$1") || die "cannot read $1"; echo "${line%% *}"; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
SECONDS=0

linux_serves() {
    local without=(-N 4) exports=(-ra)
    # The directories above the export cannot be shown to clients of version 4, so it is their root.
    [ "${1:-}" != 4 ] || without=() exports=(-i -o rw,no_root_squash,no_subtree_check,insecure,fsid=0,async "*:/export")
    step "Linux serves over RDMA"
    for directory in run tmp export var/lib/nfs; do mount -t tmpfs tmp "$KNFSD/$directory"; done
    mkdir "$KNFSD"/var/lib/nfs/{sm,v4recovery} "$KNFSD/run/rpcbind"
    touch "$KNFSD"/var/lib/nfs/{etab,rmtab}
    mount --bind /dev "$KNFSD/dev"
    mount -t nfsd nfsd /proc/fs/nfsd
    mount --rbind /proc "$KNFSD/proc"
    chroot "$KNFSD" /sbin/rpcbind -w
    chroot "$KNFSD" /usr/sbin/exportfs "${exports[@]}"
    chroot "$KNFSD" /usr/sbin/rpc.mountd -p 20048 "${without[@]}"
    chroot "$KNFSD" /usr/sbin/rpc.nfsd "${without[@]}" 2
    # The daemons end with the stage, this would not.
    trap 'echo 0 >/proc/fs/nfsd/threads' EXIT
    echo "rdma 20049" >/proc/fs/nfsd/portlist
    grep -q rdma /proc/fs/nfsd/portlist || die "no RDMA listener"
    # Or each OPEN waits for 90 s.
    [ "${1:-}" != 4 ] || echo Y >/proc/fs/nfsd/v4_end_grace
}

# What mount(8) is told: address, ports of RDMA and MOUNT, version.
linux_options() {
    case ${4:-3} in
        3) echo "addr=$1,vers=3,proto=rdma,port=$2,mountproto=tcp,mountport=$3,mountaddr=$1,nolock,hard" ;;
        *) echo "addr=$1,vers=$4,proto=rdma,port=$2,clientaddr=$1,hard" ;;
    esac
}

linux_mounts() {
    local four=
    [ "${5:-3}" = 3 ] || four=4
    mkdir -p "$2"
    mount -i -t nfs$four -o "$(linux_options "${1%%:*}" "$3" "$4" "${5:-3}")" "$1" "$2" || die "mount $1"
    grep -q " $2 .*proto=rdma" /proc/mounts || die "not over RDMA"
}
