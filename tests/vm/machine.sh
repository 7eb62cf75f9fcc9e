# Sourced, after packages.sh, by the tests that need a Linux kernel with RDMA: a stock Debian kernel under QEMU's
# software emulation, with soft RoCE (rxe) or soft iWARP (siw). Of this machine's own it needs a compiler for siw, and the
# libraries of RDMA, which the guest uses too; QEMU, the kernel and nfsd's programs are unpacked under $VM_CACHE, which
# may be deleted at any time.
#
#   vm_fetch                        downloads QEMU, the kernel and nfsd's programs, and builds siw.ko and removable.ko, once
#   vm_boot OUT SCRIPT [SECONDS]    boots, runs SCRIPT in the guest as root, returns its exit status
#
# Variables of vm_boot:
#   VM_DEVICE=rxe|siw               the guest's RDMA device (siw)
#   VM_ICOUNT=1                     one CPU whose clock counts instructions, 2 ns each: the guest's own timings hardly depend
#                                   on this machine's load. Programs must sleep for what they wait for: two that spin take
#                                   turns of 8 ms
#   VM_CPUS=N                       processors without it (2)
#   VM_GUEST=ADDRESS                the guest's address (10.0.2.15)
#   VM_WIRE=listen:PATH|connect:PATH    a wire to another guest, by a Unix socket, instead of this machine's loopback; frames of
#                                   9000 bytes
#   VM_HOST=ADDRESS                 $SERVER in the guest
#
# SCRIPT is sourced by bash on this machine's file system (read-only). It finds $SERVER (this side's loopback as
# the guest sees it), $GUEST (its own address), $DEVICE (its RDMA device, on the network interface $INTERFACE), $OUT (OUT,
# writable from both sides), $KNFSD (a root for chroot with the programs of nfs-kernel-server), the program $BUSYBOX, the
# kernel module $REMOVABLE (removable.c) and empty directories under /mnt. Its output goes to OUT/guest.log, the kernel's
# to OUT/console.log.

VM_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/odafs-vm
VM_SERIES=6.12
VM_HOST=${VM_HOST:-10.0.2.2}
VM_GUEST=${VM_GUEST:-10.0.2.15}
VM_DEVICE=${VM_DEVICE:-siw}
# What the guest loads, in this order. The devices find their checksums by name, and bring ib_uverbs. What is loaded last
# is told first that a device goes: rdma_cm, which tells its programs, and then ib_uverbs, which waits for them.
VM_MODULES="virtio_pci virtio_net 9pnet_virtio 9p crc32c_generic crc32_generic ib_core siw rdma_rxe ib_uverbs rdma_cm \
rdma_ucm rpcrdma nfs nfsv3 nfsv4 nfsd"

