#!/usr/bin/env bash
# Runs a command in a copy of this checkout, on a Debian 12 with only Python, make and certificates.
# `tools/bare_root.sh FOLDER COMMAND ...` makes the root in FOLDER if it is missing; it needs root and mmdebstrap.
# BARE_USER=NAME runs the command as an ordinary account. All mounts are in a namespace that ends with the command.
# The copy lies as a newcomer's does: in the home of its account, below a folder that no other account may enter and
# whose name has a blank.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=python3,python3-venv,make,ca-certificates

fail() {
    echo "bare root: $1" >&2
    exit 1
}
[ $# -ge 2 ] || fail "usage: $0 FOLDER COMMAND ..."
root=$(realpath -m "$1")
shift

[ "$(id -u)" -eq 0 ] || fail "needs root: run sudo $0"
inside=(unshare --mount --pid --fork --kill-child --propagation private)
why=$("${inside[@]}" mount -t tmpfs none /mnt 2>&1) ||
    fail "this machine refuses mounts and namespaces ($why): use a machine or a container with CAP_SYS_ADMIN"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing: apt-get install mmdebstrap"

# Mirrors, proxies and certificates are those of this machine.
make_root() {
    local partial=$root.partial sources=() file
    if grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release; then
        for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
            [ ! -s "$file" ] || sources+=("$file")
        done
    fi
    apt-config dump | grep '^Acquire::' >"$root.apt" || true
    if ! mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" --aptopt="$root.apt" \
        bookworm "$partial" "${sources[@]}"; then
        rm -rf --one-file-system "$partial" "$root.apt"
        fail "mmdebstrap failed, see above: check the network and Debian's mirror"
    fi
    rm "$root.apt"
    mv "$partial" "$root"
}

mkdir -p "$(dirname "$root")"
[ -e "$root/etc/debian_version" ] || make_root
as=()
own=(HOME=/root UV_CACHE_DIR=/var/cache/uv)
home=/root
if [ -n "${BARE_USER:-}" ]; then
    chroot "$root" id "$BARE_USER" >/dev/null 2>&1 || chroot "$root" useradd --create-home "$BARE_USER"
    as=(setpriv "--reuid=$BARE_USER" "--regid=$BARE_USER" --init-groups)
    home=/home/$BARE_USER
    own=("HOME=$home" "UV_CACHE_DIR=$home/.cache/uv")
fi
private="$home/a home"
mkdir -p "$root$private/pscluster" "$root$private/shared" "$root/var/cache/uv" "$root$home/.config/pip" "$root/etc/uv"
chmod 700 "$root$home" "$root$private"
copy() { [ ! -f "$1" ] || cat "$1" >"$root$2"; }
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/uv/uv.toml /etc/ssl/certs/ca-certificates.crt; do
    copy "$file" "$file"
done
copy "$HOME/.config/pip/pip.conf" "$home/.config/pip/pip.conf"
tar -c --exclude=./{.git,.venv,.cache,runs,docs/_build} --exclude='./.*_cache' --exclude=__pycache__ . |
    tar -x --no-same-owner -C "$root$private/pscluster"
[ "${#as[@]}" -eq 0 ] || chroot "$root" chown -R "$BARE_USER:" "$home"

uv_cache=${UV_CACHE_DIR:-$HOME/.cache/uv}
mkdir -p "$uv_cache"
environment=("${own[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
    PYTHONUNBUFFERED=1 UV_LINK_MODE=copy)
while IFS= read -r -d '' variable; do
    case ${variable%%=*} in
    UV_CACHE_DIR | UV_LINK_MODE) ;;
    CI | PIP_* | UV_* | SSL_CERT_* | *_CA_BUNDLE | *_proxy | *_PROXY) environment+=("$variable") ;;
    esac
done < <(env -0)
# Folders of packages that pip's configuration names.
mapfile -t folders < <({ cat /etc/pip.conf "$HOME/.config/pip/pip.conf" 2>/dev/null; env | grep '^PIP_'; } |
    tr ' =,' '\n' | sed -n 's|^file://||; s|/simple/*$||; /^\/./p' | sort -u)
for folder in "${folders[@]}"; do
    [ ! -d "$folder" ] || mkdir -p "$root$folder"
done

enter() {
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs run "$root/run"
    mount --bind "$uv_cache" "$root/var/cache/uv"
    [ ! -d ../shared ] || mount --bind ../shared "$root$private/shared"
    for folder in "${folders[@]}"; do
        [ ! -d "$folder" ] || mount --bind "$folder" "$root$folder"
    done
    cd "$root"
    mkdir -p .outside
    pivot_root . .outside
    cd "$private/pscluster"
    umount -l /.outside
    rmdir /.outside
    # Not `exec`: the first process of a machine buries orphans, which bash does while it waits.
    local status=0
    env -i "${environment[@]}" "$@" || status=$?
    exit "$status"
}
export root uv_cache private
"${inside[@]}" bash -euc "$(declare -p environment folders); $(declare -f enter); enter \"\$@\"" bash "${as[@]}" "$@"
