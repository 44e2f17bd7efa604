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
trap remember EXIT; trap 'exit 143' TERM; trap 'exit 130' INT HUP
plan; install >/dev/null || { {{ apt }} update >/dev/null && remember && plan && install; }
