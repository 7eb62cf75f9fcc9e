# Ratios, counted in instructions of the whole machine: client, server and the device, which is software too. Medians of 4 KiB
# reads at random, one at a time; all sleep for what they wait for.

READS=${READS:-2000}
BYTES=$((16 << 20))

# The median of Linux' client on the mount at /mnt/t, in nanoseconds: of reads, and of writes.
linux_reads() {
    cat /mnt/t/file >/dev/null
    linux_median randread 18
}
linux_writes() { linux_median randwrite 59; }
linux_median() {
    fio --name=r --filename=/mnt/t/file --rw="$1" --bs=4k --direct=1 --ioengine=psync --size=$BYTES \
        --number_ios="$READS" --invalidate=0 --randrepeat=1 --percentile_list=50 --output-format=terse --terse-version=3 \
        --output=/tmp/fio || die "fio"
    awk -F';' -v field="$2" '{ split($field, p, "="); print p[2] * 1000 }' /tmp/fio
}

# Nanoseconds that an open, read and close of a small file takes in /mnt/t.
linux_opens() { python3 "$SCRIPTS/opens.py" /mnt/t 100 "$1" || die "opens"; }

# Nanoseconds that all threads of the server have run.
server_ran() { cat "/proc/$1/task/"*/schedstat 2>/dev/null | awk '{ ns += $1 } END { printf "%d\n", ns }'; }

step "ib_read_lat"
address=(); [ "$DEVICE" = rxe ] || address=(-R)
ib_read_lat -d "${DEVICE}0" "${address[@]}" -e -s 4096 -n "$READS" -F >/tmp/server.log 2>&1 &
sleep 2
timeout 120 ib_read_lat -d "${DEVICE}0" "${address[@]}" -e -s 4096 -n "$READS" -F "$GUEST" >/tmp/perftest 2>&1 ||
    { cat /tmp/perftest /tmp/server.log; die "ib_read_lat"; }
wait
floor=$(awk '$1 == 4096 { printf "%d\n", $5 * 1000 }' /tmp/perftest)
echo "$floor ns"

linux_serves 4
dd if=/dev/urandom of="$KNFSD/export/file" bs=1M count=$((BYTES >> 20)) status=none
step "Linux' client on Linux' server"
linux_mounts "$GUEST:/export" /mnt/t 20049 20048
linux=$(linux_reads)
echo "$linux ns"
umount /mnt/t
mkdir /tmp/tree
cp "$KNFSD/export/file" /tmp/tree/file
step "the same by version 4.2"
linux_mounts "$GUEST:/" /mnt/t 20049 20048 4.2
linux_four=$(linux_reads)
linux_writes_four=$(linux_writes)
echo "$linux_four ns, writes $linux_writes_four ns"
umount /mnt/t
echo 0 >/proc/fs/nfsd/threads

step "Linux' client on our server"
. "$SCRIPTS/walk.sh"
fail() { die "$*"; }
trap 'walk_stop -KILL' EXIT
# Both ends are of one machine: no packet is lost or overtakes another.
order=rising; [ "$DEVICE" != rxe ] || order=ordered
order=${READ_ORDER:-$order}
walk_start /tmp odafs serve /tmp/tree --state /tmp/state --nfs "$GUEST:0" --verbs "$GUEST:0" --allow "$GUEST/32" \
    --squash none --insecure --cache 64MiB --direct one-sided --spin 0ns --read-order $order
linux_mounts "$GUEST:/" /mnt/t "$(walk_port verbs)" "$(walk_port nfs)"
ours=$(linux_reads)
echo "$ours ns"
umount /mnt/t

