# What registration costs on this device, and what it costs to take a page back. Counted in instructions of the whole machine,
# as `speed`; client and server sleep while they wait.

step "strategies of registration"
odafs bench registration --fabric verbs --threads 1 --size 128KiB --file-size 4MiB --seconds "${REGISTRATION_SECONDS:-30}" ||
    die "the bench"
step "a page taken back by its stamp, and by a tag"
odafs bench registration --fabric verbs --revocation || die "the bench"
