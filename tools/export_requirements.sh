#!/bin/sh
# Writes the list of a node's packages from uv.lock: the dependencies and the installer, without `fab` and the development
# group. `--check` only reports whether the file fits the lock.
set -eu
cd "$(dirname "$0")/.."
file=deploy/release/requirements.txt
uv=$(sh tools/make_venv.sh --uv)
mkdir -p .cache
made=.cache/requirements.$$
trap 'rm -f "$made"' EXIT
{
    echo "# What a node installs. Written from uv.lock by \`make requirements\`; do not edit."
    "$uv" export --frozen --quiet --no-default-groups --group node --no-emit-project --no-header --no-annotate
} >"$made"
if [ "${1:-}" != --check ]; then
    mv "$made" $file
elif ! cmp -s "$made" $file; then
    echo "$file does not fit uv.lock: run 'make requirements' and commit the file" >&2
    exit 1
fi
