final=$root/releases/$key
link=../../environments/$environment
python=$root/environments/$environment/bin/python
[ -e "$root/environments/$environment/.complete" ] ||
    { cat >/dev/null; refuse 77 "environment $environment is not complete: install it first"; }
mkdir -p "$root/releases"
{% include "release/lock.sh" %}
{% include "release/digest.sh" %}
new_link() { rm -f "$1/.environment"; ln -s "$link" "$1/.environment"; mv -T "$1/.environment" "$1/environment"; }
changed=$root/releases/.changed-$key
[ -d "$final" ] || [ ! -d "$changed" ] || mv -T "$changed" "$final" # power was lost between both moves below
if [ -d "$final" ] && [ "$(digest "$final")" = "$(cat "$final/.digest" 2>/dev/null)" ]; then
    cat >/dev/null
    [ "$(readlink "$final/environment")" = "$link" ] && { echo "unchanged: release $key"; return; }
    new_link "$final"
    echo "changed: release $key has environment $environment"
    return
fi
work=$root/releases/.partial-$key
rm -rf "$root"/releases/.partial-* "$changed"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT HUP
cat >"$work/code.whl" || refuse 71 "$root: the code could not be written; free some space"
echo "$sha256  $work/code.whl" | sha256sum --check --status || refuse 72 "the code arrived damaged: push it again"
said=$("$python" -m zipfile -e "$work/code.whl" "$work/code" 2>&1 && "$python" -m compileall -q "$work/code" 2>&1) || {
    case $said in
        *"o space left"*) refuse 71 "$root: the disk is full: free some space" ;;
        *) refuse 76 "the code could not be unpacked: $(echo "$said" | tail -n 1)" ;;
    esac
}
digest "$work/code" >"$work/code/.digest"
new_link "$work/code"
sync -f "$work/code"
# One that was changed by hand makes way; its processes start again.
trap '' TERM INT HUP
[ ! -d "$final" ] || mv -T "$final" "$changed"
mv -T "$work/code" "$final"
rm -rf "$changed"
echo "changed: release $key"
