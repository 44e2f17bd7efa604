"""Debian's packages on a node: which are installed, which have to be, what that added, and taking it away. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.cluster.places import DEPLOY_STATE
from deploy.common.command_line import quoted
from deploy.converge.accounts import KEEP_COPIES
from deploy.converge.change import Change, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Answer, Subject

PACKAGE_SECONDS = 900.0
APT = "DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -q -y"

MEND = """\
if [ -n "$(dpkg --audit 2>/dev/null)$(ls -A /var/lib/dpkg/updates 2>/dev/null)" ]; then
    dpkg --configure -a --force-confdef --force-confold </dev/null >/dev/null 2>&1 || :
fi
"""
"""Where an installation was cut off, apt refuses everything until dpkg has completed it."""

PLANNED = f"{DEPLOY_STATE}/packages.planned"
"""What apt was about to add; while it exists, what was added of that is not noted yet.

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

PROMETHEUS_ACCOUNT = "prometheus"
"""Debian's packages of the Prometheus project make it, and leave it behind when the last of them is purged."""

_PURGE = f"""\
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
case " $packages" in *" {PROMETHEUS_ACCOUNT} "* | *" {PROMETHEUS_ACCOUNT}-"*)
    if ! dpkg -l '{PROMETHEUS_ACCOUNT}*' 2>/dev/null | grep -q '^ii'; then
        ! getent passwd {PROMETHEUS_ACCOUNT} >/dev/null || userdel {PROMETHEUS_ACCOUNT}
        ! getent group {PROMETHEUS_ACCOUNT} >/dev/null || groupdel {PROMETHEUS_ACCOUNT}
    fi
esac
"""
"""Takes away what was added for us, but for what others need by now: those would be removed with it.

Leaves `packages` (all that were added) and `removed`, adds to `notes` and `problems`; sets `unfinished` when the list
has to be kept. What apt would put in the place of a package counts as others, too.
"""


def _script(questions: Questions) -> str:
    packages = quoted(*questions.packages) if questions.packages else "dpkg"
    return f"""\
section packages
dpkg-query -W -f '${{Package}} ${{db:Status-Abbrev}} ${{Version}}\\n' {packages} 2>/dev/null
"""


def _read(answer: Answer) -> Mapping[str, object]:
    installed = (line.split() for line in answer.sections["packages"].splitlines())
    return {"packages": {words[0]: words[2] for words in installed if len(words) == 3 and words[1].startswith("ii")}}


@dataclass(frozen=True)
class Packages:
    """Debian packages that have to be there; what their installation adds is remembered for `reset`."""

    names: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Install what is missing, in one go."""
        missing = [name for name in self.names if name not in facts.packages]
        if not missing:
            return _note() if PLANNED in facts.files else ()
        script = f"""\
{KEEP_COPIES}
{REMEMBER}\
{MEND}\
install() {{ {APT} "$@" install --no-install-recommends {quoted(*missing)}; }}
plan() {{
    {{ present | sed 's/^/there /'; install -s 2>/dev/null || :; }} | awk '
        {{ sub(/:.*/, "", $2) }} $1 == "there" {{ there[$2] }} $1 == "Inst" && !($2 in there) {{ print $2 }}
    ' | LC_ALL=C sort -u >{PLANNED}.new
    sync {PLANNED}.new; mv -f {PLANNED}.new {PLANNED}
}}
trap remember EXIT; trap 'exit 143' TERM; trap 'exit 130' INT HUP
plan; install >/dev/null || {{ {APT} update >/dev/null && remember && plan && install; }}
"""
        hint = "look into `apt-get update` there: the node needs its package sources, or the packages installed by hand"
        steps = (Shell(f"install {', '.join(missing)}", script, PACKAGE_SECONDS, hint),)
        return (Change("package", ", ".join(missing), "install", "and what it depends on", steps),)


def _note() -> tuple[Change, ...]:
    """Everything is there, but what was added by an installation that was cut off is not in the list."""
    steps = (Shell("note which packages were added", f"set -e; {REMEMBER}"),)
    return (Change("file", f"{DEPLOY_STATE}/packages", "change", "what an installation added that was cut off", steps),)


PACKAGES = Subject("packages", "prepare", _script, _read, undo=_PURGE)
