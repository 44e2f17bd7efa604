"""The code of a run is in a cage when it is exported."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.apps.copy import FOLDER, RECORD, keep
from cluster.apps.environments import COMPLETE
from cluster.apps.files import DIGESTS_VARIABLE, files_of_app, remember_digest
from core.exported.description import read_description
from core.ground.errors import ExitCode
from deploy.common.project import ROOT, environment_for_any_folder
from tests.cluster.apps.trees import write_tree
from tests.cluster.export import runs
from tests.habits import needs
from tests.hang import HANG_SECONDS
from tests.ran import ran

needs_landlock = pytest.mark.usefixtures("landlocked")
KEY = "0123456789abcdef"
MODEL = """
import numpy as np
def init(seed):
    return {"kernel": np.ones((48, 3), "float32") * np.arange(3, dtype="float32")}
def forward(parameters, statistics, x, training, seed):
    import tensorflow as tf
    return tf.reshape(x, [-1, 48]) @ parameters["kernel"], {}
"""
ATTACKS = """
import json, os, socket, subprocess, sys
given = json.loads(GIVEN)
def read(path):
    with open(path) as stream:
        return "secret" in stream.read()
def made(path):
    open(path, "w").close()
    return True
def connected(family, kind, place):
    with socket.socket(family, kind) as each:
        each.connect(place)
        each.send(b"taken")
    return True
def listed(path):
    return bool(os.listdir(path))
def environment_of(process):
    with open(f"/proc/{process}/environ", "rb") as stream:
        return b"PATH=" in stream.read()
def truncated(path):
    os.truncate(path, len("secret"))
    return True
def by_another_program(path):
    done = subprocess.run(["cat", path], capture_output=True)
    return b"secret" in done.stdout
def tried():
    for name, work in {
        "read": lambda: read(given["secret"]),
        "state": lambda: read(given["state"]),
        "list": lambda: listed(given["home"]),
        "truncate": lambda: truncated(given["secret"]),
        "program": lambda: by_another_program(given["secret"]),
        "variable": lambda: "secret" in os.environ.get("SSH_AUTH_SOCK", ""),
        "environment": lambda: environment_of(os.getppid()),
        "project": lambda: made(given["project"]),
        "beside": lambda: made(given["beside"]),
        "run": lambda: made(given["run"]),
        "prepared": lambda: made(given["prepared"]),
        "tcp": lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["tcp"])),
        "udp": lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", given["tcp"])),
    }.items():
        try:
            if work():
                yield name
        except OSError:
            pass
