{{ keep_copies }}
{% include "converge/packages_remember.sh" %}
{% include "converge/packages_mend.sh" %}
install() { {{ apt }} "$@" install --no-install-recommends {{ missing }}; }
plan() {
    { present | sed 's/^/there /'; install -s 2>/dev/null || :; } | awk '
        { sub(/:.*/, "", $2) } $1 == "there" { there[$2] } $1 == "Inst" && !($2 in there) { print $2 }
    ' | LC_ALL=C sort -u >{{ planned }}.new
    sync {{ planned }}.new; mv -f {{ planned }}.new {{ planned }}
}
{# Fails like its command, but waits two minutes for the locks for which apt itself does not wait. #}
patiently() {
    tries=0
    until "$@" >/dev/null 2>{{ log }}; do
        grep -q 'Could not get lock .*/\(lists\|archives\)/lock' {{ log }} && [ $tries -lt 60 ] || return 100
        tries=$((tries + 1)); sleep 2
    done
}
refresh() { {{ apt }} update; }
{# The exit codes of apt also speak for sources and packages that are not ours. #}
there() {
    for package in {{ missing }}; do
        dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || return 1
    done
}
trap remember EXIT; trap 'exit 143' TERM; trap 'exit 130' INT HUP
plan
if ! patiently install && ! there; then
    held=
    patiently refresh || { cat {{ log }} >&2; held=$(grep 'Could not get lock' {{ log }} || :); }
    remember; plan
    if ! patiently install && ! there; then
        cat {{ log }} >&2
        held=$held$(grep 'Could not get lock' {{ log }} || :)
        if [ -n "$held" ]; then echo {{ busy }}; else echo {{ sources }}; fi >&2
        exit 100
    fi
fi
rm -f {{ log }}
