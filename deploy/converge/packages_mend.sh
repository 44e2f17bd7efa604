{# Where an installation was cut off, apt refuses everything until dpkg has completed it. #}
if [ -n "$(dpkg --audit 2>/dev/null)$(ls -A /var/lib/dpkg/updates 2>/dev/null)" ]; then
    dpkg --configure -a --force-confdef --force-confold </dev/null >/dev/null 2>&1 || :
fi