print("reached", *tried(), file=sys.stderr, flush=True)
"""
WRITTEN = ("project", "beside", "run", "prepared")
EVERY = (
    *("read", "state", "list", "truncate", "program", "variable", "environment"),
    *(*WRITTEN, "tcp", "udp"),
)


@dataclass(frozen=True)
class Place:
    """A home with a finished run in it, and what an operator's processes find there."""

    folder: Path
    run: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Where home, cache and state are."""
        return {
            **environment_for_any_folder(),
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "SSH_AUTH_SOCK": "secret",
        }

    def words(self, *more: str, run: Path | None = None) -> list[str]:
        """The command line of an export."""
        out = f"--out={self.folder / 'walking'}"
        named = f"--run={run or self.run}"
        return [sys.executable, "-m", "cluster.export", "--to=litert", named, out, *more]

    def export(
        self, *more: str, run: Path | None = None, code: int = ExitCode.DONE
    ) -> subprocess.CompletedProcess[str]:
        """Export quietly; what failed leaves nothing."""
        words = self.words("--quiet", *more, run=run)
        done = ran(*words, code=code, folder=self.folder, environment=self.environment)
        if code:
            assert self.left() == []
        return done

    def left(self) -> list[str]:
        """What lies where the export should."""
        return sorted(path.name for path in self.folder.glob("*walking*"))

    def with_code(self, text: str, environment: str = "") -> Path:
        """A copy of the run with this code in front of the app's, which is trusted."""
        run = self.folder / "other"
        shutil.copytree(self.run, run)
        shutil.rmtree(run / FOLDER)
        (run / RECORD).unlink()
        app = files_of_app(write_tree(self.folder / "source", {"app.py": text + MODEL}) / "app.py")
        keep(app, run, environment)
        remember_digest(app.digest, "trusted")
        return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run of the app."""
    folder = tmp_path_factory.mktemp("trained")
    app = write_tree(folder / "source", {"app.py": MODEL}) / "app.py"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        patched.delenv(DIGESTS_VARIABLE, raising=False)
        runs.trained(folder, f"jobs.train.app={app}")
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The home, for one test."""
    monkeypatch.delenv(DIGESTS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(trained / "state", tmp_path / "state")
    (tmp_path / "home").mkdir()
    return Place(tmp_path, max((trained / "runs").glob("*-train")))


@pytest.fixture
def given(place: Place) -> Iterator[dict[str, str | int]]:
    """What the attacks are after, all of it there."""
    planted = ROOT / f"planted-by-{os.getpid()}"
    secret = write_tree(place.folder, {"home/.ssh/id": "secret", "state/token": "secret"})
    (place.folder / "cache/pscluster/prepared").mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield {
            "secret": str(secret / "home/.ssh/id"),
            "state": str(secret / "state/token"),
            "home": str(secret / "home"),
            "project": str(planted),
            "beside": str(place.folder / "planted"),
            "run": str(place.folder / "other" / "planted"),
            "prepared": str(place.folder / "cache/pscluster/prepared/planted"),
            "tcp": tcp.getsockname()[1],
        }
    planted.unlink(missing_ok=True)


@pytest.fixture
def landlocked() -> None:
    """Where the kernel can."""
    needs.cage()


@needs_landlock
def test_code_reaches_nothing_of_the_operator_s_and_is_exported(
    place: Place, given: dict[str, str | int]
) -> None:
    attacks = ATTACKS.replace("GIVEN", repr(json.dumps(given)))
    run = place.with_code(attacks)
    free = ran(sys.executable, "-c", attacks, environment=place.environment)
    assert free.stderr.split() == ["reached", *EVERY]
    for name in WRITTEN:
        Path(str(given[name])).unlink()
    said = place.export(run=run).stderr
    assert said.splitlines()[0] == "reached"
    assert not any(Path(str(given[name])).exists() for name in WRITTEN)
    assert read_description(place.folder / "walking").check.windows == 30
    assert place.left() == ["walking"]


@pytest.mark.long
def test_its_own_packages_are_there(place: Place) -> None:
    environment = place.folder / "cache/pscluster/extras" / KEY
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    write_tree(packages, {"only_here.py": "THERE = 'it is'", "ours.pth": "\n".join(ours)})
    (environment / COMPLETE).touch()
    run = place.with_code("import only_here\nprint(only_here.THERE)\n", KEY)
    assert place.export(run=run).stderr.startswith("it is\n")


@pytest.mark.parametrize("key", ["source", "format"])
def test_a_run_names_nothing_private_as_its_recordings(place: Place, key: str) -> None:
    private = write_tree(place.folder / "home", {".ssh/id": "secret"}) / ".ssh"
    run = place.with_code("")
    result = json.loads((run / "result.json").read_bytes())
    result["settings"]["data"][key] = str(private)
    (run / "result.json").write_text(json.dumps(result))
    said = place.export(run=run, code=ExitCode.BAD_USAGE).stderr
    assert f"names {private} as its recordings" in said
    assert f"--data {private}" in said


LEAVES = {
    "no folder with an export": "",
    "left no folder with an export": "os.symlink(home, out)",
    "something else than the export": (
        "os.mkdir(out); os.symlink(home, os.path.join(out, 'more'))\n"
        "for name in os.listdir(data): shutil.copyfile(f'{data}/{name}', f'{out}/{name}')"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("words", LEAVES)
def test_code_that_leaves_something_else_has_made_no_export(place: Place, words: str) -> None:
    home = str(place.folder / "home")
    place.export()
    sound = place.folder / "sound"
    (place.folder / "walking").rename(sound)
    code = f"""
import os, shutil
words = open("/proc/self/cmdline").read().split(chr(0))
out = next(word for word in words if word.startswith("--out=")).partition("=")[2]
home, data = {home!r}, {str(sound)!r}
{LEAVES[words]}
os._exit(0)
"""
    run = place.with_code(code)
    said = place.export(f"--data={sound}", run=run, code=ExitCode.BAD_USAGE).stderr
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_export_that_is_ended_leaves_no_process_and_nothing_half(
    place: Place, number: signal.Signals
) -> None:
    run = place.with_code("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    process = subprocess.Popen(
        place.words(run=run),
        env=dict(place.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert Path("/proc", str(child)).exists()
        process.send_signal(number)
        # The pipe closes when the child is gone too.
        said, _ = process.communicate(timeout=HANG_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert said == ""
    assert not Path("/proc", str(child), "exe").exists()
    if number == signal.SIGKILL:
        assert len(place.left()) == 1
        place.export()
        assert place.left() == ["walking"]
    else:
        assert process.returncode == ExitCode.CANCELLED
        assert place.left() == []


WITHOUT = """
import os, sys
from core.cage import landlock
answer = (landlock.RETURN, 0, 0, landlock.ERRNO | 95)
number = (landlock.LOAD, 0, 0, landlock.CALL_NUMBER)
is_ours = (landlock.JUMP_IF_EQUAL, 0, 1, 444)
allow = (landlock.RETURN, 0, 0, landlock.ALLOW)
landlock.install(landlock.FilterProgram.from_instructions(number, is_ours, answer, allow))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.long
def test_a_kernel_without_landlock_is_one_line_of_warning(place: Place) -> None:
    words = place.words("--quiet")[1:]
    done = ran(sys.executable, "-c", WITHOUT, *words, environment=place.environment)
    warned = [line for line in done.stderr.splitlines() if str(place.run) in line]
    assert len(warned) == 1
    assert "its code runs uncaged and reads whatever you may: this kernel has Landlock" in warned[0]
    assert place.left() == ["walking"]
