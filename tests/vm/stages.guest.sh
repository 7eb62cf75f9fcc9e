# Runs the stages $STAGES one after another, each with file systems and processes of its own that end with it. Its output
# goes to $OUT/STAGE.log.

# Programs from the local memory: the other side's files are slow.
mkdir /run/odafs
cp -r "$OUT/programs/." /run/odafs
export PATH=/run/odafs:$PATH ENTRIES MEGABYTES READ_ORDER STAGE_SECONDS VERSIONS SCRIPTS

failed=
for stage in $STAGES; do
    at=$SECONDS status=0
    timeout -k 5 "$STAGE_SECONDS" unshare --mount --pid --fork --kill-child --mount-proc \
        bash "$SCRIPTS/stage.sh" "$stage" >"$OUT/$stage.log" 2>&1 || status=$?
    case $status in
        0) result=passed ;;
        124 | 137) result="FAILED: not done in $STAGE_SECONDS s" ;;
        *) result="FAILED with status $status" ;;
    esac
    [ $status = 0 ] || failed=1
    echo "$DEVICE $stage $result ($((SECONDS - at)) s)" | tee -a "$OUT/results"
done
[ -z "$failed" ]
