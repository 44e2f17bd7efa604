exec </dev/null
[ -d "$root" ] || { echo "unchanged: nothing is installed"; return; }
{% include "release/lock.sh" %}
now=$(readlink "$root/current" || :)
count=0
for folder in $folders; do
    [ "$folder" = "$now" ] && refuse 75 "$folder is current: it stays"
    [ -d "$root/$folder" ] || continue
    # Renamed first: a partly removed folder must not look complete.
    mv -T "$root/$folder" "$root/${folder%/*}/.partial-removed-${folder#*/}"
    count=$((count + 1))
done
for left in "$root"/releases/.partial-* "$root"/environments/.partial-*; do
    [ -e "$left" ] || continue
    case $left in *.partial-removed-*) ;; *) count=$((count + 1)) ;; esac
    rm -rf "$left"
done
[ "$count" -gt 0 ] && echo "changed: removed $count" || echo "unchanged: nothing to remove"
