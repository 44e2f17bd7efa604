jobs=$(systemctl list-units --plain --no-legend --state=active,activating 'pscluster-job@*' | awk '{ print $1 }')
[ -z "$jobs" ] || systemctl stop $jobs
