# What every fabric promises, on verbs.

step "the fabric's suite"
ODAFS_VERBS_ADDRESS=$GUEST tests/suite --ignored --test-threads=1 || die "the suite"
step "what takes a look inside"
ODAFS_VERBS_ADDRESS=$GUEST tests/fabric --ignored --test-threads=1 verbs:: || die "the fabric's own tests"
