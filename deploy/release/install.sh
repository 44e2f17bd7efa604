exec </dev/null
final=$root/environments/$key
[ -e "$final/.complete" ] && { echo "unchanged: environment $key"; return; }
[ -x "$python" ] || refuse 73 "no $python: install Python $version (sudo apt install python3)"
ask='import platform, struct, sys; print("%d.%d" % sys.version_info[:2], platform.machine(), struct.calcsize("P") * 8)'
found=$("$python" -c "$ask") ||
    refuse 73 "$python does not start: install it again (sudo apt install --reinstall python3)"
[ "$found" = "$version $machine 64" ] ||
    refuse 73 "$python: expected Python $version, $machine, 64 bits, got $found: the wheels would not fit"
[ -r "$wheels/SHA256SUMS" ] ||
    refuse 74 "$wheels/SHA256SUMS is not there: is the shared folder mounted, and the wheelhouse published?"
mkdir -p "$root/environments"
{% include "release/lock.sh" %}
[ -e "$final/.complete" ] && { echo "unchanged: environment $key"; return; }
work=$root/environments/.partial-$key
rm -rf "$final" "$root"/environments/.partial-*
free_kib=$(df -Pk "$root/environments" | { read -r _; read -r _ _ _ free _; echo "$free"; })
[ "$free_kib" -ge "$needed_kib" ] || refuse 71 "$root: the environment needs $((needed_kib / 1024)) MiB of disk," \
    "$((free_kib / 1024)) MiB are free: free $(((needed_kib - free_kib) / 1024 + 1)) MiB"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT HUP
# The server of the shared folder is not trusted with code: hash, run and install our copy.
said=$("$python" -I -S -c "$program" copy "$wheels" "$work/wheels" "$files" 2>&1) || {
    code=$?
    case $code in 71) said="$root: the disk is full: free some MiB beyond $((needed_kib / 1024))" ;; 72 | 74) ;;
        *) code=76 ;; esac
    refuse "$code" "$said"
}
wheels=$work/wheels
said=$("$python" -I -m zipfile -e "$wheels"/uv-*.whl "$work/installer" 2>&1) || {
    case $said in
        *"o space left"*) refuse 71 "$root: the disk is full: free some MiB beyond $((needed_kib / 1024))" ;;
        *) refuse 76 "$python cannot unpack the installer: $(echo "$said" | tail -n 1)" ;;
    esac
}
uv=$(echo "$work"/installer/uv-*.data/scripts/uv)
chmod +x "$uv"
mkdir "$work/temporary"
# No settings of the caller, and no second copy: uv links from its cache, on the same disk.
with_uv() {
    env -i PATH="$PATH" LC_ALL=C HOME="$work/temporary" TMPDIR="$work/temporary" UV_CACHE_DIR="$work/cache" \
        UV_NO_CONFIG=1 UV_NO_PROGRESS=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink \
        UV_COMPILE_BYTECODE_TIMEOUT=900 nice -n 10 "$uv" "$@" 2>&1
}
said=$(with_uv venv --quiet --relocatable --python "$python" "$work/environment" &&
    with_uv pip install --quiet --python "$work/environment/bin/python" --no-index --find-links "$wheels" \
        --no-deps --require-hashes --only-binary :all: --compile-bytecode -r "$wheels/requirements.txt") || {
    line=$(echo "$said" | tr -s '\n ' '  ')
    case $line in
        *"o space left"*|*"os error 28"*)
            refuse 71 "$root: the disk is full: free some MiB beyond $((needed_kib / 1024))" ;;
        *"ash mismatch"*)
            refuse 72 "$wheels: a wheel is not the one of the list: publish the wheelhouse again: $line" ;;
        *) refuse 76 "the environment could not be installed: ${line:-uv ended without a word}" ;;
    esac
}
if [ -n "$base" ]; then
    [ -d "$base" ] || refuse 77 "$base is not there: fab deploy start --no-jobs installs it"
    for site in "$work"/environment/lib/python*/site-packages; do printf '%s\n' "$layer" >"$site/pscluster.pth"; done
fi
lacking='import importlib.util as u, sys; sys.exit(" ".join(name for name in sys.argv[1:] if u.find_spec(name) is None) or 0)'
lacks=$("$work/environment/bin/python" -I -c "$lacking" $imports 2>&1) ||
    refuse 76 "the list of packages lacks $lacks, which jobs import: \`make requirements\` in" \
    "the checkout writes the whole list"
rm -rf "$work/cache" "$work/environment/.lock" "$wheels"
touch "$work/environment/.complete"
sync -f "$work/environment"
mv -T "$work/environment" "$final"
echo "changed: environment $key"
