# The tour, as it runs in the guest: everything that a user does on a mount, each step checked.
# Stops at the first step that goes wrong and says which. $ENTRIES and $MEGABYTES say how much, $MOUNT_OPTIONS how it is
# mounted, where TCP is not meant. $NAMELESS are the options of a mount for which nobody names a version, by mount.nfs.
# $LOCKS says that a mount by version 3 can lock; $CUT, for how many seconds to cut the network, which is $INTERFACE; $ACLS and
# $CLONES, that the server's file system has access control lists and makes clones.

step() { STEP=$*; printf '%6s  %s\n' "$SECONDS" "$STEP"; }
die() { echo "FAILED in \"$STEP\": $*"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
refused() { if "$@" 2>/dev/null; then die "went through: $*"; fi; }
sum() { local line; line=$(sha256sum <"$1") || die "cannot read $1"; echo "${line%% *}"; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
SECONDS=0

ENTRIES=${ENTRIES:-10000} MEGABYTES=${MEGABYTES:-100}
VERSION=${VERSION:-3} LOCKS=${LOCKS:-}
four=
case $VERSION in
2) usual=vers=2,proto=tcp,port=2049,mountproto=tcp,mountport=${MOUNT_PORT:-2049},mountaddr=$SERVER,nolock ;;
3)
    usual=vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=${MOUNT_PORT:-2049},mountaddr=$SERVER
    [ -n "$LOCKS" ] || usual=$usual,nolock
    ;;
*) usual=vers=$VERSION,proto=tcp,port=2049,clientaddr=${CLIENT:-} four=4 ;;
esac
MOUNT_OPTIONS="${MOUNT_OPTIONS:-addr=$SERVER,$usual,hard}"
attach() { mount -i -t nfs$four -o "$MOUNT_OPTIONS${3:+,$3}" "$SERVER:$1" "$2" || die "mount $1"; }
# The same server by version 3, without locks, over the same transport.
attach_three() {
    local options
    options=$(sed 's/vers=[^,]*/vers=3/; s/,clientaddr=[^,]*//' <<<"$MOUNT_OPTIONS")
    mount -i -t nfs -o "$options,mountproto=tcp,mountport=${MOUNT_PORT:-2049},mountaddr=$SERVER,nolock" "$SERVER:$1" "$2" ||
        die "mount $1 by version 3"
}

EXPORT=${EXPORT:-/}
if [ -n "${NAMELESS:-}" ]; then
    step "mount -o $NAMELESS, for which nobody names a version"
    mkdir /mnt/plain
    LD_LIBRARY_PATH=$KNFSD/lib/x86_64-linux-gnu:$KNFSD/usr/lib/x86_64-linux-gnu \
        "$KNFSD/sbin/mount.nfs" "$SERVER:$EXPORT" /mnt/plain -o "$NAMELESS" || die mount
    grep -q ' /mnt/plain nfs4 .*vers=4.2,.*proto=rdma' /proc/mounts || die "$(grep /mnt/plain /proc/mounts)"
    echo over RDMA >/mnt/plain/plain
    umount /mnt/plain
fi

step mount
mkdir /mnt/t /mnt/sub /mnt/other
attach "$EXPORT" /mnt/t
cd /mnt/t
grep -q "$SERVER" /proc/mounts
if [ -n "${NAMELESS:-}" ]; then same "$(<plain)" "over RDMA"; rm plain; fi

step create, write, append
echo one >file
same "$(<file)" one
echo two >>file
same "$(<file)" $'one\ntwo'
same "$(stat -c %s file)" 8
printf X | dd of=file bs=1 seek=3 conv=notrunc status=none
same "$(<file)" oneXtwo
refused bash -c 'set -o noclobber; : >file'

step truncate, and a hole that reads as zeros
truncate -s 5 file
same "$(<file)" oneXt
truncate -s 100000 file
same "$(stat -c %s file)" 100000
same "$(tail -c 99995 file | tr -d '\0' | wc -c)" 0
printf end | dd of=file bs=1 seek=200000 conv=notrunc status=none
same "$(stat -c %s file)" 200003
same "$(tail -c 3 file)" end
: >file
same "$(stat -c %s file)" 0

step mkdir, rmdir
mkdir d d/e
refused mkdir d
refused rmdir d
rmdir d/e
same "$(stat -c %F d)" directory
same "$(ls -A d)" ""

