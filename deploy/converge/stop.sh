{% include "converge/interrupt.sh" %}
units=$(systemctl list-units --plain --no-legend --state=active,activating,failed 'pscluster-ps-*' 'pscluster-worker-*' | awk '{ print $1 }')
[ -z "$units" ] || systemctl disable --quiet --now $units || exit 1
[ -z "$units" ] || systemctl reset-failed $units 2>/dev/null
echo $units
