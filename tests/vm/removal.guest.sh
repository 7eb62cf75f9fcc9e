# The device goes while a server and a client use it, and comes back.

. "$SCRIPTS/walk.sh"
fail() { die "$*"; }
trap 'status=$?; [ $status = 0 ] || tail -20 /tmp/server.log; walk_stop -KILL' EXIT
[ "$DEVICE" != siw ] || [ -e /sys/module/removable ] || "$BUSYBOX" insmod "$REMOVABLE" || die "insmod"

# within SECONDS COMMAND...: until it succeeds.
within() {
    local until=$((SECONDS + $1)); shift
    until "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}
logged() { grep -q "$1" /tmp/server.log; }
reads() { timeout 20 odafs get "$1" /tmp/back 2>/tmp/error && cmp -s /tmp/back /tmp/tree/in; }
ended() { ! kill -0 "$1" 2>/dev/null; }
serves() {
    walk_start /tmp env ODAFS_LOG=debug NO_COLOR=1 odafs serve /tmp/tree --state /tmp/state --nfs "$GUEST:0" --verbs "$GUEST:0" \
        --allow "$GUEST/32" --direct one-sided --cache 16MiB
    by_verbs=odafs+verbs://$GUEST:$(walk_port verbs)/in
    by_tcp=nfs://$GUEST:$(walk_port nfs)/in
}
end() {
    local status=0
    kill -TERM "$WALK_SERVER"
    wait "$WALK_SERVER" || status=$?
    WALK_SERVER=
    same $status 0
}
one_sided() { timeout 20 odafs cat --why --route one-sided "$by_verbs" | grep -q one-sided; }

step "our server starts"
mkdir /tmp/tree
head -c 1M /dev/urandom >/tmp/tree/in
serves
one_sided || die "no one-sided reads"
# It goes on reading, whatever happens.
odafs bench latency --url "$by_verbs" --wait block --size 4096 --depth 1 --rounds 1 --seconds 600 >/dev/null 2>/tmp/reader &
reader=$!
connected() { rdma resource show qp | grep -q "type RC state RTS .* comm odafs *$"; }
within 20 connected || { cat /tmp/reader; die "nobody reads"; }
sleep 1

step "the device goes"
rdma link delete "${DEVICE}0" &
deletion=$!
# What ends on rxe, where the kernel takes nothing from a program, may be told of its peer's end first.
why='the device has gone'
[ "$DEVICE" = siw ] || why="\($why\|the peer closed it\)"
within 10 logged "connection closed.*$why" || die "the server keeps its connections"
within 10 logged 'accept failed.*the RDMA device has gone' || die "the server keeps its listener"
step "there is TCP"
reads "$by_tcp" || { cat /tmp/error; die "get by TCP"; }
if odafs stat "$by_verbs" >/dev/null 2>/tmp/error; then die "stat without a device"; fi
grep -q 'there is no RDMA device' /tmp/error || { cat /tmp/error; die "an odd error"; }

if [ "$DEVICE" = siw ]; then
    wait $deletion || die "it does not go"
else
    step "the kernel waits for those that have it open, which end"
    kill -0 $deletion || die "it has gone already"
    kill $reader
    end
    within 10 ended $deletion || die "it does not go"
    wait $deletion || die "it does not go"
fi
step "the device comes back"
rdma link add "${DEVICE}0" type "$DEVICE" netdev "$INTERFACE" || die "rdma link add"
if [ "$DEVICE" = siw ]; then
    # The server looks every second, and the reader's call is good for half a minute.
    within 20 connected || { cat /tmp/reader; die "the reader does not come back"; }
    kill $reader || die "the reader has ended"
else
    serves
fi
reads "$by_verbs" || { cat /tmp/error; die "get"; }
one_sided || die "no one-sided reads any more"
step "the server ends on SIGTERM"
end
