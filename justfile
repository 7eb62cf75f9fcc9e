# What people type. `just` lists it.

_list:
    @just --list --unsorted

# Build the program: target/debug/odafs
build:
    cargo build

# Build it as it is used: target/release/odafs
release:
    cargo build --release

# Build it with RDMA devices (needs cmake, libclang and rdma-core's headers: docs/RDMA.md)
verbs:
    cargo build --release --features verbs

# See what it does
demo *OPTIONS:
    cargo run --release -- demo {{OPTIONS}}

# Serve a directory
serve DIR *OPTIONS:
    cargo run --release -- serve {{DIR}} {{OPTIONS}}

# The tests that need nothing but a toolchain
test *OPTIONS:
    cargo test --workspace --locked {{OPTIONS}}

# What every change must pass
check:
    .ci/run format clippy docs

# All stages, or those named
ci *STAGES:
    .ci/run {{STAGES}}

# Count the lines without tests, by room and by part
lines:
    .ci/lines

# Run the simulator for so long
simulate SECONDS="120":
    ODAFS_SECONDS={{SECONDS}} .ci/run simulation

# Fuzz a target (needs nightly and cargo-fuzz: fuzz/README.md)
fuzz TARGET SECONDS="600":
    cargo +nightly fuzz run {{TARGET}} -- -max_total_time={{SECONDS}} -max_len=4096 -malloc_limit_mb=64 -timeout=5

# Run an example of the client, against a server that runs
example NAME *ARGUMENTS:
    cargo run -p odafs --example {{NAME}} -- {{ARGUMENTS}}

# The documentation of all crates
doc:
    cargo doc --workspace --no-deps --open

# Licences, sources and advisories of dependencies (needs cargo-deny)
deny:
    .ci/run deny

# Manual pages and completions, into a directory
dist DIR="target/dist":
    mkdir -p {{DIR}}
    cargo run --release -- man {{DIR}}
    for shell in bash zsh fish; do cargo run --release -- completions $shell > {{DIR}}/odafs.$shell; done