step symlink
ln -s file link
same "$(readlink link)" file
echo through >link
same "$(<file)" through
ln -s /no/such/place dangling
refused cat dangling
same "$(stat -c %F dangling)" "symbolic link"
long=$(printf 'a%.0s' {1..1000})
ln -s "$long" longlink
same "$(readlink longlink)" "$long"

step hard link
ln file hard
same "$(stat -c %h file)" 2
same "$(stat -c %i file)" "$(stat -c %i hard)"
echo shared >hard
same "$(<file)" shared
rm file
same "$(<hard)" shared
same "$(stat -c %h hard)" 1
refused ln d dlink

step rename, rename over, across directories
mv hard file
echo new >other
exec 5<file
mv other file
same "$(<file)" new
same "$(cat <&5)" shared
exec 5<&-
mkdir d/to
mv file d/to/file
same "$(<d/to/file)" new
refused test -e file
mv d/to d/moved
same "$(<d/moved/file)" new
refused mv d d/moved/d
mkdir full empty; : >full/x
refused mv -T empty full
mv -T full empty
same "$(ls empty)" x

step fifo, and devices kept as they are
mknod pipe p
same "$(stat -c %F pipe)" fifo
(echo through the pipe >pipe) &
same "$(<pipe)" "through the pipe"
wait
if mknod null c 1 3 2>/dev/null; then same "$(stat -c %t,%T null)" 1,3; fi

step chmod, chown, times
echo mode >m
chmod 640 m
same "$(stat -c %a m)" 640
chown 1234:5678 m
same "$(stat -c %u:%g m)" 1234:5678
chown 0:0 m
chmod 4755 m
same "$(stat -c %a m)" 4755
touch -d '2001-02-03 04:05:06.123456789Z' m
same "$(stat -c %Y m)" 981173106
nanoseconds=.123456789; [ "$VERSION" != 2 ] || nanoseconds=.123456000
same "$(stat -c %y m | cut -c 20-29)" "$nanoseconds"
touch -a -d @1000000000 m
same "$(stat -c %X,%Y m)" 1000000000,981173106
touch m
[ "$(stat -c %Y m)" -gt 1700000000 ] || die "touch did not set the server's time"

step another user is kept out, and let in
echo secret >s; chmod 600 s
chmod 755 .
refused setpriv --reuid 4321 --regid 4321 --clear-groups cat s
chmod 640 s; chgrp 777 s
refused setpriv --reuid 4321 --regid 4321 --clear-groups cat s
same "$(setpriv --reuid 4321 --regid 4321 --groups 777 cat s)" secret
mkdir shared; chmod 777 shared
setpriv --reuid 4321 --regid 4321 --clear-groups bash -c 'echo mine >shared/mine'
same "$(stat -c %u:%g shared/mine)" 4321:4321
# An owner may write on through a descriptor whose file turned read-only.
setpriv --reuid 4321 --regid 4321 --clear-groups bash -c 'exec 6>>shared/mine; chmod 400 shared/mine; echo more >&6; exec 6>&-'
same "$(<shared/mine)" $'mine\nmore'

step names of 255 bytes, odd names, deep paths
name=$(printf 'n%.0s' {1..255})
echo long >"$name"
same "$(<"$name")" long
refused bash -c ": >${name}n"
odd=$'sp ace\ttab\nnewline*?\\"\303\244\377'
echo odd >"$odd"
same "$(<"$odd")" odd
rm "$odd"
here=$PWD; deep=$(printf 'directory%.0s/' {1..60})
mkdir -p "$deep"
echo bottom >"$deep/file"
same "$(<"$deep/file")" bottom
cd "$deep"; same "$(<file)" bottom; cd "$here"
rm -r directory

step "$ENTRIES entries, listed completely and once"
# Most of them were put there before: making a tenth is enough of a test of making.
there=$((ENTRIES * 9 / 10))
made=()
for ((i = there; i < ENTRIES; i++)); do : >"many/entry-number-$i"; made+=("many/entry-number-$i"); done
cd /mnt; umount t; attach "$EXPORT" /mnt/t; cd t
ls -U many >"$OUT/list"
same "$(wc -l <"$OUT/list")" "$ENTRIES"
same "$(sort -u "$OUT/list" | wc -l)" "$ENTRIES"
same "$(sort -t- -k3n "$OUT/list" | tail -1)" "entry-number-$((ENTRIES - 1))"
same "$(ls -lU many | grep -c ' entry-number-')" "$ENTRIES"
rm "${made[@]}"
same "$(ls -U many | wc -l)" "$there"

