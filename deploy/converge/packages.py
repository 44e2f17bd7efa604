"""Debian's packages on a node: which are installed, which have to be, what that added, and taking it away. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.cluster import places
from deploy.cluster.places import DEPLOY_STATE
from deploy.common.command_line import quoted
from deploy.common.texts import Inline, filled
from deploy.converge.accounts import KEEP_COPIES
from deploy.converge.change import Change, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import NodeAnswer, Subject

PACKAGE_SECONDS = 900.0
_APT = "DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -q -y"

PLANNED = f"{DEPLOY_STATE}/packages.planned"
"""What apt was about to add; while it exists, what was added of that is not noted yet.

Not what there was before: after an installation that was cut off a person may install what they like.
"""


def _filled(name: str, **values: str | list[str]) -> str:
    return filled(f"converge/{name}", places=places, planned=PLANNED, apt=Inline(_APT), **values)


def _undo() -> str:
    return _filled("packages_undo.sh")


def _script(questions: Questions) -> str:
    packages = quoted(*questions.packages) if questions.packages else "dpkg"
    return f"""\
section packages
dpkg-query -W -f '${{Package}} ${{db:Status-Abbrev}} ${{Version}}\\n' {packages} 2>/dev/null
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
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
        script = _filled("packages_install.sh", keep_copies=Inline(KEEP_COPIES), missing=missing)
        hint = "look into `apt-get update` there: the node needs its package sources, or the packages installed by hand"
        steps = (Shell(f"install {', '.join(missing)}", script, PACKAGE_SECONDS, hint),)
        return (Change("package", ", ".join(missing), "install", "and what it depends on", steps),)


def _note() -> tuple[Change, ...]:
    """Everything is there, but what was added by an installation that was cut off is not in the list."""
    remember = _filled("packages_remember.sh")
    steps = (Shell("note which packages were added", f"set -e; {remember}"),)
    return (Change("file", f"{DEPLOY_STATE}/packages", "change", "what an installation added that was cut off", steps),)


PACKAGES = Subject("packages", "prepare", _script, _read, undo=_undo)
