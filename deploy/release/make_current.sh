exec </dev/null
{% include "release/digest.sh" %}
[ -e "$root/releases/$key/environment/.complete" ] || refuse 77 "release $key is not there, or not its environment"
{% include "release/lock.sh" %}
was_unpacked=$root/releases/$key/.digest
[ ! -e "$was_unpacked" ] || [ "$(digest "$root/releases/$key")" = "$(cat "$was_unpacked")" ] ||
    refuse 77 "release $key is not as it was unpacked: \`fab deploy start\` from its checkout unpacks it again"
target=releases/$key
was=$(readlink "$root/current" || :)
[ "$was" = "$target" ] && { echo "unchanged: current is $key"; return; }
touch "$root/history"
last=$(tail -n 1 "$root/history")
# A node that lost power between link and record: the record catches up.
[ -z "$was" ] || [ "${last#* }" = "${was#releases/}" ] || echo "$(date +%s) ${was#releases/}" >>"$root/history"
rm -f "$root/.current"
ln -s "$target" "$root/.current"
mv -T "$root/.current" "$root/current"
echo "$(date +%s) $key" >>"$root/history"
sync -f "$root"
echo "changed: current is $key"