# vm_closure NAME PACKAGE...: the packages and all that they depend on, unpacked as $VM_CACHE/NAME. An empty package
# status keeps apt from weighing them against what is installed here.
vm_closure() {
    local name=$1; shift
    local archives="$VM_CACHE/packages/$name" package
    mkdir -p "$archives/partial" "$VM_CACHE/$name"
    : >"$VM_CACHE/no-packages"
    apt-get -qq -y --no-install-recommends --download-only -o APT::Sandbox::User=root \
        -o Dir::State::status="$VM_CACHE/no-packages" -o Dir::Cache::archives="$archives" install "$@" >/dev/null
    for package in "$archives"/*.deb; do dpkg -x "$package" "$VM_CACHE/$name"; done
    rm -r "$archives"
}

# vm_unpack NAME PACKAGE...: the packages alone.
vm_unpack() {
    local name=$1 package; shift
    mkdir -p "$VM_CACHE/packages/$name" "$VM_CACHE/$name"
    (cd "$VM_CACHE/packages/$name" && apt-get -qq -o APT::Sandbox::User=root download "$@")
    for package in "$VM_CACHE/packages/$name"/*.deb; do dpkg -x "$package" "$VM_CACHE/$name"; done
    rm -r "$VM_CACHE/packages/$name"
}

# vm_step NAME FUNCTION [ARGUMENT]...: does it once, and again when the function's text has changed. What an earlier
# attempt left half done is done again.
vm_step() {
    local name=$1 recipe; shift
    recipe=$(declare -f "$1"; echo "$*")
    ! cmp -s "$VM_CACHE/$name.done" - <<<"$recipe" || return 0
    echo "vm: $name" >&2
    rm -rf "${VM_CACHE:?}/$name" "$VM_CACHE/$name.done"
    # In a shell of its own, so that any command that fails ends it.
    bash -c 'set -euo pipefail; . "$1/packages.sh"; . "$1/vm/machine.sh"; "${@:2}"' - \
        "$(dirname "${BASH_SOURCE[0]}")/.." "$@" || fail "vm: $name: \"$*\" failed"
    echo "$recipe" >"$VM_CACHE/$name.done"
}

vm_fetch() {
    need setfattr=attr python3=python3 make=make gcc-12=gcc-12 xz=xz-utils ip=iproute2 rdma=iproute2 unshare=util-linux
    need_installed libibverbs1 ibverbs-providers librdmacm1
    mkdir -p "$VM_CACHE"
    exec {VM_LOCK}>"$VM_CACHE/lock"
    flock "$VM_LOCK"
    [ -e "$VM_CACHE/knfsd.done" ] || apt -qq update || fail "vm: apt-get update"
    vm_step qemu vm_closure qemu qemu-system-x86
    vm_step kernel vm_kernel
    vm_step siw vm_siw "$(<"$VM_CACHE/kernel/version")"
    vm_step removable vm_removable "$(<"$VM_CACHE/kernel/version")" "$(<"$(dirname "${BASH_SOURCE[0]}")/removable.c")"
    vm_step initramfs vm_initramfs "$(<"$VM_CACHE/kernel/version")"
    vm_step knfsd vm_knfsd
    exec {VM_LOCK}>&-
}

vm_kernel() {
    local image version
    image=$(apt-cache depends "linux-image-$VM_SERIES-amd64" | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p')
    version=${image#linux-image-}
    vm_unpack kernel "$image" "linux-headers-$version" "linux-headers-${version%-amd64}-common" \
        "linux-kbuild-${version%-amd64}" busybox-static
    echo "$version" >"$VM_CACHE/kernel/version"
}

# Debian leaves siw out of its kernels (CONFIG_RDMA_SIW is not set), so it is built from Debian's own source.
vm_siw() {
    local version=$1 headers
    headers=$VM_CACHE/kernel/usr/src/linux-headers-$version
    # These point to where the packages would be installed, and at symbols (BTF) that nobody needs.
    echo "include $VM_CACHE/kernel/usr/src/linux-headers-${version%-amd64}-common/Makefile" >"$headers/Makefile"
    rm -f "$headers/vmlinux"
    vm_unpack source "linux-source-$VM_SERIES"
    mkdir -p "$VM_CACHE/siw"
    tar -xJf "$VM_CACHE/source/usr/src/linux-source-$VM_SERIES.tar.xz" -C "$VM_CACHE/siw" --strip-components=5 \
        "linux-source-$VM_SERIES/drivers/infiniband/sw/siw"
    rm -r "$VM_CACHE/source"
    make -s -C "$headers" M="$VM_CACHE/siw" CONFIG_RDMA_SIW=m modules >"$VM_CACHE/siw.log" 2>&1 ||
        { tail -20 "$VM_CACHE/siw.log" >&2; return 1; }
}

# After siw, which has put the headers in order.
vm_removable() {
    local version=$1 source=$2 directory=$VM_CACHE/removable
    mkdir -p "$directory"
    echo "$source" >"$directory/removable.c"
    echo "obj-m := removable.o" >"$directory/Makefile"
    make -s -C "$VM_CACHE/kernel/usr/src/linux-headers-$version" M="$directory" modules >"$directory/log" 2>&1 ||
        { tail -20 "$directory/log" >&2; return 1; }
}

# busybox and the modules; everything else comes from this machine's file system.
vm_initramfs() {
    local version=$1 root=$VM_CACHE/initramfs modules=lib/modules/$1 busybox=$VM_CACHE/kernel/bin/busybox directory
    mkdir -p "$root"/{bin,proc,sys,dev,root} "$root/$modules/kernel"
    cp "$busybox" "$root/bin/busybox"
    for directory in net/{9p,sunrpc,core,dns_resolver,ipv4,ipv6} fs/{9p,configfs,netfs,nfs,nfs_common,nfsd,lockd} crypto lib \
        drivers/{infiniband/core,infiniband/sw/rxe,net,virtio}; do
        [ -d "$VM_CACHE/kernel/$modules/kernel/$directory" ] || continue
        mkdir -p "$root/$modules/kernel/$directory"
        cp -r "$VM_CACHE/kernel/$modules/kernel/$directory/." "$root/$modules/kernel/$directory"
    done
    strip --strip-debug -o "$root/$modules/kernel/siw.ko" "$VM_CACHE/siw/siw.ko"
    find "$root/$modules" -name '*.ko.xz' -exec xz -d {} +
    cp "$VM_CACHE/kernel/$modules"/modules.{builtin,order} "$root/$modules/"
    # Network drivers are many, and one is used.
    rm -r "$root/$modules"/kernel/net/ipv[46]/netfilter
    find "$root/$modules/kernel/drivers/net" -name '*.ko' ! -name 'virtio_net.ko' ! -name '*failover.ko' -delete
    "$busybox" depmod -b "$root" "$version"
    (cd "$root" && find . | "$busybox" cpio -o -H newc -R 0:0 >"$VM_CACHE/initramfs.cpio")
}

vm_knfsd() {
    local root=$VM_CACHE/knfsd
    vm_closure knfsd nfs-kernel-server rpcbind
    mkdir -p "$root"/{proc,dev,run,tmp,export,etc/exports.d,var/lib/nfs}
    printf 'root:x:0:0::/:/bin/false\n_rpc:x:101:65534::/run/rpcbind:/bin/false\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    echo '/export *(rw,no_root_squash,no_subtree_check,insecure,fsid=1,async)' >"$root/etc/exports"
}

# The guest's first process. The script's environment is this machine's file system, with fresh directories over
# those that it writes to.
vm_init() {
    cat <<INIT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $VM_MODULES; do /bin/busybox modprobe \$module || echo "no module \$module"; done
/bin/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose machine /root || echo "no root"
for directory in run tmp mnt; do /bin/busybox mount -t tmpfs tmp /root/\$directory; done
/bin/busybox mkdir /root/mnt/out
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none out /root/mnt/out || echo "no out"
for directory in proc sys dev; do /bin/busybox mount --move /\$directory /root/\$directory; done
exec /bin/busybox switch_root /root /mnt/out/guest-init
INIT
}

# The second one.
vm_guest_init() {
    cat <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root SERVER=$VM_HOST GUEST=$VM_GUEST DEVICE=$VM_DEVICE \\
    OUT=/mnt/out KNFSD=$VM_CACHE/knfsd BUSYBOX=$VM_CACHE/kernel/bin/busybox REMOVABLE=$VM_CACHE/removable/removable.ko
ulimit -l unlimited
ln -s /proc/self/fd /dev/fd
ip link set lo up
for device in /sys/class/net/*/device; do device=\${device%/device}; export INTERFACE=\${device##*/}; done
ip link set "\$INTERFACE" up
ip addr add $VM_GUEST/24 dev "\$INTERFACE"
rdma link add ${VM_DEVICE}0 type $VM_DEVICE netdev "\$INTERFACE" || echo "no $VM_DEVICE device"
cd /mnt
( . "$1" ) >/mnt/out/guest.log 2>&1 </dev/null
echo \$? >/mnt/out/status
dmesg >/mnt/out/dmesg.log
sync
echo o >/proc/sysrq-trigger
sleep 60
INIT
}

# QEMU's options for the clock, and for the network.
vm_clock() {
    if [ -n "${VM_ICOUNT:-}" ]; then
        # With sleep=off the clock would jump to the next timer whenever the guest waits for this machine's files.
        printf '%s\n' -accel tcg,thread=single -smp 1 -icount shift=1,sleep=on
    else
        printf '%s\n' -accel tcg,thread=multi -smp "${VM_CPUS:-2}"
    fi
}
vm_network() {
    local wire=${VM_WIRE:-} listens=off
    [ "${wire%%:*}" != listen ] || listens=on
    case $wire in
        '') printf '%s\n' -netdev user,id=net -device virtio-net-pci,netdev=net,romfile= ;;
        # Two machines on a wire need two addresses there as well.
        *) printf '%s\n' -netdev "stream,id=net,server=$listens,addr.type=unix,addr.path=${wire#*:}" \
            -device "virtio-net-pci,netdev=net,romfile=,host_mtu=9000,mac=52:54:00:77:00:0${VM_GUEST##*.}" ;;
    esac
}

