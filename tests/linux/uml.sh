# Sourced, after packages.sh, by the tests that need a stock Linux NFS client: User Mode Linux,
# an unmodified Debian kernel that runs as a process.
#
#   uml_fetch              downloads the kernel once (Debian packages, unpacked, not installed)
#   uml_network            a tap device in this network namespace, $UML_TAP: here $UML_HOST, the guest $UML_GUEST
#   uml_locks [NAME [DIR]] what a guest runs first that takes locks by NFS version 3: rpcbind and rpc.statd, none of this machine's.
#                          The guest is called NAME (guest), and keeps in DIR (/run/statd) who is to hear that it has started anew
#   uml_boot OUT SCRIPT    boots, runs SCRIPT in the guest as root, returns its exit status
#
# SCRIPT is sourced by bash on this machine's file system (read-only). It finds
# $SERVER (this side's address), $OUT (OUT, writable from both sides) and empty
# directories under /mnt. Its output goes to OUT/guest.log, the kernel's to OUT/console.log.

UML_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/odafs-tests/uml
UML_TAP=tap0
UML_HOST=10.77.0.1
UML_GUEST=10.77.0.2

uml_fetch() {
    local lock
    mkdir -p "$UML_CACHE/packages"
    exec {lock}>"$UML_CACHE/lock"
    flock "$lock"
    [ -e "$UML_CACHE/complete-with-locks" ] || uml_unpack
    exec {lock}>&-
}

uml_unpack() {
    (
        cd "$UML_CACHE/packages"
        apt -qq update
        apt-get -qq -o APT::Sandbox::User=root download user-mode-linux busybox-static \
            rpcbind nfs-common libtirpc3 libtirpc-common libwrap0 netbase
        for package in *.deb; do dpkg -x "$package" "$UML_CACHE"; done
    ) || fail "cannot download user-mode-linux, busybox-static, rpcbind and nfs-common (Debian packages)"
    touch "$UML_CACHE/complete-with-locks"
}

uml_network() {
    ip link set lo up
    ip tuntap add dev "$UML_TAP" mode tap
    ip addr add "$UML_HOST/24" dev "$UML_TAP"
    ip link set "$UML_TAP" up
}

# The guest's first process. busybox is only there for insmod: the host may have no kmod.
uml_init() {
    local out=$1 script=$2 modules
    # Each is behind what it needs, and once.
    modules=$(cd "$UML_CACHE"/usr/lib/uml/modules/* && echo "$PWD" &&
        for module in nfsv2 nfsv3 nfsv4; do
            sed -n "s|^\(kernel/fs/nfs/$module\.ko\):|\1|p" modules.dep | tr ' ' '\n' | tac
        done | awk '!seen[$0]++')
    cat <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root SERVER=$UML_HOST OUT=/mnt/out
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run
mount -t tmpfs tmp /mnt
mkdir /mnt/out
mount -t hostfs -o "$out" none /mnt/out
cd $(head -1 <<<"$modules")
for module in $(tail -n +2 <<<"$modules" | tr '\n' ' '); do
    $UML_CACHE/bin/busybox insmod "\$module"
done
ip link set lo up
ip addr add $UML_GUEST/24 dev vec0
ip link set vec0 up
cd /mnt
( . "$script" ) >/mnt/out/guest.log 2>&1
echo \$? >/mnt/out/status
sync
halt -f
INIT
}

uml_locks() {
    local name=${1:-guest} statd=${2:-/run/statd}
    cat <<GUEST
# They look for names and transports in /etc, and keep what they know where they may write.
cp -a /etc /run/etc 2>/dev/null || true
mount --bind /run/etc /etc
cp "$UML_CACHE"/etc/{netconfig,services,rpc} /etc
echo '_rpc:x:65533:65534::/run:/bin/false' >>/etc/passwd
hostname $name
mkdir -p $statd/sm $statd/sm.bak
chown -R 65534:65534 $statd
export LD_LIBRARY_PATH=$UML_CACHE/lib/x86_64-linux-gnu:$UML_CACHE/usr/lib/x86_64-linux-gnu
"$UML_CACHE/sbin/rpcbind"
"$UML_CACHE/sbin/rpc.statd" --no-notify --state-directory-path $statd
# The client has started anew, says this.
says_it_started_anew() { "$UML_CACHE/sbin/sm-notify" -f -P $statd; }
LOCKS=yes
GUEST
}

uml_boot() {
    local out=$1 script=$2
    rm -f "$out/status"
    uml_init "$out" "$script" >"$out/init"
    chmod +x "$out/init"
    # It keeps a directory of its own in its home.
    HOME=$out timeout "${UML_TIMEOUT:-420}" "$UML_CACHE/usr/bin/linux.uml" mem=768M \
        rootfstype=hostfs rootflags=/ ro init="$out/init" \
        vec0:transport=tap,ifname=$UML_TAP,depth=128,gro=1 con=null con0=fd:0,fd:1 \
        </dev/null >"$out/console.log" 2>&1
    [ -e "$out/status" ] || { tail -20 "$out/console.log"; fail "the guest did not finish (see $out/console.log)"; }
    return "$(cat "$out/status")"
}
