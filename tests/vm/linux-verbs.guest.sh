# A stock Linux client on our server over verbs: a tour of all operations, the server killed and started again in its
# middle.

. "$SCRIPTS/walk.sh"
fail() { die "$*"; }
trap 'walk_stop -KILL' EXIT
here=$(mktemp -d)
walk_tree "$here/tree" "$ENTRIES"
step "our server starts"
walk_start "$here" odafs serve "$here/tree" --state "$here/state" --nfs "$GUEST:0" --verbs "$GUEST:0" --allow "$GUEST/32" \
    --squash none --insecure --cache 256MiB
options=$(linux_options "$GUEST" "$(walk_port verbs)" "$(walk_port nfs)")
status=0
walk "$here" env SERVER="$GUEST" EXPORT=/ MOUNT_OPTIONS="$options" OUT="$here" bash "$SCRIPTS/tour.guest.sh" || status=$?
[ $status = 0 ] || { tail -20 "$here/server.log"; die "the tour ended with status $status"; }
step "what the client was told is on the disk, and the server ends on SIGTERM"
walk_end "$here"
