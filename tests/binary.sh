# Sourced, with packages.sh, by the test scripts: odafs_binary sets and exports $ODAFS, the program under test.
# $ODAFS if it is set already, else target/release/odafs or target/debug/odafs, whichever is
# newer, else a debug build.
# odafs_build builds target/debug/odafs.
odafs_binary() {
    local root target newest
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    target=${CARGO_TARGET_DIR:-$root/target}
    if [ -z "${ODAFS:-}" ]; then
        newest=$(ls -t "$target/release/odafs" "$target/debug/odafs" 2>/dev/null | head -1 || true)
        if [ -z "$newest" ]; then
            odafs_build || fail "odafs does not build"
            newest=$target/debug/odafs
        fi
        ODAFS=$newest
    fi
    [ -x "$ODAFS" ] || fail "no program at $ODAFS"
    # For scripts that go elsewhere.
    ODAFS=$(realpath "$ODAFS")
    export ODAFS
}

# With an example, and of the workspace: built alone, the program would have other features of others' crates than the tests
# have, and all would be built twice.
odafs_build() { (cd "$(dirname "${BASH_SOURCE[0]}")/.." && cargo build --locked --workspace --bin odafs --example read); }
