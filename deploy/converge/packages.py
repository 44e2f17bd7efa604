"""Debian packages that have to be on a node. Pure."""

from dataclasses import dataclass

from deploy.cluster.places import DEPLOY_STATE
from deploy.common.command_line import quoted
from deploy.converge.change import Change, Shell
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.package_scripts import APT, MEND, PLANNED, REMEMBER

PACKAGE_SECONDS = 900.0
KEEP_COPIES = (
    f"set -e; [ -d {DEPLOY_STATE}/account ] || {{ mkdir -p {DEPLOY_STATE}/account; "
    f"for file in passwd group shadow gshadow subuid subgid; do "
    f"[ ! -e /etc/$file- ] || cp -p /etc/$file- {DEPLOY_STATE}/account/; done; }}; "
)
"""Adding an account, as packages do too, leaves copies of what was before (passwd-): `reset` puts the first back."""


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