vm_boot() {
    local out=$1 script=$2 seconds=${3:-300} qemu=$VM_CACHE/qemu version libraries init clock network tsc=unstable
    [ -z "${VM_ICOUNT:-}" ] || tsc=reliable
    version=$(<"$VM_CACHE/kernel/version")
    libraries=$qemu/usr/lib/x86_64-linux-gnu:$qemu/lib/x86_64-linux-gnu
    readarray -t clock < <(vm_clock)
    readarray -t network < <(vm_network)
    rm -f "$out/status"
    vm_guest_init "$script" >"$out/guest-init"
    chmod +x "$out/guest-init"
    # The init of this run is a second archive behind the first.
    init=$(mktemp -d)
    vm_init >"$init/init"
    chmod +x "$init/init"
    { cat "$VM_CACHE/initramfs.cpio"; (cd "$init" && echo init | "$VM_CACHE/kernel/bin/busybox" cpio -o -H newc -R 0:0); } \
        >"$out/initramfs" 2>/dev/null
    rm -r "$init"
    # An emulated "rep movs" is slow, so the guest is told to copy by other means; and it skips the tests that a
    # kernel makes of itself.
    # In the caller's process group, which may be ended as a whole.
    QEMU_MODULE_DIR=$qemu/usr/lib/x86_64-linux-gnu/qemu timeout --foreground -k 5 "$seconds" \
        "$qemu/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$qemu/usr/bin/qemu-system-x86_64" \
        -L "$qemu/usr/share/qemu" -L "$qemu/usr/share/seabios" \
        -M q35 "${clock[@]}" -cpu max,-erms,-fsrm -m 2G \
        -nodefaults -no-user-config -display none -monitor none -serial stdio -no-reboot \
        -kernel "$VM_CACHE/kernel/boot/vmlinuz-$version" -initrd "$out/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on nokaslr tsc=$tsc no_timer_check \
cryptomgr.notests apparmor=0 initcall_blacklist=init_encrypted,crypto_kdf108_init,jent_mod_init" \
        "${network[@]}" \
        -virtfs local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$out,mount_tag=out,security_model=none,multidevs=remap" \
        </dev/null >"$out/console.log" 2>&1 || true
    rm -f "$out/initramfs"
    [ -e "$out/status" ] || { tail -20 "$out/console.log"; cat "$out/guest.log"; fail "the guest did not finish in $seconds s (see $out/console.log)"; } >&2
    return "$(cat "$out/status")"
}
