"""Debian's packages on a node: which have to be there, and what to take away again. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.cluster import places
from deploy.cluster.places import DEPLOY_STATE
from deploy.common.command_line import Inline, filled, quoted
from deploy.converge.accounts import KEEP_COPIES
from deploy.converge.change import Change, Resource, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import DeploymentSpec, NodeAnswer, Subject
from deploy.render import units, wireguard

PACKAGE_SECONDS = 900.0
_APT = (
    "LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o"
    " Acquire::Retries=2 -q -y"
)
"""In English, because a held lock is known by these words."""

PLANNED = f"{DEPLOY_STATE}/packages.planned"
"""What apt was about to add; while it exists, what was added of that is not noted yet.

Not what there was before: after an installation that was cut off a person may install what they
like.
"""


_LOG = "/run/pscluster-apt.log"
_BUSY = "another program holds apt's lock: start again when it has ended"
_SOURCES = (
    "look into `apt-get update` there: the node needs its package sources, or the packages"
    " installed by hand"
)


def _filled(name: str, **values: str | list[str]) -> str:
    return filled(f"converge/{name}", places=places, planned=PLANNED, apt=Inline(_APT), **values)


def _undo() -> str:
    return _filled("packages_undo.sh")


def _script(questions: Questions) -> str:
    if questions.packages:
        packages = quoted(*questions.packages)
    else:
        packages = "dpkg"
    return f"""\
section packages
dpkg-query -W -f '${{Package}} ${{db:Status-Abbrev}} ${{Version}}\\n' {packages} 2>/dev/null
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    installed = (line.split() for line in answer.sections["packages"].splitlines())
    return {
        "packages": {
            words[0]: words[2]
            for words in installed
            if len(words) == 3 and words[1].startswith("ii")
        }
    }


@dataclass(frozen=True)
class Packages:
    """Debian packages that have to be there; `reset` knows what their installation adds."""

    names: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Install what is missing, in one go."""
        missing = [name for name in self.names if name not in facts.packages]
        if not missing:
            if PLANNED in facts.files:
                return _note()
            return ()
        script = _filled(
            "packages_install.sh",
            keep_copies=Inline(KEEP_COPIES),
            missing=missing,
            log=_LOG,
            busy=_BUSY,
            sources=_SOURCES,
        )
        steps = (Shell(f"install {', '.join(missing)}", script, PACKAGE_SECONDS),)
        return (Change("package", ", ".join(missing), "install", "and what it depends on", steps),)


def _note() -> tuple[Change, ...]:
    """Note what an installation that was cut off has added; everything is there by now."""
    remember = _filled("packages_remember.sh")
    steps = (Shell("note which packages were added", f"set -e; {remember}"),)
    return (
        Change(
            "file",
            f"{DEPLOY_STATE}/packages",
            "change",
            "what an installation added that was cut off",
            steps,
        ),
    )


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    deployment = spec.inventory.deployment
    if spec.stores(node):
        names = ["nfs-kernel-server"]
    else:
        names = ["nfs-common"]
    if deployment.firewall:
        names.append("nftables")
    if deployment.node_exporter:
        names.append(units.NODE_EXPORTER)
    if spec.watches(node):
        names.append(units.MONITOR_PACKAGE)
    if spec.inventory.encrypted:
        names.append(wireguard.IN_THE_KERNEL)
        if not facts.more.get(wireguard.MODULE):
            names.append(wireguard.IN_USER_SPACE)
    return (Packages(tuple(names)),)


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(files=(PLANNED,))


PACKAGES = Subject(
    "packages",
    "prepare",
    _script,
    _read,
    resources=_resources,
    undo=_undo,
    questions=_questions,
)
