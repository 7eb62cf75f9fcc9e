# The whole of it on verbs: what the machine offers, the demonstration, many clients at a time, hostile peers.

step "odafs devices, odafs doctor"
odafs devices || die "devices"
odafs devices | grep -q "${DEVICE}0" || die "devices does not know ${DEVICE}0"
odafs doctor >/tmp/doctor || true
grep -q "${DEVICE}0" /tmp/doctor || { cat /tmp/doctor; die "doctor does not know ${DEVICE}0"; }
step "odafs demo"
mkdir /tmp/tree
for i in {1..64}; do head -c 65536 /dev/urandom >"/tmp/tree/$i"; done
odafs demo --fabric verbs --wait block --seconds 2 --dir /tmp/tree || die "demo"
export ODAFS_VERBS_ADDRESS=$GUEST
for test in direct coherence kill hostile hostile_rdma; do
    step "the tests of $test for a device"
    tests/$test --ignored --list | grep -q ': test$' || die "there are none"
    tests/$test --ignored --test-threads=1 || die "the tests"
done
for version in 3 4_2; do
    step "direct readers beside Linux' own client by version ${version/_/.} and the local file system"
    test=direct_readers_beside_linux_by_version_${version}_and_the_local_file_system
    tests/outsiders --ignored --nocapture --exact $test >/tmp/linux || { cat /tmp/linux; die "what readers saw is not explained"; }
    grep -q '1 passed' /tmp/linux || die "there is no such test"
done
step "calls by every design and strategy of registration"
tests/rdma --test-threads=1 || die "the tests"
step "registration, and a page taken back, measured in brief"
odafs bench registration --fabric verbs --threads 1 --size 128KiB --file-size 4MiB --rounds 1 --seconds 2 || die "the bench"
odafs bench registration --fabric verbs --revocation --rounds 1 || die "the bench"
