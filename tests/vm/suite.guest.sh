# What every fabric promises, on verbs.

step "the fabric's suite"
ODAFS_VERBS_ADDRESS=$GUEST tests/suite --ignored --test-threads=1 || die "the suite"
