# Sourced, after packages.sh: our programs with the feature `verbs`.
#
#   verbs_need       installs what they are built with
#   verbs_build      builds them, in a target directory of their own: what is in the other then starts without RDMA's
#                    libraries. Sets $VERBS_PROGRAMS, a directory with odafs and tests/NAME

# The tests with some for a device: package and name. The fabric has some beside its code, too, as tests/fabric.
VERBS_TESTS="odafs-fabric:suite odafs:direct odafs:rdma odafs-tests:coherence odafs-tests:kill odafs-tests:hostile odafs-tests:hostile_rdma odafs-tests:outsiders"

verbs_need() {
    need cmake=cmake pkg-config=pkg-config
    need_installed libclang-dev libnl-3-dev libnl-route-3-dev libibverbs-dev librdmacm-dev
}

verbs_build() {
    local root target built test targets
    [ -z "${VERBS_PROGRAMS:-}" ] || return 0
    verbs_need
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    target=${CARGO_TARGET_DIR:-$root/target}/verbs
    # Optimised, but built in a third of the time of a release.
    targets=(-p odafs-cli --bin odafs --features odafs-cli/verbs)
    for test in $VERBS_TESTS; do targets+=(-p "${test%:*}" --test "${test#*:}" --features "${test%:*}/verbs"); done
    built=$(cd "$root" && export CARGO_TARGET_DIR=$target CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 && json=--message-format=json-render-diagnostics &&
        cargo build --locked --release "$json" "${targets[@]}" &&
        cargo test --no-run --locked --release "$json" -p odafs-fabric --lib --features odafs-fabric/verbs) ||
        fail "it does not build with the feature verbs"
    VERBS_PROGRAMS=$target/programs
    rm -rf "$VERBS_PROGRAMS"
    mkdir -p "$VERBS_PROGRAMS/tests"
    verbs_program odafs-cli odafs "$VERBS_PROGRAMS/odafs" <<<"$built"
    for test in $VERBS_TESTS; do verbs_program "${test%:*}" "${test#*:}" "$VERBS_PROGRAMS/tests/${test#*:}" <<<"$built"; done
    verbs_program odafs-fabric odafs_fabric "$VERBS_PROGRAMS/tests/fabric" <<<"$built"
}

# verbs_program PACKAGE NAME COPY: without its symbols, the guest reads it slowly.
verbs_program() {
    local path
    path=$(grep "#$1@" | sed -n 's|.*"executable":"\([^"]*/'"$2"'\(-[0-9a-f]*\)\?\)".*|\1|p' | tail -1)
    [ -n "$path" ] || fail "no program $2 of $1 was built"
    strip -o "$3" "$path"
}
