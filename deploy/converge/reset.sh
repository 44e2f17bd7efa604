export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
prune() { parent=${1%/*}; while [ -n "$parent" ]; do
    grep -qxF "$parent" {{ places.DEPLOY_STATE }}/folders 2>/dev/null || break; rmdir "$parent" 2>/dev/null || break
    parent=${parent%/*}; done; }
problems= notes= unfinished=
units=$(cd {{ places.UNIT_FOLDER }} && ls -d pscluster-*.service 2>/dev/null | grep -v -e '@' -e pscluster-wireguard)
jobs=$(systemctl list-units --plain --no-legend 'pscluster-job@*' | awk '{ print $1 }')
[ -z "$jobs$units" ] || systemctl disable --quiet --now $jobs $units 2>/dev/null
systemctl stop pscluster.slice 2>/dev/null
for point in {{ mount }}/shared {{ mount }}/data {{ mount }}/runs {{ mount }}; do
    for kind in automount mount; do
        unit=$(systemd-escape -p --suffix=$kind "$point"); systemctl stop "$unit" 2>/dev/null
    done
    ! grep -q " $point " /proc/mounts || umount -l "$point"
done
if grep -qxF {{ fstab_begin }} /etc/fstab 2>/dev/null; then
    sed -n {{ from_fstab_begin }} /etc/fstab | grep -qxF {{ fstab_end }} ||
        notes="$notes; /etc/fstab lost our second mark: what came after the first stays there"
    awk {{ without_ours }} /etc/fstab >/etc/fstab.pscluster && cat /etc/fstab.pscluster >/etc/fstab
    rm -f /etc/fstab.pscluster
    [ ! -e {{ places.DEPLOY_STATE }}/no-fstab ] || [ -s /etc/fstab ] || rm -f /etc/fstab
fi
rmdir {{ mount }}/shared {{ mount }}/data {{ mount }}/runs {{ mount }} 2>/dev/null; prune {{ mount }}
{% if serves %}
rm -f {{ exports }}; command -v exportfs >/dev/null && exportfs -ra
{% else %}
:
{% endif %}
{% if serves and data %}
rm -rf {{ export }}/shared {{ export }}/data {{ export }}/runs; rm -f {{ mark }}; prune {{ export }}/shared
{% else %}
:
{% endif %}
rm -f {{ settings }}
rm -rf {{ places.UNIT_FOLDER }}/pscluster-* {{ places.UNIT_FOLDER }}/pscluster.slice {{ places.UNIT_FOLDER }}/*.wants/pscluster-* {{ places.CONFIGURATION }}
{{ undo }}
for folder in /etc/exports.d /etc/nfs.conf.d; do
    grep -qxF $folder {{ places.DEPLOY_STATE }}/folders 2>/dev/null && rmdir $folder 2>/dev/null
done
rm -rf {{ places.ROOT }} {{ places.STATE }}
if [ -f {{ places.DEPLOY_STATE }}/masked ]; then
    systemctl unmask --quiet $(cut -d ' ' -f 1 {{ places.DEPLOY_STATE }}/masked)
    systemctl start $(sed -n 's/ active$//p' {{ places.DEPLOY_STATE }}/masked) 2>/dev/null
fi
[ -n "$unfinished" ] || rm -rf {{ places.DEPLOY_STATE }}
systemctl daemon-reload
systemctl reset-failed 'pscluster*' 'nfs-*' 2>/dev/null
left=$(ls -d {{ places.ROOT }} {{ places.STATE }} {{ places.CONFIGURATION }} {{ places.UNIT_FOLDER }}/pscluster* 2>/dev/null | tr '\n' ' ')
[ -z "$left" ] || problems="still there: $left; $problems"
[ -z "$problems" ] || { echo "$problems" >&2; exit 1; }
echo "reset${removed:+; packages removed: $removed}$notes"
