exec </dev/null
cd "$root/environments" 2>/dev/null || { echo "unchanged: nothing is installed"; return; }
{% include "release/lock.sh" %}
touch -c "$key/.complete"
count=0 number=0
# Names of keys, which root made: no blanks. The newest come first.
for mark in $(ls -t -- ????????????????/.complete 2>/dev/null); do
    number=$((number + 1))
    [ "$number" -gt "$most" ] || continue
    # A process that runs in it holds it.
    flock -n -x "$mark" rm -rf -- "${mark%/.complete}" && count=$((count + 1))
done
[ "$count" -gt 0 ] && echo "changed: removed $count" || echo "unchanged: nothing to remove"