step "$MEGABYTES MiB in and out"
dd if=/dev/urandom of=/mnt/big bs=1M count="$MEGABYTES" status=none
want=$(sum /mnt/big)
cp /mnt/big big
same "$(sum big)" "$want"
cd /mnt; umount t; attach "$EXPORT" /mnt/t; cd t
same "$(sum big)" "$want"
dd if=big of=/mnt/back bs=1M iflag=direct status=none
same "$(sum /mnt/back)" "$want"
echo "$want" >"$OUT/big.sha256"
rm /mnt/back

step statfs
same "$(df --output=target . | tail -1)" /mnt/t
[ "$(stat -f -c %b .)" -gt 0 ] || die "no blocks"
[ "$(stat -f -c %l .)" = 255 ] || die "name length $(stat -f -c %l .)"

step a subdirectory mounted, a second mount of the same file
attach "${EXPORT%/}/empty" /mnt/sub
same "$(ls /mnt/sub)" x
echo seen >/mnt/sub/y
same "$(<empty/y)" seen
umount /mnt/sub
refused mount -i -t nfs -o "$MOUNT_OPTIONS" "$SERVER:${EXPORT%/}/no-such-directory" /mnt/sub

if [ -n "${OTHER:-}" ]; then
    step the root, which lists all exports
    mkdir /mnt/root
    attach / /mnt/root
    same "$(ls -A /mnt/root | tr '\n' ' ')" "deep ${EXPORT#/} "
    same "$(cat "/mnt/root$OTHER/here")" elsewhere
    same "$(cat "/mnt/root$EXPORT/empty/y")" seen
    refused touch "/mnt/root$OTHER/new"
    refused mkdir /mnt/root/new
    refused ln "/mnt/root$EXPORT/empty/y" "/mnt/root$OTHER/linked"
    echo through the root >"/mnt/root$EXPORT/empty/y"
    same "$(<empty/y)" "through the root"
    # The exports below it are mounts of their own.
    umount "/mnt/root$OTHER" "/mnt/root$EXPORT"
    umount /mnt/root
    rmdir /mnt/root
fi

if [ -z "$four" ] && [ -n "${OTHER:-}" ]; then
    step a symbolic link mounted, if it stays in the export
    ln -s d/../empty inside
    ln -s ../deep/other outside
    attach "${EXPORT%/}/inside" /mnt/sub
    same "$(ls /mnt/sub)" "$(ls empty)"
    umount /mnt/sub
    refused mount -i -t nfs -o "$MOUNT_OPTIONS" "$SERVER:${EXPORT%/}/outside" /mnt/sub
    rm inside outside
fi

step a file removed while open
echo gone >g; exec 7<g; rm g
same "$(cat <&7)" gone
exec 7<&-
refused test -e g

