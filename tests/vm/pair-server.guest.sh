# Two machines on one wire: this one serves, until the other has had what it wants.

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
step "it ends on SIGTERM"
kill -TERM $server
status=0; wait $server || status=$?
cat /tmp/server.log
same $status 0
