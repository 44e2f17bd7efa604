umask 077
exec 9>>"$1"
flock -E 75 -w "$3" 9 || {
    code=$?
    [ $code -ne 75 ] || echo "another operator changes these nodes ($(cat "$1")): run it again when that has ended;" \
        "the lock of a machine that went off ends within a quarter of an hour"
    exit $code
}
echo "$2 since $(date -u '+%F %T UTC')" >"$1"
echo free $(systemctl list-units --plain --no-legend --state=active,activating 'pscluster-job@*' 2>/dev/null |
    sed -n '/-task/d; s/^pscluster-job@\([^ ]*\)\.service.*/\1/p')
trap 'kill $pause 2>/dev/null; exit 0' TERM
while :; do sleep 15 9>&- >/dev/null 2>&1 & pause=$!; wait $pause; echo; done