if [ -n "${OTHER:-}" ]; then
    step access control lists
    stranger() { setpriv --reuid 4321 --regid 4321 --clear-groups "$@"; }
    echo listed >acl; chmod 640 acl; mkdir heir
    # Version 3 has lists by NFSACL, version 4 entries of its own.
    if [ "$VERSION" = 3 ]; then
        add_user() { setfacl -m "u:4321:$1" "$2"; }
        add_default() { setfacl -d -m u:4321:rwx "$1"; }
        user_entry() { getfacl -cpn "$1" | grep ^user:4321:; }
        clear() { setfacl -b acl; }
        reads=user:4321:r-- read=r
    else
        add_user() { nfs4_setfacl -a "A::4321:$1" "$2"; }
        add_default() { nfs4_setfacl -s A::OWNER@:RWX,A::GROUP@:RX,A::EVERYONE@:RX,A:fdi:OWNER@:RWX,A:fdi:GROUP@:RX,A:fdi:EVERYONE@:RX,A:fdi:4321:RWX "$1"; }
        user_entry() { nfs4_getfacl "$1" | grep ^A::4321:; }
        clear() { nfs4_setfacl -s A::OWNER@:RW,A::GROUP@:R acl; }
        reads=A::4321:r read=R
    fi
    refused stranger cat acl
    if add_user $read acl 2>/dev/null; then
        case $(user_entry acl) in "$reads"*) ;; *) die "told $(user_entry acl)" ;; esac
        same "$(stranger cat acl)" listed
        refused stranger bash -c 'echo no >>acl'
        clear
        same "$(stat -c %a acl)" 640
        refused stranger cat acl
        add_default heir
        same "$(stat -c %a heir)" 755
        # What a local program gets: the list in place of the umask. Before 4.2 clients of version 4 apply theirs.
        case $VERSION in 3 | 4.2) given="664 664 775" ;; *) given="600 600 700" ;; esac
        (umask 077; : >heir/file; set -o noclobber; : >heir/exclusive; mkdir heir/directory)
        same "$(stat -c %a heir/file heir/exclusive heir/directory | tr '\n' ' ')" "$given "
        user_entry heir/file >/dev/null || die "nothing was inherited"
        [ "$VERSION" != 3 ] || getfacl -cpn heir/directory | grep -q ^default:user:4321:rwx
    else
        [ -z "${ACLS:-}" ] || die "no lists, which the server's file system has: $(add_user $read acl 2>&1 || true)"
        echo "        no lists on the file system of the server, or in the kernel"
    fi
    rm -r acl heir
fi

