"""Publishing a folder on the storage server: only the missing files travel.

`missing_files` lists them; the caller puts them into the folder; `finish_folder` checks all files again and marks the
folder complete. Wheelhouses and prepared data use it alike: folders named after a key, with known hashes of their
files. Files of the same name and hash in sibling folders are linked, so that TensorFlow is uploaded once.
"""

import re
from collections.abc import Iterable, Mapping
from posixpath import basename, dirname

from deploy.release import checksums
from deploy.release.script import Refusal, RefusedError, checked, script

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]*")

_MISSING = """\
exec </dev/null
if [ -e "$folder/.complete" ] && printf '%s\\n' "$sums" | cmp -s - "$folder/SHA256SUMS"; then
    echo "unchanged: $folder is complete"
    return
fi
mkdir -p "$folder"
rm -f "$folder/.complete"
is() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }
printf '%s\\n' "$sums" | while read -r sha256 name; do
    is "$folder/$name" && continue
    for other in "$folder"/../*/"$name"; do
        if is "$other"; then ln -f "$other" "$folder/$name"; continue 2; fi
    done
    echo "missing $name"
done
free_kib=$(df -Pk "$folder" | { read -r _; read -r _ _ _ free _; echo "$free"; })
echo "free $free_kib"
echo "changed: $folder is to be filled"
"""

_FINISH = """\
exec </dev/null
[ -d "$folder" ] || refuse 77 "$folder is not there: publish it again"
broken=$(cd "$folder" && printf '%s\\n' "$sums" | sha256sum --check --quiet --strict 2>&1) ||
    refuse 72 "$folder: $(echo "$broken" | head -n 1): publish it again"
for file in "$folder"/* "$folder"/.[!.]*; do
    case " SHA256SUMS $names " in *" ${file##*/} "*) ;; *) rm -rf "$file" ;; esac
done
chmod a+rX "$folder" "$folder"/*
printf '%s\\n' "$sums" >"$folder/SHA256SUMS"
sync -f "$folder"
touch "$folder/.complete"
echo "changed: $folder is complete"
"""

_PRUNE = """\
exec </dev/null
count=0
for each in "$parent"/*; do
    case " $kept " in *" ${each##*/} "*) continue ;; esac
    case ${each##*/} in *[!0-9a-f]*) continue ;; ????????????????) ;; *) continue ;; esac
    [ -d "$each" ] || continue
    rm -f "$each/.complete"
    rm -rf "$each"
    count=$((count + 1))
done
[ "$count" -gt 0 ] && echo "changed: removed $count" || echo "unchanged: nothing to remove"
"""


def missing_files(folder: str, sums: Mapping[str, str]) -> str:
    """The script that lists the files of `sums` (SHA-256 by name) that `folder` lacks; `read_missing` parses it."""
    return script(_MISSING, _values(folder, sums))


def read_missing(stdout: str, sizes: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """Names of the missing files. Raises RefusedError when their `sizes`, in bytes, exceed the free space."""
    words = [line.partition(" ")[::2] for line in stdout.splitlines()]
    names = tuple(rest for word, rest in words if word == "missing")
    needed = sum((sizes or {}).get(name, 0) for name in names)
    free = [1024 * int(rest) for word, rest in words if word == "free" and rest.isdecimal()]
    if free and needed > free[0]:
        raise RefusedError(
            f"the storage server needs {needed >> 20} MiB more, {free[0] >> 20} MiB are free: free some space there",
            Refusal.NO_SPACE,
        )
    return names


def finish_folder(folder: str, sums: Mapping[str, str]) -> str:
    """The script that marks `folder` complete once it holds each file of `sums`, and removes other files."""
    return script(_FINISH, {**_values(folder, sums), "names": " ".join(sums)})


def prune_folders(parent: str, kept: Iterable[str]) -> str:
    """The script that removes the folders of `parent` that are named after keys, except `kept`."""
    if not dirname(parent).startswith("/"):
        raise ValueError(f"expected an absolute path, got {parent!r}")
    return script(_PRUNE, {"parent": parent, "kept": " ".join(checked(key) for key in kept)})


def _values(folder: str, sums: Mapping[str, str]) -> dict[str, str]:
    checked(basename(folder))
    for name in sums:
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected a plain file name, got {name!r}")
    return {"folder": folder, "sums": checksums.render(sums).rstrip("\n")}
