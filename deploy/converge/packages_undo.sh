{#
Takes away what was added for us, but for what others need by now: those would be removed with it.
Leaves `packages` (all that were added) and `removed`, adds to `notes` and `problems`; sets `unfinished` when the list
has to be kept. What apt would put in the place of a package counts as others, too.
#}
{% include "converge/packages_remember.sh" %}
packages=$(sort -u {{ places.DEPLOY_STATE }}/packages 2>/dev/null | grep . | tr '\n' ' ')
removed=
if [ -n "$packages" ]; then
{% include "converge/packages_mend.sh" %}
    only='s/^.[^n]. *//p'
    there=$(present $packages)
    others() {
        apt-get -s -q purge "$@" 2>/dev/null | awk '/^(Purg|Remv|Inst) / { print $2 }' | grep -vxF "$there"
    }
    removed=$there
    if [ -n "$there" ] && [ -n "$(others $there)" ]; then
        removed=
        for package in $there; do
            needing=$(others $removed $package | tr '\n' ' ')
            if [ -z "$needing" ]; then removed="$removed $package"
            else notes="$notes; $package stays, ${needing% } would go with it"; fi
        done
    fi
    removed=$(echo $removed)
    [ -z "$removed" ] || {{ apt }} purge $removed >/dev/null 2>/run/pscluster-reset.log || [ -z "$(present $removed)" ] || {
        problems="packages stay ($removed): $(tail -n 1 /run/pscluster-reset.log); reset it again"
        removed= unfinished=1
    }
    rm -f /run/pscluster-reset.log
fi
{# Debian's packages of the Prometheus project make the account, and leave it when the last of them is purged. #}
case " $packages" in *" prometheus "* | *" prometheus-"*)
    if ! dpkg -l 'prometheus*' 2>/dev/null | grep -q '^ii'; then
        ! getent passwd prometheus >/dev/null || userdel prometheus
        ! getent group prometheus >/dev/null || groupdel prometheus
    fi
esac