if [ "$VERSION" = 4.2 ]; then
    step extended attributes
    command -v setfattr >/dev/null || die "no setfattr"
    : >attributes
    setfattr -n user.one -v first attributes
    setfattr -n user.two -v second attributes
    same "$(getfattr --only-values -n user.one attributes)" first
    same "$(getfattr attributes | grep -c ^user)" 2
    setfattr -x user.one attributes
    refused getfattr -n user.one attributes
    rm attributes

    step space set aside
    echo data >aside
    fallocate -l 100000 aside
    same "$(stat -c %s aside)" 100000
    same "$(head -c 4 aside)" data
    same "$(tail -c +6 aside | tr -d '\0' | wc -c)" 0
    fallocate -l 10 aside
    same "$(stat -c %s aside)" 100000
    rm aside

    step holes made and found
    command -v python3 >/dev/null || die "no python3"
    head -c 300000 /dev/urandom >/mnt/holes
    cp /mnt/holes holes
    sync holes
    fallocate -p -o 100000 -l 65000 holes
    dd if=/dev/zero of=/mnt/holes bs=1000 seek=100 count=65 conv=notrunc status=none
    same "$(stat -c %s holes)" 300000
    same "$(sum holes)" "$(sum /mnt/holes)"
    # The whole pages of what was punched.
    found=$(python3 -c 'import os
f = os.open("holes", os.O_RDONLY)
hole = os.lseek(f, 0, os.SEEK_HOLE)
print(hole, os.lseek(f, hole, os.SEEK_DATA), os.lseek(f, 200000, os.SEEK_HOLE))')
    same "$found" "102400 163840 300000"
    cp --sparse=always holes sparse
    same "$(sum sparse)" "$(sum /mnt/holes)"
    # Zeros that were written become holes, in blocks of the mount.
    block=$(stat -c %o sparse)
    { head -c "$block" /mnt/big; head -c "$block" /dev/zero; echo end; } >/mnt/holes
    cp --sparse=never /mnt/holes sparse
    sync sparse
    fallocate -d sparse
    same "$(python3 -c 'import os
f = os.open("sparse", os.O_RDONLY)
hole = os.lseek(f, 0, os.SEEK_HOLE)
print(hole, os.lseek(f, hole, os.SEEK_DATA))')" "$block $((2 * block))"
    same "$(sum sparse)" "$(sum /mnt/holes)"
    rm holes sparse /mnt/holes

    step copies within the server
    python3 -c 'import os
source, target = os.open("big", os.O_RDONLY), os.open("copied", os.O_RDWR | os.O_CREAT)
while os.copy_file_range(source, target, 1 << 30): pass
os.lseek(source, 5000, os.SEEK_SET)
assert os.copy_file_range(source, target, 10000, offset_dst=1000) == 10000'
    cp /mnt/big expected
    dd if=/mnt/big of=expected bs=1000 skip=5 seek=1 count=10 conv=notrunc status=none
    same "$(sum copied)" "$(sum expected)"
    cp --reflink=auto big copied
    same "$(sum copied)" "$want"
    # The server has made them: nothing came by here.
    copies() { sed -n '/ mounted on .mnt.t /,/^device/s/^\s*COPY: \([0-9]*\) .*/\1/p' /proc/self/mountstats; }
    asked=$(copies)
    [ "$asked" -ge 2 ] || die "COPY was asked for $asked times"
    # A long one goes on after the reply, and is told of when it is over.
    truncate -s 100M long
    dd if=/mnt/big of=long bs=1M seek=90 conv=notrunc count=10 status=none
    python3 -c 'import os
source, target = os.open("long", os.O_RDONLY), os.open("longer", os.O_RDWR | os.O_CREAT)
assert os.copy_file_range(source, target, 100 << 20) == 100 << 20'
    same "$(copies)" $((asked + 1))
    same "$(sum longer)" "$(sum long)"
    rm long longer
    if cp --reflink=always big cloned 2>/dev/null; then
        same "$(sum cloned)" "$want"
        printf X | dd of=cloned conv=notrunc status=none
        same "$(sum big)" "$want"
    else
        [ -z "${CLONES:-}" ] || die "no clones, which the server's file system has: $(cp --reflink=always big cloned 2>&1 || true)"
        echo "        no clones on the file system of the server"
    fi
    rm -f copied expected cloned
fi

if [ -n "$four$LOCKS" ]; then
    step locks
    : >locked
    exec 8<>locked
    flock -n 8
    refused flock -n locked true
    flock -u 8
    flock -n locked true
fi
if [ -n "$LOCKS" ]; then
    step locks of another mount by version 3
    mkdir /mnt/four
    attach "$EXPORT" /mnt/other nosharecache
    mount -i -t nfs4 -o "addr=$SERVER,vers=4.2,proto=tcp,port=2049,hard" "$SERVER:$EXPORT" /mnt/four
    for other in /mnt/other /mnt/four; do
        flock -n 8
        refused flock -n $other/locked true
        flock $other/locked true &
        waiter=$!
        sleep 4
        kill -0 $waiter || die "it did not wait for version 3"
        flock -u 8
        wait $waiter
        exec 9<>$other/locked
        flock -n 9
        refused flock -n locked true
        flock locked true &
        waiter=$!
        sleep 4
        kill -0 $waiter || die "it did not wait for $other"
        flock -u 9
        wait $waiter
        exec 9<&-
    done
    umount /mnt/other

    step a client of version 3 that says that it has started anew
    flock -n 8
    refused flock -n /mnt/four/locked true
    says_it_started_anew
    for i in {1..60}; do
        ! flock -n /mnt/four/locked true || break
        [ "$i" != 60 ] || die "its locks are still there"
        sleep 0.5
    done
    flock -u 8
    # It is held while the server starts anew.
    flock -n 8
elif [ -n "$four" ]; then
    step a lock for which another waits
    attach "$EXPORT" /mnt/other nosharecache
    flock -n 8
    flock /mnt/other/locked true &
    waiter=$!
    sleep 4
    kill -0 $waiter || die "it did not wait"
    flock -u 8
    wait $waiter
    # A client that is told when the lock is free asks no more than twice. Minor version 0 has no callbacks: there the client
    # asks from time to time.
    asked=$(sed -n '/ mounted on .mnt.other /,/^device/s/^\s*LOCK: \([0-9]*\) .*/\1/p' /proc/self/mountstats)
    case $VERSION in
    4.0) [ "$asked" -ge 2 ] || die "asked $asked times" ;;
    *) same "$asked" 2 ;;
    esac
    umount /mnt/other
    # It is held while the server starts anew.
    flock -n 8
fi

if [ -n "${CUT:-}" ]; then
    step "the network cut for $CUT s, which is longer than a lease"
    : >cut
    exec 6<>cut
    flock -n 6
    ip link set "$INTERFACE" down
    sleep "$CUT"
    ip link set "$INTERFACE" up
    echo kept >&6
    # To the server another minor version is another client.
    attach "$EXPORT" /mnt/other vers=4.1
    same "$(</mnt/other/cut)" kept
    refused flock -n /mnt/other/cut true
    umount /mnt/other
    exec 6>&-
    rm cut
