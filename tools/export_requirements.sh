#!/bin/sh
# Writes the lists of a node's packages from uv.lock: the dependencies and the installer, without `fab` and the
# development group; the second is for nodes with a GPU. `--check` only reports whether the files fit the lock.
set -eu
cd "$(dirname "$0")/.."
uv=$(sh tools/make_venv.sh --uv)
mkdir -p .cache
made=.cache/requirements.$$
trap 'rm -f "$made"' EXIT
list() {
    file=$1
    check=$2
    shift 2
    {
        echo "# What a node installs. Written from uv.lock by \`make requirements\`; do not edit."
        "$uv" export --frozen --quiet --no-default-groups --no-emit-project --no-header --no-annotate \
            --prune bcrypt --prune fabric --prune pip "$@"
    } >"$made"
    if [ "$check" != --check ]; then
        mv "$made" "$file"
    elif ! cmp -s "$made" "$file"; then
        echo "$file does not fit uv.lock: run 'make requirements' and commit the file" >&2
        exit 1
    fi
}
list deploy/release/requirements.txt "${1:-}" --prune cryptography
# Where a node has the role `service`.
list deploy/release/requirements-service.txt "${1:-}" --extra recognise
list deploy/release/requirements-gpu-service.txt "${1:-}" --extra gpu --extra recognise --no-emit-package tensorflow-cpu
# tensorflow and tensorflow-cpu bring the same folder.
list deploy/release/requirements-gpu.txt "${1:-}" --prune cryptography --extra gpu --no-emit-package tensorflow-cpu
