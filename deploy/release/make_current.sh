exec </dev/null
{% include "release/verify.sh" %}
[ -e "$root/releases/$key/environment/.complete" ] || refuse 77 "release $key is not there, or not its environment"
{% include "release/lock.sh" %}
target=releases/$key
folder=$root/$target
note=
link=$(readlink "$folder/environment")
if [ -n "$signature" ]; then
    verify "release $key" "$statement" "$signature"
    printf '%s\n' "$statement" >"$folder/.statement"
    printf '%s\n' "$signature" >"$folder/.signature"
elif [ -e "$folder/.signature" ]; then
    statement=$(cat "$folder/.statement")
    verify "release $key" "$statement" "$(cat "$folder/.signature")"
elif [ ! -e "$signers" ] || grep -qx "$key" "$root/unsigned"; then
    note=", unsigned: it was here before this node pinned a signer"
    statement="pscluster release $key - ${link##*/}"
else
    verify "release $key" "" ""
fi
case $statement in "pscluster release $key "*" ${link##*/}") ;;
    *) refuse 78 "release $key with environment ${link##*/} is not what the operator signed" ;; esac
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
echo "changed: current is $key$note"
