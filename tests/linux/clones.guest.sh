# Clones, as they run in the guest: on each of the exports $STORES, of which tmpfs makes none. Those of $ATTRIBUTES have
# extended attributes.

step() { STEP=$*; printf '%6s  %s\n' "$SECONDS" "$STEP"; }
die() { echo "FAILED in \"$STEP\": $*"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
refused() { if "$@" 2>/dev/null; then die "went through: $*"; fi; }
sum() { local line; line=$(sha256sum <"$1") || die "cannot read $1"; echo "${line%% *}"; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
SECONDS=0

attach() {
    mount -i -t "$1" -o "addr=$SERVER,vers=$2,proto=tcp,port=2049,hard,$5" "$SERVER:$3" "$4" || die "mount $3 by version $2"
}
calls() { sed -n "/ mounted on .mnt.t /,/^device/s/^\s*$1: \([0-9]*\) .*/\1/p" /proc/self/mountstats; }
# clone SOURCE FIRST LENGTH TARGET FIRST: by FICLONERANGE; prints `cloned`, or the name of the error.
clone() { python3 /run/clone.py "$@"; }
cat >/run/clone.py <<'PYTHON'
import errno, fcntl, os, struct, sys
source, first, length, target, to = sys.argv[1:6]
flags = os.O_RDONLY if len(sys.argv) > 6 else os.O_RDWR
read, write = os.open(source, os.O_RDONLY), os.open(target, flags)
try:
    fcntl.ioctl(write, 0x4020940D, struct.pack("=qQQQ", read, int(first), int(length), int(to)))
    print("cloned")
except OSError as error:
    print(errno.errorcode[error.errno])
PYTHON

# put TEXT OFFSET FILE...
put() {
    local text=$1 offset=$2; shift 2
    for file in "$@"; do printf %s "$text" | dd of="$file" bs=1 seek="$offset" conv=notrunc status=none; done
}

# The same files by three versions: three clients, whose caches know nothing of each other.
everywhere() {
    local mount
    for mount in t four three; do
        [ "$(sum "/mnt/$mount/$1")" = "$(sum "$2")" ] ||
            die "$1 by mount $mount, in line ${BASH_LINENO[0]}: $(cmp -l "/mnt/$mount/$1" "$2" | awk 'NR == 1 { at = $1 } END { print NR, "bytes from", at, "to", $1 }')"
    done
}

MEGABYTES=6
clones() {
    local store=$1 cloned block=65536 i
    step "$store: a clone has the bytes of its source"
    dd if=/dev/urandom of=/mnt/big bs=1M count=$MEGABYTES status=none
    # It ends within a block.
    printf end >>/mnt/big
    cp /mnt/big source
    cp --reflink=always source clone
    same "$(calls CLONE)" 1
    same "$(calls COPY)" 0
    everywhere clone /mnt/big

    step "$store: what is written to a clone is not in its source, and the other way round"
    cp /mnt/big /mnt/changed
    put 'in the clone' 5000000 clone /mnt/changed
    everywhere source /mnt/big
    everywhere clone /mnt/changed
    put 'in the source' 5000000 /mnt/three/source /mnt/big
    everywhere clone /mnt/changed
    everywhere source /mnt/big
    truncate -s 10000 source
    everywhere clone /mnt/changed
    truncate -s 10000 /mnt/big
    everywhere source /mnt/big
    cp --reflink=always clone source
    everywhere source /mnt/changed

    step "$store: a clone of what is not on the server yet, of this client and of another"
    exec 7<>source
    printf 'just now' >&7
    put 'just now' 0 /mnt/changed
    cp --reflink=always source clone
    exec 7>&-
    everywhere clone /mnt/changed
    # Under a delegation: at its beginning, and behind its end.
    dd if=/mnt/changed of=/mnt/four/theirs bs=1M status=none
    exec 7<>/mnt/four/theirs
    printf 'and now' >&7
    put 'and now' 0 /mnt/changed
    put 'and more' "$(stat -c %s /mnt/changed)" /proc/self/fd/7 /mnt/changed
    cp --reflink=always theirs clone
    exec 7>&-
    everywhere clone /mnt/changed
    cp --reflink=always clone source
    rm theirs

    step "$store: a part of a file, over what others have in their caches"
    dd if=/dev/urandom of=/mnt/target bs=1M count=2 status=none
    cp /mnt/target target
    everywhere target /mnt/target
    cloned=$(calls CLONE)
    same "$(clone source $((3 * block)) $((4 * block)) target $((5 * block)))" cloned
    same "$(calls CLONE)" $((cloned + 1))
    dd if=/mnt/changed of=/mnt/target bs=$block skip=3 count=4 seek=5 conv=notrunc status=none
    everywhere target /mnt/target
    # Within a file, and up to the end of the source, which is behind the end of the target then.
    same "$(clone target 0 $block target $((10 * block)))" cloned
    dd if=/mnt/target of=/mnt/target bs=$block count=1 seek=10 conv=notrunc status=none
    same "$(clone source $((MEGABYTES * (1 << 20) - block)) 0 target $((40 * block)))" cloned
    dd if=/mnt/changed of=/mnt/target bs=$block skip=$((MEGABYTES * 16 - 1)) seek=40 conv=notrunc status=none
    everywhere target /mnt/target

    step "$store: what is no clone"
    same "$(clone source 1000 $block target 0)" EINVAL
    same "$(clone source 0 1000 target 0)" EINVAL
    same "$(clone source 0 $((1 << 30)) target 0)" EINVAL
    same "$(clone target 0 $((2 * block)) target $block)" EINVAL
    same "$(clone source 0 $block target 0 readonly)" EBADF
    everywhere target /mnt/target

    step "$store: more clones than would have room as copies"
    dd if=/dev/urandom of=/mnt/big bs=1M count=40 status=none
    cp /mnt/big large
    for i in {1..10}; do cp --reflink=always large "large-$i"; done
    everywhere large-10 /mnt/big
    rm large-?
}

none() {
    step "$1: a file system without clones says so, and copies"
    dd if=/dev/urandom of=/mnt/big bs=1M count=10 status=none
    cp /mnt/big source
    : >target
    refused cp --reflink=always source clone
    # Python has but this name for it.
    same "$(clone source 0 0 target 0)" ENOTSUP
    same "$(stat -c %s target)" 0
    cp --reflink=auto source clone
    [ "$(calls COPY)" -gt 0 ] || die "the server did not make the copy"
    everywhere clone /mnt/big
}

for store in $STORES; do
    step "$store"
    mkdir -p /mnt/{t,four,three}
    attach nfs4 4.2 "/$store" /mnt/t "clientaddr=$CLIENT"
    attach nfs4 4.1 "/$store" /mnt/four "clientaddr=$CLIENT"
    attach nfs 3 "/$store" /mnt/three "nolock,mountproto=tcp,mountport=2049,mountaddr=$SERVER"
    cd /mnt/t
    case $store in tmpfs) none "$store" ;; *) clones "$store" ;; esac

    step "$store: holes made and found"
    head -c 400000 /dev/urandom >/mnt/holes
    cp /mnt/holes holes
    sync holes
    fallocate -p -o 300000 -l 50000 holes
    dd if=/dev/zero of=/mnt/holes bs=50000 seek=6 count=1 conv=notrunc status=none
    everywhere holes /mnt/holes
    # The whole pages of it.
    same "$(python3 -c 'import os
f = os.open("holes", os.O_RDONLY)
hole = os.lseek(f, 0, os.SEEK_HOLE)
print(hole, os.lseek(f, hole, os.SEEK_DATA))')" "303104 348160"

    step "$store: extended attributes"
    if setfattr -n user.one -v first holes 2>/dev/null; then
        same "$(getfattr --only-values -n user.one holes)" first
        setfattr -x user.one holes
        refused getfattr -n user.one holes
    else
        case "$ATTRIBUTES " in *" $store "*) die "none, which the file system has: $(setfattr -n user.one -v first holes 2>&1 || true)" ;; esac
        echo "        none on the file system of the server"
    fi

    sha256sum ./* >"$OUT/$store.sums"
    cd /mnt
    umount t four three
done
step done
