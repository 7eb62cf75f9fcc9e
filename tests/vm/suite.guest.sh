# What every fabric promises, on verbs.

step "the fabric's suite"
ODAFS_VERBS_ADDRESS=$GUEST tests/suite verbs --ignored --test-threads=1 || die "the suite"
