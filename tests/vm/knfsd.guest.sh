# Our client on Linux' server: over verbs, and where the device speaks iWARP over iWARP of our own too.

linux_serves
dd if=/dev/urandom of=/tmp/in bs=1M count="$MEGABYTES" status=none
cp /tmp/in "$KNFSD/export/out"
want=$(sum /tmp/in)
for ((i = 1; i <= ENTRIES; i++)); do echo "content $i" >"$KNFSD/export/file-$i"; done

with() {
    # Paths of the URL are below the export.
    url() { echo "$SCHEME://$GUEST:20049/export/$1?mountport=20048"; }
    step "$SCHEME: stat, ls"
    odafs stat "$(url out)" >/tmp/stat || die "stat"
    tr -d , </tmp/stat | grep -q " $((MEGABYTES << 20)) bytes" || die "no size in: $(cat /tmp/stat)"
    odafs ls "$(url '')" >/tmp/list || die "ls"
    same "$(grep -c 'file-[0-9]*' /tmp/list)" "$ENTRIES"
    step "get of $MEGABYTES MiB, and of a few bytes"
    odafs get "$(url out)" /tmp/back || die "get"
    same "$(sum /tmp/back)" "$want"
    odafs get "$(url file-7)" /tmp/few || die "get of a short file"
    same "$(cat /tmp/few)" "content 7"
    step "put of $MEGABYTES MiB, and of a few bytes"
    odafs put /tmp/in "$(url in)" || die "put"
    same "$(sum "$KNFSD/export/in")" "$want"
    odafs put /tmp/few "$(url few)" || die "put of a short file"
    same "$(cat "$KNFSD/export/few")" "content 7"
    step "mkdir, mv, rm"
    odafs mkdir "$(url d)" || die "mkdir"
    odafs mv "$(url few)" "$(url d/few)" || die "mv"
    same "$(cat "$KNFSD/export/d/few")" "content 7"
    odafs rm "$(url d/few)" || die "rm"
    [ ! -e "$KNFSD/export/d/few" ] || die "rm left it there"
    step "what is not there is refused"
    if odafs get "$(url no-such-file)" /tmp/none 2>/tmp/error; then die "get of nothing went through"; fi
    grep -qi 'no such' /tmp/error || die "an odd error: $(cat /tmp/error)"
    rm -r "$KNFSD"/export/{d,in} /tmp/{back,few}
}

SCHEME=odafs+verbs
with
if [ "$DEVICE" = siw ]; then
    SCHEME=odafs
    with
fi
