# Sourced, after packages.sh, by those who send a stock Linux client through tour.guest.sh: the server's side of it.
#
#   walk_tree DIR ENTRIES          what the tour expects in the export
#   walk_start OUT COMMAND...      starts the server, which says `ready`; logs to OUT/server.log
#   walk_port NAME                 the port of its listener NAME
#   walk OUT COMMAND...            runs COMMAND, which is the guest, and kills and restarts the server when the guest asks
#   walk_end OUT                   compares the disk with what the client was told, and ends the server
#   walk_stop SIGNAL               ends it anyhow
#   walk_beside COMMAND...         runs COMMAND, which is a guest, beside this script: its process is $WALK_GUEST
#   walk_over                      ends what is left of both (of User Mode Linux, with its namespace of processes)

WALK_SERVER=
WALK_GUEST=
WALK_COMMAND=()

walk_tree() {
    mkdir -p "$1/many"
    (cd "$1/many" && seq -f 'entry-number-%g' 0 $(($2 * 9 / 10 - 1)) | xargs touch)
}

walk_start() {
    local out=$1 ports i; shift
    WALK_COMMAND=("$@")
    : >"$out/ready"
    "$@" >"$out/ready" 2>>"$out/server.log" &
    WALK_SERVER=$!
    for _ in {1..600}; do
        if grep -q '^ready ' "$out/ready"; then
            WALK_READY=$(grep '^ready ' "$out/ready")
            # The next start is at the same ports.
            for i in "${!WALK_COMMAND[@]}"; do
                case ${WALK_COMMAND[i]} in --nfs | --rdma | --verbs)
                    ports=$(walk_port "${WALK_COMMAND[i]#--}")
                    WALK_COMMAND[i + 1]=${WALK_COMMAND[i + 1]%:*}:$ports ;;
                esac
            done
            touch "$out/can-restart"
            return
        fi
        kill -0 $WALK_SERVER 2>/dev/null || break
        sleep 0.1
    done
    tail -20 "$out/server.log" >&2
    fail "the server did not start (see $out/server.log)"
}

walk_port() { sed -n "s/.* $1=[^ ]*:\([0-9]*\).*/\1/p" <<<"$WALK_READY"; }

walk_stop() {
    [ -n "$WALK_SERVER" ] || return 0
    kill "$1" "$WALK_SERVER" 2>/dev/null || true
    wait "$WALK_SERVER" 2>/dev/null || true
    WALK_SERVER=
}

# In a process group of its own.
walk_beside() {
    set -m
    ("$@") </dev/null &
    WALK_GUEST=$!
    set +m
}

walk_over() {
    [ -z "$WALK_GUEST" ] || kill -KILL -- "-$WALK_GUEST" 2>/dev/null || true
    WALK_GUEST=
    walk_stop -KILL
}

walk() {
    local out=$1 status=0; shift
    rm -f "$out"/restart*
    walk_beside "$@"
    while kill -0 $WALK_GUEST 2>/dev/null; do
        if [ -e "$out/restart-please" ]; then
            # In the middle of what the guest is doing, on the same state.
            sleep 0.15
            walk_stop -KILL
            sleep 1
            walk_start "$out" "${WALK_COMMAND[@]}"
            # Not earlier: the guest may still be opening what it has just made.
            rm "$out/restart-please"
            touch "$out/restarted"
        fi
        sleep 0.05
    done
    wait $WALK_GUEST || status=$?
    WALK_GUEST=
    return $status
}

walk_end() {
    local out=$1 want got name code=0
    want=$(cat "$out/big.sha256")
    for name in big restarted; do
        got=$(sha256sum <"$out/tree/$name")
        [ "${got%% *}" = "$want" ] || fail "$name on the server's disk is not what the client wrote"
    done
    kill -TERM "$WALK_SERVER"
    wait "$WALK_SERVER" || code=$?
    WALK_SERVER=
    [ $code = 0 ] || fail "the server ended with status $code on SIGTERM"
}