# bench ROUTE READS: its median, and what of the server's time went by meanwhile.
url=odafs+verbs://$GUEST:$(walk_port verbs)/file
bench() {
    local before after
    before=$(server_ran "$WALK_SERVER")
    odafs bench latency --url "$url" --route "$1" --wait block --size 4096 --depth 1 --rounds 1 --reads "$2" --json \
        >"/tmp/$1" || die "bench $1"
    after=$(server_ran "$WALK_SERVER")
    echo "$(sed -n 's/.*"p50_ns": *\([0-9]*\).*/\1/p' "/tmp/$1" | sort -n | head -1) $((after - before))"
}
declare -A p50 ran
for route in rpc guarded one-sided; do
    step "our client, $route"
    read -r "p50[$route]" "ran[$route]" < <(bench $route "$READS")
    echo "${p50[$route]} ns"
done
# The server's time for a read: of more reads less those that were, since a connection costs some too.
read -r _ more < <(bench one-sided $((READS * 3)))
cpu=$(((more - ran[one-sided]) / (READS * 2)))
# Threads that ended meanwhile took theirs with them.
[ "$cpu" -ge 0 ] || cpu=0
step "Linux' client on our server, by version 4.2"
linux_mounts "$GUEST:/" /mnt/t "$(walk_port verbs)" "$(walk_port nfs)" 4.2
ours_four=$(linux_reads)
ours_writes_four=$(linux_writes)
echo "$ours_four ns, writes $ours_writes_four ns"

step "open, read and close of small files by version 4.2, delegated and not"
mkdir /tmp/tree/small
for ((i = 0; i < 100; i++)); do head -c 4096 /dev/urandom >"/tmp/tree/small/$i"; done
delegated=$(linux_opens 20)
# To the server another minor version is another client. Nobody gets a delegation of a file that another has open for writing.
linux_mounts "$GUEST:/" /mnt/writer "$(walk_port verbs)" "$(walk_port nfs)" 4.1
descriptors=()
for ((i = 0; i < 100; i++)); do exec {descriptor}<>"/mnt/writer/small/$i"; descriptors+=("$descriptor"); done
undelegated=$(linux_opens 5)
for descriptor in "${descriptors[@]}"; do exec {descriptor}>&-; done
echo "$delegated ns, $undelegated ns"
umount /mnt/writer /mnt/t
walk_stop -TERM

step "ratios"
awk -v device="$DEVICE" -v floor="$floor" -v linux="$linux" -v ours="$ours" -v rpc="${p50[rpc]}" \
    -v guarded="${p50[guarded]}" -v one_sided="${p50[one-sided]}" -v cpu="$cpu" -v linux_four="$linux_four" \
    -v ours_four="$ours_four" -v linux_writes_four="$linux_writes_four" -v ours_writes_four="$ours_writes_four" \
    -v delegated="$delegated" -v undelegated="$undelegated" '
    function row(what, over, under, asked, aim) {
        printf "%-58s %8.1f %8.1f %6.2f %6s %5s  %s\n", what, over / 1e3, under / 1e3, over / under, asked, aim,
            asked == "" || over / under <= asked ? "" : "BEYOND"
        if (asked != "" && !(over / under <= asked)) failed = 1
    }
    BEGIN {
        printf "%-58s %8s %8s %6s %6s %5s\n", device ": medians of 4 KiB, microseconds", "this", "that", "ratio", "asked", "aim"
        row("Linux client: our server / Linux server", ours, linux, 1.2, "1.0")
        row("the same by version 4.2", ours_four, linux_four, 1.1, "1.0")
        row("the same by version 4.2, writes", ours_writes_four, linux_writes_four, 1.1, "1.0")
        row("open, read, close of small files: delegated / not", delegated, undelegated, 0.5, "")
        row("one-sided / Linux client on Linux server", one_sided, linux, 0.5, "0.4")
        row("one-sided / ib_read_lat -e", one_sided, floor, 1.4, "")
        row("guarded / our RPC", guarded, rpc, 1.0, "")
        printf "%-58s %8d %24s  %s\n", "server CPU of a one-sided read, ns", cpu, "0", cpu < 50 ? "" : "BEYOND"
        exit failed || cpu >= 50
    }' || die "beyond what is asked"
