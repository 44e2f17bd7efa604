#!/bin/sh
# Makes .venv from uv.lock with a Python of this machine, or the one that $PYTHON names. Does nothing when .venv is
# complete for this lock, this Python and this folder. `--find` only prints the path of the Python, `--uv` that of uv.
set -eu
cd "$(dirname "$0")/.."
uv_version=0.13.8
uv=.cache/uv-$uv_version
done_mark=.venv/made-from

exec 3>&2 # a trap may fire while a command's own output goes to a log
explained=
say() { explained=1; echo "make .venv: $*" >&3; }
# The shell's own line has the cause, such as a file system that is read-only or full.
trap '[ $? -eq 0 ] || [ "$explained" ] || say "stopped there: make $(pwd) writable with 2 GB free, or copy it to where it is; then run it again"' EXIT

# Prints "VERSION EXECUTABLE" of the first usable Python, else one line with the obstacle.
find_python() {
    worst_code=9 reason="no Python found: install Python 3.11, 3.12 or 3.13 (Debian: sudo apt install python3 python3-venv)"
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.11 python3.12 python3.13; fi
    for candidate; do
        path=$(command -v "$candidate" 2>/dev/null) || {
            [ -z "${PYTHON:-}" ] || reason="PYTHON=$candidate does not exist: name a Python 3.11, 3.12 or 3.13"
            continue
        }
        code=0
        line=$("$path" tools/check_python.py 2>/dev/null) || code=$?
        if [ "$code" -eq 0 ]; then
            echo "$line"
            return 0
        fi
        # A version manager's shim for a Python that is not installed fails without a line that we could show.
        if [ -z "$line" ] || [ "$code" -lt 3 ] || [ "$code" -gt 5 ]; then
            code=6 line="does not start, or is older than 3.7: install Python 3.11, 3.12 or 3.13"
        fi
        if [ "$code" -lt "$worst_code" ]; then
            worst_code=$code reason="$path: $line"
        fi
    done
    say "$reason"
    return 1
}

# pip installs uv into a temporary environment; only its binary stays, moved into place when it is complete.
fetch_uv() {
    workshop=.cache/uv-workshop
    rm -rf "$workshop"
    if ! { "$python" -m venv "$workshop" &&
        "$workshop/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "uv==$uv_version"
    } >.cache/uv-workshop.log 2>&1; then
        say "cannot fetch uv $uv_version with pip: $(tail -n 1 .cache/uv-workshop.log); check the network (log: .cache/uv-workshop.log)"
        return 1
    fi
    mv "$workshop/bin/uv" "$uv"
    rm -rf "$workshop" .cache/uv-workshop.log
}

found=$(find_python) || { explained=1; exit 1; }
python=${found#* }
if [ "${1:-}" = --find ]; then
    echo "$python"
    exit 0
fi

if [ "${1:-}" = --uv ]; then
    mkdir -p .cache
    [ -x "$uv" ] || fetch_uv || exit 1
    echo "$uv"
    exit 0
fi

# "VERSION EXECUTABLE in FOLDER LOCK_SUM" of the finished .venv. Its Python may have been written under another of its
# names (python3, python3.11): the file counts.
marked() {
    mark=$(cat $done_mark 2>/dev/null) || return 0
    version=${mark%% *} rest=${mark#* }
    echo "$version $(readlink -f "${rest%% in *}" || echo "${rest%% in *}") in ${rest#* in }"
}

lock_sum=$(sha256sum <uv.lock)
made_with="${found%% *} $(readlink -f "$python" || echo "$python") in $(pwd)"
finished() { [ "$(marked)" = "$made_with $lock_sum" ]; }

# Ctrl-C in the first second of `fab` would show a traceback, and `fab --version` Fabric's alone.
quiet_beginning() {
    fab=.venv/bin/fab
    if [ ! -f $fab ] || grep -q own_version $fab; then return 0; fi
    .venv/bin/python tools/write_fab.py
}

finished && quiet_beginning && exit 0

mkdir -p .cache
if command -v flock >/dev/null; then # of two makes at once the second waits, then finds the work done
    exec 9>.cache/venv.lock
    flock 9
    finished && quiet_beginning && exit 0
fi
trap 'say "interrupted; run it again, it resumes there"; exit 130' INT TERM HUP
case "$(marked)" in
"$made_with"*) ;;
?*) rm -rf .venv ;; # another Python, or the folder was moved and the scripts in .venv/bin name the old place
esac
rm -f $done_mark
[ -x "$uv" ] || fetch_uv || exit 1

say "installing the packages of uv.lock for Python ${found%% *} (about 450 MB to fetch the first time)"
explained= # that was no reason
quiet=--quiet
[ -t 2 ] && quiet=
status=0
# Bytecode now: where PYTHONDONTWRITEBYTECODE is set, or .venv is read-only, each process would compile TensorFlow again.
env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 \
    UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}" \
    "$uv" sync --frozen $quiet --python "$python" 9>&- || status=$?
if [ "$status" -ne 0 ]; then
    say "the installation did not finish (uv ended with $status, see above); run it again, it resumes there"
    exit 1
fi
quiet_beginning
echo "$made_with $lock_sum" >$done_mark
