# What two clients do, as it runs in both guests at once. $ME is `one` or `two`; only `two` can lock by version 3.

# With the time, which a guest has from its host.
say() { local at=$EPOCHREALTIME; printf '%(%T)T.%s  %s\n' "${at%[.,]*}" "${at: -6:1}" "$*"; }
step() { STEP=$*; say "$STEP"; }
die() { say "FAILED in \"$STEP\": $*"; touch "$SHARED/over"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
refused() { if "$@" 2>/dev/null; then die "went through: $*"; fi; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
export PATH=$PATH:/usr/local/bin
export LD_LIBRARY_PATH=$UML_CACHE/lib/x86_64-linux-gnu:$UML_CACHE/usr/lib/x86_64-linux-gnu
mkdir /mnt/shared
mount -t hostfs -o "$SHARED" none /mnt/shared
SHARED=/mnt/shared

other=two; [ "$ME" = one ] || other=one
# Waits until something is so; the other may have failed meanwhile. Five minutes, far longer than anything takes.
until_so() {
    local i
    for ((i = 0; i < 3000; i++)); do
        ! "$@" 2>/dev/null || return 0
        [ ! -e "$SHARED/over" ] || { say "waits no more in \"$STEP\": $*"; exit 1; }
        sleep 0.1
    done
    die "it never came to: $*"
}
# Both are here.
MEETING=0
meet() {
    : $((++MEETING))
    touch "$SHARED/$MEETING-$ME"
    until_so test -e "$SHARED/$MEETING-$other"
}
# This client's network is cut, and mended, on this side: the guest's driver gives up for good a device that the other side
# puts down.
cut() { ip link set vec0 down; }
mend() { ip link set vec0 up; }
# A program that locks ranges as it is told (locker.py), beside this script: `ask "LINE" ANSWER`. Whoever asks judges how it
# ends.
mkfifo /run/tell /run/hear
locker() {
    (trap - ERR; cd /; exec python3 "$HERE/locker.py" </run/tell >/run/hear) & locker=$!
    exec 5>/run/tell 6</run/hear
}
ask() {
    echo "$1" >&5
    read -r -u 6 line || line="nothing"
    same "$line" "$2"
}
says() { local line; echo "$1" >&5; read -r -u 6 line && [ "$line" = "$2" ]; }
locker_killed() {
    kill -KILL $locker
    wait $locker 2>/dev/null || true
    exec 5>&- 6<&-
    locker
}
# Reads need no OPEN. Linux counts those of a file that it knows as OPEN_NOATTR.
is_delegated() {
    local before; before=$(opens)
    : "$(<"$1")"
    [ "$(opens)" = "$before" ]
}
opens() { echo $(($(calls OPEN) + $(calls OPEN_NOATTR))); }
rows() { [ "$(sqlite3 $database '.timeout 300000' 'select count(*) from t')" = "$1" ]; }
has() { [ "$(<"$1")" = "$2" ]; }
calls() { sed -n "/ mounted on .mnt.t /,/^device/s/^\s*$1: \([0-9]*\) .*/\1/p" /proc/self/mountstats; }

step "a mount for which nobody names a version, and others"
# By its name Linux tells the server who it is.
hostname "client-$ME"
mkdir /mnt/t
nconnect=; [ "$ME" = one ] || nconnect=,nconnect=4
"$UML_CACHE/sbin/mount.nfs" "$SERVER:/" /mnt/t -o "hard$nconnect" || die "mount"
cd /mnt/t
grep -q " /mnt/t nfs4 .*vers=4\.2" /proc/mounts || die "$(grep /mnt/t /proc/mounts)"
# As many connections as were asked for.
[ "$ME" = one ] || same "$(sed -n '/ mounted on .mnt.t /,/^device/p' /proc/self/mountstats | grep -c xprt:)" 4
# To the server each minor version is another client.
MOUNTS="t minor1 minor0"
attach() {
    mkdir "/mnt/$1"
    mount -i -t "$2" -o "addr=$SERVER,vers=$3,proto=tcp,port=2049,hard,$4" "$SERVER:/" "/mnt/$1" || die "mount version $3"
}
attach minor1 nfs4 4.1 "clientaddr=$CLIENT"
attach minor0 nfs4 4.0 "clientaddr=$CLIENT"
[ "$ME" = one ] || attach three nfs 3 "mountproto=tcp,mountport=2049,mountaddr=$SERVER"
locker

step "40 MiB, written by one and read by the other"
[ "$ME" = one ] || { dd if=/dev/urandom of=big bs=1M count=40 status=none; sync big; sha256sum big >sum; }
meet
sha256sum -c --quiet sum
meet

step "$STEPS ranges at random (seed $SEED), locked, tested and given back by versions 4.2 and 3"
[ "$ME" = two ] || : >ranges
meet
if [ "$ME" = one ]; then mine=/mnt/t; else mine=/mnt/three; fi
ask "open ranges $mine/ranges" opened
meet
ask "walk ranges $ME $SHARED $SEED $STEPS" walked
meet

# `holder` has two ranges, one to read, and `waiter` waits for what overlaps both.
waits_for_both() {
    local holder=$1 waiter=$2
    if [ "$ME" = "$holder" ]; then
        ask "try ranges write 0 10" granted
        ask "try ranges read 20 10" granted
        meet
        meet
        ask "unlock ranges 0 10" unlocked
        meet
        meet
        ask "unlock ranges 20 10" unlocked
        meet
    else
        meet
        ask "try ranges write 9 1" refused
        ask "try ranges write 10 10" granted
        ask "try ranges read 29 20" granted
        ask "unlock ranges 10 40" unlocked
        ask "wait ranges write 5 20" waiting
        sleep 1
        ask "waits ranges" waiting
        meet
        meet
        sleep 1
        ask "waits ranges" waiting
        meet
        ask "join ranges" granted
        ask "unlock ranges 0 0" unlocked
        meet
    fi
}
step "version 4.2 waits for two ranges that version 3 gives back one after the other"
waits_for_both two one
step "version 3 waits for two ranges that version 4.2 gives back one after the other"
waits_for_both one two

# Who waits and is killed stands in nobody's way.
gives_up() {
    local holder=$1 waiter=$2
    if [ "$ME" = "$holder" ]; then
        ask "try ranges write 0 10" granted
        meet
        meet
        ask "unlock ranges 0 10" unlocked
        until_so says "try ranges write 0 10" granted
        ask "unlock ranges 0 0" unlocked
        meet
    else
        meet
        ask "wait ranges write 5 10" waiting
        sleep 0.5
        ask "waits ranges" waiting
        locker_killed
        meet
        meet
        ask "open ranges $mine/ranges" opened
    fi
}
step "a program that waits is killed, by version 3 and by version 4.2"
gives_up one two
gives_up two one
meet
ask "close ranges" closed

step "whole files, by flock"
[ "$ME" = two ] || : >locked
meet
exec 8<>locked
for turn in one two; do
    [ "$ME" != "$turn" ] || flock -n 8
    meet
    [ "$ME" = "$turn" ] || refused flock -n 8
    meet
    flock -u 8
    meet
done

step "a delegation that the other takes back"
[ "$ME" = one ] || echo first >kept
meet
if [ "$ME" = one ]; then
    until_so is_delegated kept
    same "$(<kept)" first
    returns=$(calls DELEGRETURN)
fi
meet
[ "$ME" = one ] || echo second >kept
meet
if [ "$ME" = one ]; then
    same "$(<kept)" second
    [ "$(calls DELEGRETURN)" -gt "$returns" ] || die "nothing was returned"
fi
meet

step "the network cut for longer than a lease: what nobody wants is kept, what another wants is lost"
for mount in $MOUNTS; do : >"/mnt/$mount/cut-$ME-$mount"; done
# A file of its own: what was taken back is not delegated again at once.
[ "$ME" = one ] || echo second >lost
meet
[ "$ME" = two ] || until_so is_delegated lost
# What somebody else has open is not delegated, so the server knows of each lock.
for mount in $MOUNTS; do ask "open other-$mount $PWD/cut-$other-$mount" opened; done
meet
for mount in $MOUNTS; do
    ask "open $mount /mnt/$mount/cut-$ME-$mount" opened
    ask "try $mount write 0 10" granted
done
meet
cut
say "cut"
touch "$SHARED/cut-$ME"
if [ "$ME" = two ]; then
    # The lease of `one` lasts from the last that the server heard of it.
    until_so test -e "$SHARED/cut-one"
    sleep $((LEASE + 2))
    mend
    for mount in $MOUNTS; do ask "write $mount kept" written; done
    for mount in $MOUNTS; do
        ask "open mine /mnt/three/cut-two-$mount" opened
        ask "try mine write 5 1" refused
        ask "close mine" closed
    done
    # By each version, one of them 3, what the other has, which cannot say anything.
    for mount in t three minor0; do
        theirs=cut-one-$mount; [ "$mount" != three ] || theirs=cut-one-minor1
        ask "open $theirs /mnt/$mount/$theirs" opened
        # Not at once if the server itself had to wait for a processor: its leases last longer then.
        until_so says "try $theirs write 0 10" granted
    done
    echo third >lost
    same "$(<lost)" third
    touch "$SHARED/taken"
else
    until_so test -e "$SHARED/taken"
    mend
    # A write that its lock does not cover any more must not reach the file.
    for mount in $MOUNTS; do ask "write $mount never" EIO; done
    # It learns that its delegation is gone when it next talks to the server.
    until_so has lost third
fi
meet
for mount in $MOUNTS; do
    same "$(<"cut-one-$mount")" ""
    same "$(<"cut-two-$mount")" kept
    for file in "$mount" "other-$mount"; do ask "close $file" closed; done
    [ "$ME" = one ] || ask "close cut-one-$mount" closed
done
meet

step "the server killed while both open files, hold locks, wait for some, and write, by each version"
every=$MOUNTS; [ "$ME" = one ] || every="$MOUNTS three"
for mount in $every; do
    : >"/mnt/$mount/kill-$ME-$mount"
    ask "open $mount /mnt/$mount/kill-$ME-$mount" opened
    ask "try $mount write 0 50" granted
done
meet
# Each waits for what the other holds by another version.
if [ "$ME" = one ]; then theirs=/mnt/t/kill-two-three; else theirs=/mnt/three/kill-one-t; fi
ask "open theirs $theirs" opened
ask "wait theirs write 10 10" waiting
dd if=/dev/urandom of=/mnt/mine bs=1M count=8 status=none
meet
# All of it goes on until the server is there again, so that it is killed in the middle of it.
write_on() {
    while true; do
        dd if=/mnt/mine of="$1" bs=256K conv=fsync status=none || return 1
        [ ! -e "$SHARED/killed" ] || return 0
    done
}
writers=()
for mount in $every; do write_on "/mnt/$mount/big-$ME-$mount" & writers+=($!); done
[ "$ME" = two ] || { sleep 0.3; touch "$SHARED/kill"; }
i=0
until [ -e "$SHARED/killed" ] && [ $i -ge 50 ]; do
    : $((++i))
    for mount in $every; do echo "$i" >>"/mnt/$mount/journal-$ME-$mount"; done
done
for writer in "${writers[@]}"; do wait "$writer" || die "a write failed"; done
echo $i >"$SHARED/turns-$ME"
meet
turns=$(<"$SHARED/turns-$other")
for mount in $every; do cmp /mnt/mine "big-$ME-$mount"; done
for file in journal-"$other"-*; do same "$(wc -l <"$file")" "$turns"; done
step "after that all have their locks still"
# One that was lost would fail the write.
ask "waits theirs" waiting
for file in kill-"$other"-*; do
    ask "open tried $PWD/$file" opened
    ask "try tried read 49 1" refused
    ask "try tried read 50 1" granted
    ask "close tried" closed
done
for mount in $every; do ask "write $mount mine" written; done
meet
step "and get those for which they wait"
for mount in $every; do ask "close $mount" closed; done
ask "join theirs" granted
ask "close theirs" closed
meet

step "a database that both write"
[ "$ME" = two ] || sqlite3 base.db 'create table t(who text, n integer)'
meet
for n in {1..15}; do echo ".timeout 300000
insert into t values('$ME', $n);" | sqlite3 base.db || die "insert $n"; done
meet
same "$(sqlite3 base.db '.timeout 300000' 'select count(*), count(distinct n) from t')" "30|15"
same "$(sqlite3 base.db '.timeout 300000' 'pragma integrity_check')" ok
meet

step "a database that both write, by versions 4.2 and 3, by turns"
database=base.db; [ "$ME" = one ] || database=/mnt/three/base.db
for n in {16..20}; do
    # Each looks at what the other has just written.
    if [ "$ME" = one ]; then written=$((2 * n - 2)); else written=$((2 * n - 1)); fi
    until_so rows "$written"
    echo ".timeout 300000
insert into t values('$ME', $n);" | sqlite3 $database || die "insert $n"
done
meet
same "$(sqlite3 $database 'select count(*), count(distinct n) from t')" "40|20"
same "$(sqlite3 $database 'pragma integrity_check')" ok
meet

step "a repository that both push to"
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=$ME GIT_AUTHOR_EMAIL=$ME@example.org GIT_COMMITTER_NAME=$ME GIT_COMMITTER_EMAIL=$ME@example.org
export HOME=/run
git config --global safe.directory '*'
[ "$ME" = two ] || git init -q --bare -b main origin.git
meet
git clone -q origin.git "work-$ME" 2>/dev/null
cd "work-$ME"
git checkout -q -b "$ME"
for i in {1..2}; do
    for j in {1..10}; do echo "$i" >"$ME-$j"; done
    git add -A
    git commit -q -m "$i"
    git push -q origin "$ME"
done
meet
git fetch -q
same "$(git rev-list --count "origin/$other")" 2
git merge -q --allow-unrelated-histories -m both "origin/$other"
same "$(ls | wc -l)" 20
git fsck --full >/dev/null 2>&1
cd ..
meet
git -C origin.git fsck --full >/dev/null 2>&1
meet

step "what was taken back is delegated again, half a minute later"
[ "$ME" = two ] || until_so is_delegated kept
meet

step "no trace is left"
exec 8<&-
[ "$ME" = two ] || rm -rf ./*
meet
same "$(ls -A)" ""
meet
step "a client that is gone: its locks, its waiting and its delegations"
# Of version 3, who holds has no lease: until it comes back, and says so.
[ "$ME" = two ] || touch of-four of-three of-one delegated
meet
if [ "$ME" = two ]; then
    ask "open of-four /mnt/t/of-four" opened
    ask "try of-four write 0 10" granted
    ask "open of-three /mnt/three/of-three" opened
    ask "try of-three write 0 10" granted
    until_so is_delegated delegated
    meet
    ask "open of-one /mnt/three/of-one" opened
    ask "wait of-one write 5 10" waiting
    sleep 1
    ask "waits of-one" waiting
    meet
    echo 0 >/mnt/out/status
    sync
    touch "$SHARED/gone"
    halt -f
fi
ask "open of-one /mnt/t/of-one" opened
ask "try of-one write 0 10" granted
meet
meet
until_so test -e "$SHARED/gone"
for file in of-four of-three; do
    ask "open $file /mnt/t/$file" opened
    ask "wait $file read 9 1" waiting
done
echo changed >delegated
ask "join of-four" granted
ask "unlock of-one 0 10" unlocked
until_so says "try of-one write 0 20" granted
ask "waits of-three" waiting
touch "$SHARED/come-back"
ask "join of-three" granted
touch "$SHARED/noticed"
for file in of-four of-three of-one; do ask "close $file" closed; done
rm of-* delegated

cd /
umount /mnt/{t,minor1,minor0}
step done
