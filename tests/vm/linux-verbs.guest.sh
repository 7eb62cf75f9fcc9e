# A stock Linux client on our server over verbs, by NFS versions 3, 4.0, 4.1 and 4.2: a tour of all operations, the server
# killed and started again in its middle. And a mount for which nobody names a version.

. "$SCRIPTS/walk.sh"
fail() { die "$*"; }
trap walk_over EXIT

tour() {
    local version=$1 here options nameless= status=0
    here=$(mktemp -d)
    walk_tree "$here/tree" "$ENTRIES"
    step "our server starts, for version $version"
    walk_start "$here" odafs serve "$here/tree" --state "$here/state" --nfs "$GUEST:0" --verbs "$GUEST:0" \
        --allow "$GUEST/32" --squash none --insecure --cache 256MiB --lease 10s
    options=$(linux_options "$GUEST" "$(walk_port verbs)" "$(walk_port nfs)" "$version")
    [ "$version" != 4.2 ] || nameless=rdma,port=$(walk_port verbs)
    walk "$here" env SERVER="$GUEST" EXPORT=/ VERSION="$version" MOUNT_OPTIONS="$options" NAMELESS="$nameless" \
        MOUNT_PORT="$(walk_port nfs)" OUT="$here" bash "$SCRIPTS/tour.guest.sh" || status=$?
    [ $status = 0 ] || { tail -20 "$here/server.log"; die "the tour ended with status $status"; }
    step "what the client was told is on the disk, and the server ends on SIGTERM"
    walk_end "$here"
    rm -rf /mnt/{t,sub,other,big,plain}
}

for version in ${VERSIONS:-3 4.0 4.1 4.2}; do tour "$version"; done
