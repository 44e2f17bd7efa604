"""The one question a node is asked: a POSIX shell script, run as root, whose answer `fact_reader` reads. Pure.

One script and few processes: on a Pi 3 each costs some ten milliseconds, and a `start` that finds everything in
place is little more than this.
"""

from deploy.cluster.places import ENVIRONMENTS, ROOT, UNIT_FOLDER
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import Questions
from deploy.converge.subjects import SUBJECTS

SECTION = "@@ "
SILENT = "no answer"
PUBLISHED_SECONDS = 20
"""How long a shared folder may take to say what is in it, its mount included."""

LEFTOVER_SECONDS = 30
"""For the sizes of 22,000 files on a slow card; those that were not looked at in time count as taken."""
_PUBLISHED = 'for folder; do for mark in "$folder"/*/.complete; do [ -e "$mark" ] && echo "$mark"; done; done'
_KILLED = 137
"""The exit code of `timeout -s KILL` for a command that did not end in time."""
_UNIT_KEYS = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,Result,MainPID,NRestarts,StatusText,"
    "ExecMainStartTimestampMonotonic"
)


def fact_script(questions: Questions) -> str:
    """The script; every value in it is quoted."""
    listed = (
        f"timeout -s KILL {PUBLISHED_SECONDS} sh -c {quoted(_PUBLISHED)} sh {quoted(*questions.published)}\n"
        f'[ $? -ne {_KILLED} ] || echo "{SILENT}"'
    )
    subjects = "".join(subject.script(questions) for subject in SUBJECTS)
    prelude = f"""\
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
section() {{ printf '\\n{SECTION}%s\\n' "$1"; }}
"""
    rest = f"""\
section system
([ ! -r /etc/os-release ] || . /etc/os-release; printf '%s\\n%s\\n' "$ID" "$VERSION_ID")
for command in 'uname -m' 'getconf LONG_BIT' 'uname -r' nproc; do echo "$($command 2>/dev/null)"; done
section systemd; systemctl --version 2>/dev/null | head -n 1
section model; [ -r /proc/device-tree/model ] && tr -d '\\000' </proc/device-tree/model
section python
python3 -c 'import struct, sys; print(sys.version.split()[0], struct.calcsize("P") * 8)' 2>/dev/null
section memory; cat /proc/meminfo
section controllers; cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null
section cmdline; for file in /boot/firmware/cmdline.txt /boot/cmdline.txt; do [ -f $file ] && echo $file && break; done
section boot; cat /proc/uptime
section space
for folder in {quoted(*questions.space)}; do
    there=$folder; while [ ! -d "$there" ]; do there=${{there%/*}}; there=${{there:-/}}; done
    df -Pk "$there" | awk -v folder="$folder" 'NR == 2 {{ print folder, $4 }}'
done
section leftovers
for folder in {ENVIRONMENTS} {quoted(*questions.unfinished)}; do
    set --
    for left in "$folder"/.partial-* "$folder"/*; do
        case $left in */.partial-*) ;; *) [ ! -e "$left/.complete" ] || continue ;; esac
        [ ! -d "$left" ] || set -- "$@" "$left"
    done
    [ $# -eq 0 ] || timeout {LEFTOVER_SECONDS} du -sk "$@" 2>/dev/null |
        awk -v folder="$folder" '{{ total += $1 }} END {{ print folder, total + 0 }}'
done
section addresses; ip -o -4 addr show
section units
shown=$(systemctl list-unit-files --plain --no-legend 'pscluster-*' 2>/dev/null | awk '{{ print $1 }}' | grep -v '@\\.')
systemctl show -p {_UNIT_KEYS} {quoted(*questions.units)} $shown 2>/dev/null
section processes
for pid in $(systemctl show --value -p MainPID {quoted(*questions.units)} $shown 2>/dev/null | sort -u); do
    [ "$pid" -gt 1 ] && echo "$pid $(awk '/^RssAnon:/ {{ print $2 }}' /proc/$pid/status) $(readlink /proc/$pid/cwd)"
done
section mounts; cat /proc/self/mountinfo
section real; for folder in {quoted(*questions.bound)}; do echo "$folder $(readlink -m "$folder")"; done
section fstab; cat /etc/fstab 2>/dev/null
section exports; command -v exportfs >/dev/null && exportfs -s 2>/dev/null
section environments; for mark in {ROOT}/environments/*/.complete; do [ -e "$mark" ] && echo "$mark"; done
section releases
for release in {ROOT}/releases/*/; do
    [ -e "$release/environment" ] && echo "${{release%/}} $(readlink "$release/environment")"
done
section current; readlink {ROOT}/current
section data; for mark in {ROOT}/prepared/*/.complete; do [ -e "$mark" ] && echo "$mark"; done
section published
{listed if questions.published else ":"}
section listening; ss -Htlnp 2>/dev/null
section temperature; cat /sys/class/thermal/thermal_zone0/temp 2>/dev/null
section throttled; vcgencmd get_throttled 2>/dev/null
section files
for file in {UNIT_FOLDER}/pscluster-* {UNIT_FOLDER}/pscluster.slice /etc/pscluster/* {quoted(*questions.files)}; do
    [ -e "$file" ] || [ -L "$file" ] && printf '%s\\0' "$file"
done | sort -zu | tar --null --no-recursion --ignore-failed-read --absolute-names -cf - -T - 2>/dev/null | base64
section end
"""
    return prelude + subjects + rest
