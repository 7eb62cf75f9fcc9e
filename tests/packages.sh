# Sourced by the test scripts: what they all need.

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# Runs apt-get as root, whichever way this machine offers, and after other scripts that do so.
apt() {
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    flock "${TMPDIR:-/tmp}/odafs-tests-apt" "${root[@]}" apt-get "$@"
}

# Installs those of the given PROGRAM=PACKAGE pairs whose program is missing.
need() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} = 0 ] && return
    { apt -qq update && apt -qq -y --no-install-recommends install "${missing[@]}"; } >/dev/null ||
        fail "cannot install ${missing[*]}: install by hand and run again"
}

# Installs those of the given packages that are missing: for what is no program.
need_installed() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    { apt -qq update && apt -qq -y --no-install-recommends install "${missing[@]}"; } >/dev/null ||
        fail "cannot install ${missing[*]}: install by hand and run again"
}
