"""Scripts for releases on a node: unpack one beside the others, make one current, list them, remove old ones.

`deploy.release.history` decides from the output of `list_releases`; these scripts decide nothing.
"""

from collections.abc import Iterable

from deploy.release.code_wheel import CodeWheel
from deploy.release.environment_script import LOCK
from deploy.release.script import ROOT, checked, script

_UNPACK = (
    """\
final=$root/releases/$key
link=../../environments/$environment
python=$root/environments/$environment/bin/python
[ -e "$root/environments/$environment/.complete" ] ||
    { cat >/dev/null; refuse 77 "environment $environment is not complete: install it first"; }
mkdir -p "$root/releases"
"""
    + LOCK
    + """\
new_link() { rm -f "$1/.environment"; ln -s "$link" "$1/.environment"; mv -T "$1/.environment" "$1/environment"; }
if [ -d "$final" ]; then
    cat >/dev/null
    [ "$(readlink "$final/environment")" = "$link" ] && { echo "unchanged: release $key"; return; }
    new_link "$final"
    echo "changed: release $key has environment $environment"
    return
fi
work=$root/releases/.partial-$key
rm -rf "$root"/releases/.partial-*
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
new_link "$work/code"
sync -f "$work/code"
mv -T "$work/code" "$final"
echo "changed: release $key"
"""
)

_MAKE_CURRENT = (
    """\
exec </dev/null
[ -e "$root/releases/$key/environment/.complete" ] || refuse 77 "release $key is not there, or not its environment"
"""
    + LOCK
    + """\
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
"""
)

_LIST = """\
exec </dev/null
[ -d "$root" ] || { echo "unchanged: nothing is installed"; return; }
cd "$root"
now=$(readlink current) && echo "current ${now#releases/}"
for each in environments/*/.complete; do
    [ ! -e "$each" ] || { each=${each%/.complete}; echo "environment ${each#environments/}"; }
done
for each in releases/*/environment; do
    [ -L "$each" ] || continue
    environment=$(readlink "$each")
    folder=${each%/environment}
    echo "release ${folder#releases/} ${environment##*/} $(stat -c %Y "$folder")"
done
[ ! -e history ] || while read -r seconds key; do echo "history $seconds $key"; done <history
echo "unchanged: listed"
"""

_REMOVE = (
    """\
exec </dev/null
[ -d "$root" ] || { echo "unchanged: nothing is installed"; return; }
"""
    + LOCK
    + """\
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
"""
)


def unpack_release(code: CodeWheel, environment: str, *, root: str = ROOT) -> str:
    """The script that makes a release of the code wheel on its stdin, with the environment of this key.

    An existing release keeps its files; only its link to the environment changes.
    """
    values = {"root": root, "key": checked(code.key), "sha256": code.sha256, "environment": checked(environment)}
    return script(_UNPACK, values)


def make_current(key: str, *, root: str = ROOT) -> str:
    """The script that atomically makes the release of this key the current one, and records the time."""
    return script(_MAKE_CURRENT, {"root": root, "key": checked(key)})


def list_releases(*, root: str = ROOT) -> str:
    """The script that lists the node's releases for `deploy.release.history.read`."""
    return script(_LIST, {"root": root})


def remove(releases: Iterable[str], environments: Iterable[str], *, root: str = ROOT) -> str:
    """The script that removes releases and environments by key, and all unfinished work. It refuses the current one."""
    folders = [f"releases/{checked(key)}" for key in releases]
    folders += [f"environments/{checked(key)}" for key in environments]
    return script(_REMOVE, {"root": root, "folders": " ".join(folders)})
