# What every fabric promises, on verbs.

step "the fabric's suite"
tests/suite --ignored --list | grep -q ': test$' || die "there are none"
ODAFS_VERBS_ADDRESS=$GUEST tests/suite --ignored --test-threads=1 || die "the suite"
step "what takes a look inside"
tests/fabric --ignored --list verbs:: | grep -q ': test$' || die "there are none"
ODAFS_VERBS_ADDRESS=$GUEST tests/fabric --ignored --test-threads=1 verbs:: || die "the fabric's own tests"
