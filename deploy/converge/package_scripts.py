"""Parts of shell scripts that deal with Debian's packages. Pure."""

from deploy.cluster.places import DEPLOY_STATE

APT = "DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -q -y"

MEND = """\
if [ -n "$(dpkg --audit 2>/dev/null)$(ls -A /var/lib/dpkg/updates 2>/dev/null)" ]; then
    dpkg --configure -a --force-confdef --force-confold </dev/null >/dev/null 2>&1 || :
fi
"""
"""Where an installation was cut off apt refuses everything until dpkg has gone on with it."""

PLANNED = f"{DEPLOY_STATE}/packages.planned"
"""What apt was about to add; as long as it is there, nobody has noted how much of that was added.

Not what there was before: after an installation that was cut off a person may install what they like.
"""

REMEMBER = f"""\
present() {{
    dpkg-query -W -f '${{db:Status-Abbrev}} ${{Package}}\\n' "$@" 2>/dev/null | sed -n "$only" | LC_ALL=C sort -u
}}
only='s/^.[^nc]. *//p'
remember() {{
    [ -e {PLANNED} ] || return 0
    present | LC_ALL=C comm -12 {PLANNED} - >>{DEPLOY_STATE}/packages && rm -f {PLANNED}
}}
remember
"""
"""Notes what an installation added that was cut off, those that are not configured too."""

PURGE = f"""\
{REMEMBER}\
packages=$(sort -u {DEPLOY_STATE}/packages 2>/dev/null | grep . | tr '\\n' ' ')
removed=
if [ -n "$packages" ]; then
{MEND}\
    only='s/^.[^n]. *//p'
    there=$(present $packages)
    others() {{
        apt-get -s -q purge "$@" 2>/dev/null | awk '/^(Purg|Remv|Inst) / {{ print $2 }}' | grep -vxF "$there"
    }}
    removed=$there
    if [ -n "$there" ] && [ -n "$(others $there)" ]; then
        removed=
        for package in $there; do
            needing=$(others $removed $package | tr '\\n' ' ')
            if [ -z "$needing" ]; then removed="$removed $package"
            else notes="$notes; $package stays, ${{needing% }} would go with it"; fi
        done
    fi
    removed=$(echo $removed)
    [ -z "$removed" ] || {APT} purge $removed >/dev/null 2>/run/pscluster-reset.log || {{
        problems="packages stay ($removed): $(tail -n 1 /run/pscluster-reset.log); reset it again"
        removed= unfinished=1
    }}
    rm -f /run/pscluster-reset.log
fi
"""
"""Takes away what was added for us, but for what others need by now: those would be removed with it.

Leaves `packages` (all that were added) and `removed`, adds to `notes` and `problems`; sets `unfinished` when the list
has to be kept. What apt would put in the place of a package counts as others, too.
"""