fi

# Who is not called back gets no delegations.
delegates=
case $VERSION in
4.1) delegates=yes another=4.2 ;;
4.2) delegates=yes another=4.1 ;;
esac
calls() { sed -n "/ mounted on .mnt.t /,/^device/s/^\s*$1: \([0-9]*\) .*/\1/p" /proc/self/mountstats; }
# What another mount writes is read here without an OPEN, until it is written to again.
delegated() {
    local file=$1 theirs=$2 opens returns
    echo one >"$theirs/$file"
    same "$(<"$file")" one
    opens=$(calls OPEN) returns=$(calls DELEGRETURN)
    for i in {1..5}; do same "$(<"$file")" one; done
    same "$(calls OPEN)" "$opens"
    echo two >"$theirs/$file"
    same "$(<"$file")" two
    [ "$(calls DELEGRETURN)" -gt "$returns" ] || die "nothing was returned"
    # What is written under a delegation, and is not on the server yet, another mount reads.
    exec 7<>"$file-alone"
    returns=$(calls DELEGRETURN)
    echo early >&7
    same "$(<"$theirs/$file-alone")" early
    [ "$(calls DELEGRETURN)" -gt "$returns" ] || die "nothing was returned"
    exec 7>&-
    rm "$file-alone"
}
if [ -n "$delegates" ]; then
    step a delegation that another client takes back
    # To the server another minor version is another client.
    attach "$EXPORT" /mnt/other "vers=$another"
    delegated by-another /mnt/other
    umount /mnt/other

    step a delegation that version 3 takes back
    attach_three "$EXPORT" /mnt/other
    delegated by-three /mnt/other
    echo one >/mnt/other/kept
    umount /mnt/other
    # This one is held while the server starts anew.
    exec 9<kept
    same "$(<kept)" one
fi

step the server killed and started again in mid-write
if [ -e "$OUT/can-restart" ]; then
    # All of it goes on until the server is there again, so that it is killed in the middle of it.
    write_on() {
        while true; do
            dd if=/mnt/big of=restarted bs=256K conv=fsync status=none || return 1
            [ ! -e "$OUT/restarted" ] || return 0
        done
    }
    write_on &
    writer=$!
    : >"$OUT/restart-please"
    # What the guest does meanwhile must neither fail nor be done twice.
    repeated=0 i=0
    : >turns
    until [ -e "$OUT/restarted" ] && [ $i -ge 200 ]; do
        : $((++i))
        echo "$i" >>journal
        [ -z "$four$LOCKS" ] || [ $((i % 4)) != 0 ] || flock -n turns true
        # The one call whose reply was lost with the server is served twice, and then finds its own work.
        mkdir "restart-$i" || { [ -d "restart-$i" ] && same $((++repeated)) 1; }
    done
    wait $writer || die "the write failed"
    same "$(sum restarted)" "$want"
    same "$(wc -l <journal)" $i
    same "$(ls -d restart-* | wc -l)" $i
    rmdir restart-*
    rm turns
    same "$(<m)" mode
fi
if [ -n "$LOCKS" ]; then
    # Both wait for version 3's client to reclaim.
    refused flock -n /mnt/four/locked true
    echo mine >&8
    exec 8>&-
    same "$(flock -n /mnt/four/locked cat /mnt/four/locked)" mine
    umount /mnt/four
    rm locked
elif [ -n "$four" ]; then
    # A lock that was lost would fail what goes through the descriptor.
    echo mine >&8
    refused flock -n locked true
    exec 8>&-
    same "$(flock -n locked cat locked)" mine
    rm locked
fi
if [ -n "$delegates" ]; then
    opens=$(calls OPEN)
    same "$(<kept)" one
    same "$(calls OPEN)" "$opens"
    attach "$EXPORT" /mnt/other "vers=$another"
    echo two >/mnt/other/kept
    umount /mnt/other
    # If the server did not know of the delegation, it would not have recalled it.
    same "$(<kept)" two
    exec 9<&-
    rm by-another by-three kept
fi

step remove everything
rm -r d empty link dangling longlink pipe m s shared "$name"
rm -f null journal # Which are not there where no device may be made, or no server restarted.
same "$(ls -A | grep -v -x -e big -e restarted -e many | tr '\n' ' ')" ""
cd /mnt; umount t

step done
