ours=$1 answers=; export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
section() { printf {{ section }} "$1"; }
{# An account of the node may have chosen the name: of odd characters it says nothing. #}
plain() { case $1 in *[!A-Za-z0-9_./:@+=,-]*) echo ;; *) echo "$1" ;; esac; }
{% include "release/digest.sh" %}
section shell; echo "$(id -u) $ours"
{{ subjects }}
section packages
dpkg-query -W -f '${Package} ${db:Status-Abbrev} ${Version}\n' {{ of.packages or ["dpkg"] }} 2>/dev/null
section users; getent passwd {{ places.ACCOUNTS }}
section uid_owners{% if of.uids %}; getent passwd {{ of.uids }}{% endif %}

section gid_owners{% if of.uids %}; getent group {{ of.uids }}{% endif %}

section powers
for account in {{ places.ACCOUNTS }}; do
    can=$(getent passwd "$account" | sed 's/.*://' | grep -vE '/(nologin|false)$')
    for group in $(id -Gn "$account" 2>/dev/null); do
        [ "$group" = "$account" ] || can="$can group:$group"
    done
    [ -z "$can" ] || echo "$account" $can
done
section sources
{% if of.peers %}
printf 'route get %s\n' {{ of.peers }} | ip -o -force -batch - 2>/dev/null
{% endif %}
{# The file may end its shell. #}
section os_id; (. /etc/os-release; echo "$ID") 2>/dev/null
section os_version; (. /etc/os-release; echo "$VERSION_ID") 2>/dev/null
section machine; uname -m 2>/dev/null
section bits; getconf LONG_BIT 2>/dev/null
section kernel; uname -r 2>/dev/null
section cores; nproc 2>/dev/null
section systemd; systemctl --version 2>/dev/null | { read -r _ number _; echo "$number"; }
section model; [ -r /proc/device-tree/model ] && tr -d '\000' </proc/device-tree/model
python=$(/usr/bin/python3 -c 'import struct, sys; print(sys.version.split()[0], struct.calcsize("P") * 8)' 2>/dev/null)
section python; echo "${python% *}"
section python_bits; echo "${python#* }"
total= available=
while read -r name size _; do
    case $name in MemTotal:) total=$size ;; MemAvailable:) available=$size ;; esac
done </proc/meminfo
section memory_bytes; echo "$total"
section available_bytes; echo "$available"
section controllers; cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null
section cmdline_path; for file in /boot/firmware/cmdline.txt /boot/cmdline.txt; do [ -f $file ] && echo $file && break; done
{# One reading: on a busy node seconds pass between one of the clock and one of the uptime. #}
section boot; sed -n 's/^btime //p' /proc/stat
section disk_free_bytes
for folder in {{ of.space }}; do
    there=$folder; while [ ! -d "$there" ]; do there=${there%/*}; there=${there:-/}; done
    df -Pk "$there" | awk -v folder="$folder" 'NR == 2 { print folder, $4 }'
done
section leftover_bytes
for folder in {{ places.ENVIRONMENTS }} {{ of.unfinished }}; do
    set --
    for left in "$folder"/.partial-* "$folder"/*; do
        case $left in */.partial-*) ;; *) [ ! -e "$left/.complete" ] || continue ;; esac
        [ ! -d "$left" ] || set -- "$@" "$left"
    done
    {# 30 s are for the sizes of 22,000 files on a slow card; those it does not look at in time count as taken. #}
    [ $# -eq 0 ] || timeout 30 du -sk "$@" 2>/dev/null |
        awk -v folder="$folder" '{ total += $1 } END { print folder, total + 0 }'
done
section addresses; ip -o -4 addr show
section units
{# An instance shows the drop-ins of the unit of jobs, and starts nothing. #}
shown=$(systemctl list-unit-files --plain --no-legend 'pscluster*' 2>/dev/null | awk '{ sub(/@\./, "@none."); print $1 }')
systemctl show -p {{ unit_keys }} {{ of.units }} $shown 2>/dev/null
section processes
for pid in $(systemctl show --value -p MainPID {{ of.units }} $shown 2>/dev/null | sort -u); do
    [ "$pid" -gt 1 ] && echo "$pid $(awk '/^Uid:/ { uid = $2 } /^Groups:/ { for (i = 2; i <= NF; i++) if ($i != uid) more = more ":" $i }
        /^RssAnon:/ { size = $2 } END { print size + 0, uid == "" ? "-" : uid more }' /proc/$pid/status) $(plain "$(readlink /proc/$pid/cwd)")"
done
section mounts; cat /proc/self/mountinfo
section real_paths; for folder in {{ of.bound }}; do echo "$folder $(readlink -m "$folder")"; done
section fstab; cat /etc/fstab 2>/dev/null
section exports; command -v exportfs >/dev/null && exportfs -s 2>/dev/null | awk '{ $1 = $1; print }'
finished() { for path; do [ -e "$path/.complete" ] && echo "${path##*/}"; done; }
section environments; finished {{ places.ROOT }}/environments/*
section release_environments
for release in {{ places.ROOT }}/releases/*/; do
    {# One whose files are not those that were unpacked is not there: it is unpacked again. #}
    [ "$(digest "$release")" = "$(cat "$release/.digest" 2>/dev/null)" ] || continue
    [ -e "$release/environment" ] || continue
    environment=$(readlink "$release/environment") release=${release%/}
    echo "${release##*/} ${environment##*/}"
done
section current; current=$(readlink {{ places.ROOT }}/current); echo "${current##*/}"
section data; finished {{ places.ROOT }}/prepared/*
section published
{% if of.published %}
timeout -s KILL {{ published_seconds }} sh -c 'for folder; do for mark in "$folder"/*/.complete; do case $mark in *[!A-Za-z0-9_./:@+=,-]*) continue ;; esac; [ -e "$mark" ] && echo "${mark%/.complete}"; done; done' sh {{ of.published }}
[ $? -ne 137 ] || answers=no
{% endif %}
section shared_answers; echo "${answers:-yes}"
section listening; ss -Htlne 2>/dev/null
section holders; ss -Htlnp 2>/dev/null
section temperature_celsius; cat /sys/class/thermal/thermal_zone0/temp 2>/dev/null
section throttled; vcgencmd get_throttled 2>/dev/null
section files
for file in {{ places.UNIT_FOLDER }}/pscluster-* {{ places.UNIT_FOLDER }}/pscluster.slice /etc/pscluster/* {{ of.files }}; do
    [ -e "$file" ] || [ -L "$file" ] && printf '%s\0' "$file"
done | sort -zu | tar --null --no-recursion --ignore-failed-read --absolute-names -cf - -T - 2>/dev/null | base64
section end
