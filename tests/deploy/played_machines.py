"""Nodes that are an sshd each, with an /opt of their own and a played systemd.

That systemd is a script that starts `sleep`.

In mount namespaces of their own, so that this machine has none of it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deploy.release.scripts import make_current
from tests.deploy.over_ssh.sshd import Sshd, running_sshd
from tests.deploy.playing import eventually, gone
from tests.deploy.release.wheels import run

ENVIRONMENT = "e" * 16
_SYSTEMCTL = """\
#!/bin/sh
units=/opt/units
up() { [ -e "$units/$1.pid" ] && kill -0 "$(cat "$units/$1.pid")" 2>/dev/null; }
case $1 in
    show) up "$5" && cat "$units/$5.pid" || echo 0 ;;
    is-active) up "$2" && echo active || { echo inactive; exit 3; } ;;
    restart)
        shift
        cd -P /opt/pscluster/current
        for unit; do
            ! up "$unit" || kill "$(cat "$units/$unit.pid")"
            [ ! -e /opt/broken ] && [ ! -e "/opt/broken-$unit" ] || exit 1
            setsid sleep 1000 </dev/null >/dev/null 2>&1 &
            echo $! >"$units/$unit.pid"
        done ;;
esac
"""
_JOURNALCTL = "#!/bin/sh\necho it does not come up\n"
_MOUNTS = 'mount --bind "{0}/opt" /opt && mount --bind "{0}/sbin" /usr/local/sbin && exec "$@"'


class Machine:
    """One of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opt = folder / "opt"
        (self._opt / "units").mkdir(parents=True)
        (self._opt / "pscluster" / "environments" / ENVIRONMENT).mkdir(parents=True)
        (self._opt / "pscluster" / "environments" / ENVIRONMENT / ".complete").touch()
        (folder / "sbin").mkdir()
        for name, script in (("systemctl", _SYSTEMCTL), ("journalctl", _JOURNALCTL)):
            (folder / "sbin" / name).write_text(script)
            (folder / "sbin" / name).chmod(0o755)

    @property
    def wrapper(self) -> tuple[str, ...]:
        """What its sshd is started by."""
        return ("unshare", "-m", "sh", "-c", _MOUNTS.format(self._folder), "sh")

    def deploy(self, *keys: str) -> None:
        """Releases, made current one after the other."""
        root = self._opt / "pscluster"
        for key in keys:
            (root / "releases" / key).mkdir(parents=True, exist_ok=True)
            link = root / "releases" / key / "environment"
            if not link.is_symlink():
                link.symlink_to(f"../../environments/{ENVIRONMENT}")
            run(make_current(key, root=str(root)))

    @property
    def current(self) -> str:
        """The release that is current."""
        return os.readlink(self._opt / "pscluster" / "current").rpartition("/")[2]

    @property
    def runs(self) -> set[str]:
        """The releases that its roles were started from."""
        return {
            os.readlink(f"/proc/{pid}/cwd").rpartition("/")[2] for pid in self.pids if not gone(pid)
        }

    @property
    def pids(self) -> list[int]:
        """Of its roles."""
        return [int(path.read_text()) for path in (self._opt / "units").glob("*.pid")]

    def pid_of(self, unit: str) -> int:
        """Of a unit that was started."""
        return int((self._opt / "units" / f"{unit}.pid").read_text())

    def break_down(self, broken: bool, unit: str = "") -> None:
        """From now on no role comes up, or each does; or one unit alone."""
        path = self._opt / (f"broken-{unit}" if unit else "broken")
        if broken:
            path.touch()
        else:
            path.unlink()

    def end(self) -> None:
        """End its roles."""
        for pid in self.pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
            eventually(lambda pid=pid: gone(pid), "the end of a role")  # type: ignore[misc]


@contextmanager
def running_machines(folder: Path, count: int) -> Iterator[list[tuple[Machine, Sshd]]]:
    """So many, with one key."""
    keys = folder / "keys"
    keys.mkdir(parents=True)
    machines = [Machine(folder / str(number)) for number in range(count)]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running_sshd(keys, wrapper=machine.wrapper)) for machine in machines
        ]
        try:
            yield list(zip(machines, servers, strict=True))
        finally:
            for machine in machines:
                machine.end()
