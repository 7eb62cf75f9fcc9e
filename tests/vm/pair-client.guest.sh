# The other end of pair-server.guest.sh.

url=odafs+verbs://$SERVER/in
step "the server is there"
for _ in {1..60}; do
    ! timeout 20 odafs stat "$url" 2>/tmp/error || { reached=1; break; }
    sleep 1
done
[ -n "${reached:-}" ] || { cat /tmp/error; die "no server"; }
step "odafs get"
odafs get "$url" /tmp/in || die "get"
same "$(sum /tmp/in)" "$(cut -d' ' -f1 "$OUT/want")"
step "odafs bench latency"
odafs bench latency --url "$url" --wait block --size 4096 --depth 1 --rounds 1 --seconds 5 || die "bench"
step "this machine vanishes in the middle of it all"
linux_mounts "$SERVER:/" /mnt/tree 20049 2049
same "$(sum /mnt/tree/in)" "$(cut -d' ' -f1 "$OUT/want")"
echo "$DEVICE pair-client passed ($SECONDS s)" >"$OUT/results"
echo 0 >"$OUT/status"
sync
echo o >/proc/sysrq-trigger
sleep 60
