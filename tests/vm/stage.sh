# shellcheck disable=SC1090 # The stages lie beside it.
# In the guest: one stage, with empty directories for it alone.
mkdir -p /tmp/out
mount --bind "$OUT" /tmp/out
mount -t tmpfs tmp /mnt
mkdir "$OUT"
mount --move /tmp/out "$OUT"
mount -t tmpfs tmp /tmp
cd /run/odafs || exit 1
. "$SCRIPTS/common.guest.sh"
. "$SCRIPTS/$1.guest.sh"
step "passed"
