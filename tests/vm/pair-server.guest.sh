# Two machines on one wire: this one serves, until the other has had what it wants.

# iWARP's connections end when TCP gives up: soon.
echo 5 >/proc/sys/net/ipv4/tcp_retries2
mkdir /tmp/tree
cp "$OUT/in" /tmp/tree/in
step "our server starts"
odafs serve /tmp/tree --state /tmp/state --nfs "$GUEST:2049" --verbs "$GUEST:20049" --allow 10.77.0.0/24 --direct one-sided \
    --spin 0ns --cache 256MiB >/tmp/ready 2>/tmp/server.log &
server=$!
for _ in {1..600}; do
    ! grep -q '^ready ' /tmp/ready || break
    kill -0 $server 2>/dev/null || { cat /tmp/server.log; die "the server did not start"; }
    sleep 0.1
done
cat /tmp/ready
step "the other machine reads"
while [ ! -e "$OUT/stop" ]; do
    kill -0 $server 2>/dev/null || { cat /tmp/server.log; die "the server ended"; }
    sleep 0.5
done
step "it notices that the other machine has vanished"
# Its queue pairs; the kernel has some of its own beside them.
pairs() { rdma resource show qp | grep -c 'type RC.* comm odafs' || true; }
[ "$(pairs)" -gt 0 ] || die "nobody is connected"
for _ in {1..180}; do
    [ "$(pairs)" -gt 0 ] || { noticed=1; break; }
    sleep 1
done
[ -n "${noticed:-}" ] || { rdma resource show qp; die "it holds on to the connections"; }
step "it ends on SIGTERM"
kill -TERM $server
status=0; wait $server || status=$?
cat /tmp/server.log
same $status 0
