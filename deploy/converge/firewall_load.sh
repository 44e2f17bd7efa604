set -e
nft list table inet {{ TABLE }} >/run/pscluster-firewall.before 2>/dev/null || :
nft -c -f {{ trial }}
systemctl stop pscluster-firewall-undo.timer 2>/dev/null || :
systemd-run --quiet --collect --unit=pscluster-firewall-undo --on-active={{ rollback_seconds }} /bin/sh -c 'nft delete table inet {{ TABLE }}; [ ! -s /run/pscluster-firewall.before ] || nft -f /run/pscluster-firewall.before'
nft -f {{ trial }}
printf '%s\n' "$({{ LISTING }})" | sha256sum >{{ trial }}.loaded
