# What open, read and close of small files cost Linux' client, as it runs in the guest: with delegations, and without.
# $FILES, $ROUNDS and $TURNS say how much.

die() { echo "FAILED: $*"; exit 1; }
attach() { mount -i -t nfs4 -o "addr=$SERVER,vers=$2,proto=tcp,port=2049,clientaddr=$CLIENT,hard" "$SERVER:/" "$1" || die "mount $1"; }

# The calls of a mount since it was mounted, one kind a line: name, number.
calls() {
    sed -n "/ mounted on .mnt.$1 /,/^device/s/^\s*\([A-Z_]*\): \([0-9]*\) .*/\1 \2/p" /proc/self/mountstats |
        grep -E '^(OPEN|OPEN_NOATTR|CLOSE|READ|GETATTR|ACCESS|LOOKUP|DELEGRETURN) '
}

# measured MOUNT: ns of an open, read and close, and how many calls all of them made, with those that filled the caches.
measured() {
    local ns
    calls "$1" >/run/before
    ns=$(python3 /run/rounds.py "/mnt/$1" "$FILES" "$ROUNDS") || die "reads of $1"
    calls "$1" >/run/after
    echo "$ns" "$(paste -d ' ' /run/before /run/after | awk '$4 > $2 { print $1, $4 - $2 }' | paste -s -d ' ')"
}

mkdir /mnt/two /mnt/zero /mnt/writer
attach /mnt/two 4.2
attach /mnt/zero 4.0
# To the server another minor version is another client. Nobody gets a delegation of a file that another has open for writing.
attach /mnt/writer 4.1

mkdir /run/small
cp /mnt/two/small/* /run/small

for turn in $(seq "$TURNS"); do
    echo "local $(python3 /run/rounds.py /run "$FILES" "$ROUNDS")"
    echo "delegated $(measured two)"
    echo "minor-version-0 $(measured zero)"
    descriptors=()
    for ((i = 0; i < FILES; i++)); do exec {descriptor}<>"/mnt/writer/small/$i"; descriptors+=("$descriptor"); done
    echo "open-for-writing $(measured two)"
    for descriptor in "${descriptors[@]}"; do exec {descriptor}>&-; done
    # A file that was recalled is not delegated for a while.
    [ "$turn" = "$TURNS" ] || sleep 31
done
