# What two clients do, as it runs in both guests at once. $ME is `one` or `two`.

step() { STEP=$*; printf '%6s  %s\n' "$SECONDS" "$STEP"; }
die() { echo "FAILED in \"$STEP\": $*"; touch "$SHARED/over"; exit 1; }
same() { [ "$1" = "$2" ] || die "expected '$2', got '$1'"; }
refused() { if "$@" 2>/dev/null; then die "went through: $*"; fi; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
set -E
SECONDS=0
export PATH=$PATH:/usr/local/bin LD_LIBRARY_PATH=$UML_CACHE/lib/x86_64-linux-gnu:$UML_CACHE/usr/lib/x86_64-linux-gnu
mkdir /mnt/shared
mount -t hostfs -o "$SHARED" none /mnt/shared
SHARED=/mnt/shared

other=two; [ "$ME" = one ] || other=one
# Waits until something is so; the other may have failed meanwhile.
until_so() {
    local i
    for ((i = 0; i < 1200; i++)); do
        ! "$@" 2>/dev/null || return 0
        [ ! -e "$SHARED/over" ] || exit 1
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
cut() { ip link set vec0 down; touch "$SHARED/$1-is-cut"; }
mend() { ip link set vec0 up; }
# A program that holds a lock on bytes, by fcntl: `lock FILE FIRST LENGTH [nowait]`; it says `held`, and at a line of input
# writes to the file and ends.
lock() {
    python3 -c '
import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
flags = fcntl.LOCK_EX | (fcntl.LOCK_NB if len(sys.argv) > 4 else 0)
fcntl.lockf(f, flags, int(sys.argv[3]), int(sys.argv[2]))
print("held", flush=True)
sys.stdin.readline()
os.write(f, b"by the holder\n")
os.fsync(f)
print("written", flush=True)' "$@"
}
# The same beside this script, which goes on: `starts FILE FIRST LENGTH`, `hears held`, `ends`.
mkfifo /run/tell /run/hear
starts() {
    # Whoever started it judges how it ends.
    (trap - ERR; lock "$@") </run/tell >/run/hear & holder=$!
    exec 5>/run/tell 6</run/hear
}
hears() { read -r -u 6 line || line="nothing"; same "$line" "$1"; }
ends() {
    echo >&5
    hears written
    wait $holder
    exec 5>&- 6<&-
}
# Reads need no OPEN. Linux counts those of a file that it knows as OPEN_NOATTR.
is_delegated() {
    local before; before=$(opens)
    : "$(<"$1")"
    [ "$(opens)" = "$before" ]
}
opens() { echo $(($(calls OPEN) + $(calls OPEN_NOATTR))); }
has() { [ "$(<"$1")" = "$2" ]; }
calls() { sed -n "/ mounted on .mnt.t /,/^device/s/^\s*$1: \([0-9]*\) .*/\1/p" /proc/self/mountstats; }

step "a mount for which nobody names a version"
# By its name Linux tells the server who it is.
hostname "client-$ME"
mkdir /mnt/t
nconnect=; [ "$ME" = one ] || nconnect=,nconnect=4
"$UML_CACHE/sbin/mount.nfs" "$SERVER:/" /mnt/t -o "hard$nconnect" || die "mount"
cd /mnt/t
grep -q " /mnt/t nfs4 .*vers=4\.2" /proc/mounts || die "$(grep /mnt/t /proc/mounts)"
# As many connections as were asked for.
[ "$ME" = one ] || same "$(sed -n '/ mounted on .mnt.t /,/^device/p' /proc/self/mountstats | grep -c xprt:)" 4

step "40 MiB, written by one and read by the other"
[ "$ME" = one ] || { dd if=/dev/urandom of=big bs=1M count=40 status=none; sync big; sha256sum big >sum; }
meet
sha256sum -c --quiet sum
meet

step "locks of ranges, by fcntl"
[ "$ME" = two ] || : >locked
meet
if [ "$ME" = one ]; then
    starts locked 0 10
    hears held
    meet
    meet
    ends
else
    meet
    refused lock locked 5 1 nowait </dev/null
    lock locked 10 5 nowait </dev/null >/dev/null
    starts locked 0 1
    if read -r -t 2 -u 6 line; then die "it did not wait"; fi
    meet
    hears held
    ends
fi
meet
same "$(<locked)" "by the holder"

step "whole files, by flock"
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

step "a delegation whose holder cannot be reached, revoked"
# A file of its own: what was taken back is not delegated again at once.
[ "$ME" = one ] || echo second >lost
meet
[ "$ME" = two ] || until_so is_delegated lost
meet
if [ "$ME" = one ]; then
    cut lost
    until_so test -e "$SHARED/lost-is-taken"
    mend
    # It learns that its delegation is gone when it next talks to the server.
    until_so has lost third
else
    until_so test -e "$SHARED/lost-is-cut"
    echo third >lost
    same "$(<lost)" third
    touch "$SHARED/lost-is-taken"
fi
meet

step "the network cut for longer than a lease: what nobody else wants is kept"
if [ "$ME" = one ]; then
    starts locked 0 10
    hears held
    cut unwanted
    sleep $((LEASE + 8))
    mend
    # The server hears from it, before the other asks for its lock.
    : >heard
    meet
    meet
    ends
else
    meet
    refused lock locked 0 10 nowait </dev/null
    meet
fi
meet

step "the network cut for longer than a lease: what another wants is lost, and its holder is told"
if [ "$ME" = one ]; then
    starts locked 0 10 2>/dev/null
    hears held
    cut wanted
    until_so test -e "$SHARED/wanted-is-taken"
    mend
    # A write that its lock does not cover any more must not reach the file.
    echo >&5
    if read -r -u 6 line; then die "it wrote without its lock"; fi
    refused wait $holder
    exec 5>&- 6<&-
    meet
else
    until_so test -e "$SHARED/wanted-is-cut"
    starts locked 0 10
    hears held
    touch "$SHARED/wanted-is-taken"
    meet
    ends
fi
meet

step "what was taken back is delegated again, half a minute later"
[ "$ME" = two ] || until_so is_delegated kept
meet

step "the server killed while both hold locks and write"
# Each has its half of the file, and writes one of its own.
exec 7<>locked
if [ "$ME" = one ]; then first=0; else first=100; fi
starts locked $first 50
hears held
dd if=/dev/urandom of="/mnt/mine" bs=1M count=20 status=none
meet
dd if=/mnt/mine of="big-$ME" bs=256K conv=fsync status=none & writer=$!
[ "$ME" = two ] || { sleep 0.3; touch "$SHARED/kill"; }
for i in {1..100}; do echo "$i" >>"journal-$ME"; done
wait $writer || die "the write failed"
until_so test -e "$SHARED/killed"
meet
cmp /mnt/mine "big-$ME"
same "$(wc -l <"journal-$other")" 100
# Both have their locks still.
refused lock locked $((100 - first)) 1 nowait </dev/null
meet
ends
meet

step "a database that both write"
[ "$ME" = two ] || sqlite3 base.db 'create table t(who text, n integer)'
meet
for n in {1..40}; do echo ".timeout 60000
insert into t values('$ME', $n);" | sqlite3 base.db || die "insert $n"; done
meet
same "$(sqlite3 base.db '.timeout 60000' 'select count(*), count(distinct n) from t')" "80|40"
same "$(sqlite3 base.db '.timeout 60000' 'pragma integrity_check')" ok
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
for i in {1..5}; do
    for j in {1..10}; do echo "$i" >"$ME-$j"; done
    git add -A
    git commit -q -m "$i"
    git push -q origin "$ME"
done
meet
git fetch -q
same "$(git rev-list --count "origin/$other")" 5
git merge -q --allow-unrelated-histories -m both "origin/$other"
same "$(ls | wc -l)" 20
git fsck --full >/dev/null 2>&1
cd ..
meet
git -C origin.git fsck --full >/dev/null 2>&1
meet

step "no trace is left"
exec 7<&- 8<&-
[ "$ME" = two ] || rm -rf ./*
meet
same "$(ls -A)" ""
meet
cd /
umount /mnt/t
step done
