# Linux' client on Linux' server: whether the machine works at all.

linux_serves
dd if=/dev/urandom of="$KNFSD/export/out" bs=1M count="$MEGABYTES" status=none
want=$(sum "$KNFSD/export/out")
step "the kernel's client mounts it, reads and writes $MEGABYTES MiB"
linux_mounts "$GUEST:/export" /mnt/t 20049 20048
same "$(sum /mnt/t/out)" "$want"
cp "$KNFSD/export/out" /mnt/t/in
umount /mnt/t
same "$(sum "$KNFSD/export/in")" "$want"
