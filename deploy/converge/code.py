"""The environment, the release and which one is current, as they have to be on a node. Pure."""

from dataclasses import dataclass

from deploy.cluster.places import CURRENT, DATA
from deploy.common.command_line import quoted
from deploy.converge.change import Change, Shell
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.publication import Publication
from deploy.release.code_wheel import CodeWheel
from deploy.release.environment_script import install_environment
from deploy.release.release_scripts import make_current, unpack_release
from deploy.release.script import script
from deploy.release.wheelhouse import Wheelhouse
from deploy.rooted.commands import PYTHON, file_program, listed

INSTALL_SECONDS = 3600.0
"""For 22,000 files on a slow SD card."""
COPY_SECONDS = 600.0
"""For a data set of 48 MB, from a storage server that fifteen nodes ask at once."""
_MEGABYTE = 10**6


@dataclass(frozen=True)
class Environment:
    """An environment on the node's own disk. `wheelhouse` may be None where every node has it."""

    key: str
    wheelhouse: Wheelhouse | None
    wheels: str
    """The published wheelhouse as the node sees it."""

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Install it."""
        if self.key in facts.environments or self.wheelhouse is None:
            return ()
        # The automount is there, the mount may not be: looking mounts it, and says why it cannot be.
        see = Shell(
            "look into the shared folder",
            f"ls {quoted(f'{self.wheels}/SHA256SUMS')} >/dev/null",
            60.0,
            "is the storage server up, and does it export to this node's address?",
        )
        install = Shell("install the environment", install_environment(self.wheelhouse, self.wheels), INSTALL_SECONDS)
        detail = f"{self.wheelhouse.installed_bytes / _MEGABYTE:,.0f} MB from {self.wheels}"
        return (Change("environment", self.key, "install", detail, (see, install)),)


@dataclass(frozen=True)
class Release:
    """The code, unpacked beside other releases."""

    wheel: CodeWheel
    environment: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Send and unpack it, or give it another environment."""
        if facts.release_environments.get(self.wheel.key) == self.environment:
            return ()
        script = unpack_release(self.wheel, self.environment)
        steps = (Shell("send and unpack the code", script, 120.0, stdin=self.wheel.path),)
        detail = f"version {self.wheel.version}, environment {self.environment}"
        return (Change("release", self.wheel.key, "create", detail, steps),)


@dataclass(frozen=True)
class Current:
    """The release that processes are started from."""

    key: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Flip the link, in one step."""
        if facts.current == self.key:
            return ()
        detail = f"release {self.key}" + (f", was {facts.current}" if facts.current else "")
        action = "create" if facts.current is None else "change"
        return (Change("link", CURRENT, action, detail, (Shell("make the release current", make_current(self.key)),)),)


@dataclass(frozen=True)
class LocalData:
    """A published data set on the node's own disk."""

    publication: Publication
    seen: str
    """The published folder as the node sees it."""

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Copy it."""
        key = self.publication.key
        if key in facts.data:
            return ()
        hint = "is the storage server up, and does it export to this node's address?"
        steps = (Shell("copy the windows", copy_data(self.publication, self.seen), COPY_SECONDS, hint),)
        return (Change("data", key, "create", f"from {self.seen}", steps),)


_COPY = """\
exec </dev/null
final=$root/$key
work=$root/.partial-$key
[ ! -e "$final/.complete" ] || { touch "$final"; echo "unchanged: windows $key"; return; }
mkdir -p "$root"
rm -rf "$root"/.partial-* "$final"
"$python" -I -S -c "$program" copy "$seen" "$work" "$files"
touch "$work/.complete"
cd "$work"
sync -f .
cd "$root"
mv -T "$work" "$final"
ls -dt */ | tail -n +4 | while read -r old; do rm -rf "$old"; done
echo "changed: windows $key"
"""


def copy_data(publication: Publication, seen: str) -> str:
    """Copies a published data set to the node's disk, checked and complete, or not at all; the last three stay.

    The storage server is not trusted: of its folder only plain files are taken, and only those that were published.
    """
    files = listed((file.name, file.sha256, file.size_bytes) for file in publication.files)
    values = {"root": DATA, "key": publication.key, "seen": seen, "files": files, "python": PYTHON}
    return script(_COPY, {**values, "program": file_program()})
