"""Code has an owner: a run's code is imported where this account trained or trusted it."""

import os
import py_compile
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from cluster.apps import files as app_files
from cluster.apps.app import load_copy, remove_copies
from cluster.apps.copy import FETCHED, app_to_train, keep, named_app, own_app, why_foreign
from cluster.apps.files import AppFiles, files_of_app
from cluster.jobs.run_folder import newest_model, newest_unfinished
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.parcel import FileToPack
from core.inventory import load
from core.inventory.templates import local_inventory
from deploy.common.project import environment_for_any_folder
from tests.cluster.apps.planted import code, plant
from tests.cluster.apps.trees import write_tree

RUN = "runs/20250101T120000Z-train"
JOB = "--mode single --inventory inv.yaml"
COMMANDS = {
    "export": f"export --run {RUN} --to onnx --out out",
    "serve": f"serve --run {RUN} --port 0",
    "promote": f"service promote --run {RUN}",
    "resume": f"job train --resume {JOB}",
    "resume it": f"job train --resume --run {RUN} {JOB}",
}
RECORDED = pytest.mark.parametrize("record", [False, True], ids=["no record", "its own record"])


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    own = Path(mkdtemp(dir=os.environ["XDG_STATE_HOME"]))  # short: sockets lie there
    monkeypatch.setenv("XDG_STATE_HOME", str(own))
    monkeypatch.delenv(app_files.DIGESTS_VARIABLE, raising=False)
    write_tree(tmp_path, {"inv.yaml": local_inventory(1, 1)})
    yield own / "pscluster/apps"
    remove_copies()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Is there once planted code ran."""
    return tmp_path / "mark"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / RUN


def own(run: Path, **files: str) -> Path:
    """An app of our own of these modules, in that run."""
    app = write_tree(run / "app", {f"{name}.py": text for name, text in files.items()})
    app_files.remember_digest(files_of_app(app).digest, "mine")
    return app


def compiled(app: Path, mark: Path, *names: str) -> None:
    """Plant compiled modules of other code, which Python would take unchecked."""
    evil = mark.with_name("evil.py")
    evil.write_text(f"__import__('pathlib').Path({str(mark)!r}).touch()\nWIDTH = 9\n")
    for name in names:
        cached = app / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(
            str(evil), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )


def fab(folder: Path, line: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pscluster", *line.split()]
    ended = subprocess.run(
        command, cwd=folder, env=environment_for_any_folder(), capture_output=True, text=True
    )
    return ended.returncode, ended.stderr


@pytest.mark.long
@RECORDED
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_the_code_of_a_planted_run(
    tmp_path: Path, run: Path, mark: Path, name: str, record: bool
) -> None:
    plant(run, mark, record=record, finished=not name.startswith("resume"))
    write_tree(tmp_path, {"rows.csv": "t,ax,ay,az,gx,gy,gz\n0,0,0,9.8,0,0,0\n"})
    ended, said = fab(tmp_path, COMMANDS[name])
    assert ended in (ExitCode.BAD_USAGE, ExitCode.FAILED), said
    assert not mark.exists()
    assert "Traceback" not in said


def test_a_digest_that_is_not_ours_is_one_line_and_the_flag_is_true(
    run: Path, mark: Path, state: Path
) -> None:
    digest = plant(run, mark, record=True)
    with pytest.raises(UsageError, match=rf"^[^\n]*--trust-app {digest}$"):
        own_app(run)
    with pytest.raises(UsageError, match=digest):
        load_copy(run / "app", "mine")
    assert not mark.exists()
    app_files.trust(digest)
    assert own_app(run) is not None
    assert load_copy(run / "app", "mine").has_model
    assert mark.exists()
    assert [path.name for path in state.iterdir()] == [digest]
    assert app_files.own_digests() == (digest,)


@RECORDED
def test_the_app_of_a_foreign_run_is_not_ones_own_by_its_path(
    tmp_path: Path, run: Path, mark: Path, state: Path, record: bool
) -> None:
    digest = plant(run, mark, record=record)
    (tmp_path / "link").symlink_to(run / "app")
    for path in (run / "app", run / "app/app.py", tmp_path / "link"):
        with pytest.raises(UsageError, match=f"{run}: has code .*--trust-app {digest}"):
            named_app(path)
    inventory = load(
        tmp_path / "inv.yaml", [f"jobs.train.app={run / 'app'}"], check_interfaces=False
    )
    with pytest.raises(UsageError, match=f"--trust-app {digest}"):
        app_to_train(inventory, None, "")
    assert not state.exists()
    mine = write_tree(tmp_path / "mine", {"app.py": code(mark)})
    assert named_app(mine).digest == digest
    assert app_files.is_own(digest)
    found = app_to_train(inventory, None, "")
    assert found is not None
    assert not found.in_place


def test_a_link_in_the_place_of_a_run_s_app_is_of_the_run(
    tmp_path: Path, run: Path, mark: Path, state: Path
) -> None:
    digest = plant(run, mark, record=True)
    (run / "app").rename(tmp_path / "elsewhere")
    (run / "app").symlink_to(tmp_path / "elsewhere")
    for path in (run / "app", run / "app/app.py"):
        with pytest.raises(UsageError, match=f"{run}: has code .*--trust-app {digest}"):
            named_app(path)
    assert not state.exists()


@pytest.mark.parametrize("text", ["", "abc", "../../x", "A" * 64, "0" * 63 + "\n"])
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--trust-app: expected the digest"):
        app_files.trust(text)
    assert not app_files.is_own(text)


def test_on_a_node_the_operators_list_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "a" * 64
    theirs = "b" * 64
    app_files.remember_digest(theirs, "what lies on the node")
    monkeypatch.setenv(*app_files.digests_variable([ours, "no digest"]).popitem())
    assert (app_files.is_own(ours), app_files.is_own(theirs)) == (True, False)
    monkeypatch.setenv(app_files.DIGESTS_VARIABLE, "")
    assert not app_files.is_own(ours)


def test_a_list_that_cannot_be_written_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "inv.yaml"))
    with pytest.raises(ClusterError, match=r"list of your apps cannot be written .*XDG_STATE_HOME"):
        app_files.remember_digest("a" * 64, "x")


def test_only_the_bytes_that_the_digest_is_of_are_imported(
    run: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled modules are no part of the digest, and neither is what comes after the look."""
    entry = "import helper\nNAME = __file__\ndef data(folder): return helper.WIDTH, NAME\n"
    app = own(run, helper="WIDTH = 8\n", app=entry)
    compiled(app, mark, "helper", "app")
    py_compile.compile(str(mark.with_name("evil.py")), str(app / "sndhdr_not_there.pyc"))
    monkeypatch.delitem(sys.modules, "helper", raising=False)

    def look_and_swap(path: Path) -> AppFiles:
        found = files_of_app(path)
        (app / "added.py").write_text("x = 1\n")
        return found

    monkeypatch.setattr("cluster.apps.app.files_of_app", look_and_swap)
    loaded = load_copy(app, "mine")
    width, name = loaded.call("data", app)
    assert (width, mark.exists()) == (8, False)
    assert not Path(name).is_relative_to(run)
    assert sorted(path.name for path in Path(name).parent.iterdir()) == ["app.py", "helper.py"]
    assert loaded.file == app / "app.py"
    remove_copies()
    assert not Path(name).exists()


@pytest.mark.long
def test_a_check_of_a_run_s_app_imports_what_its_digest_is_of(
    tmp_path: Path, run: Path, mark: Path
) -> None:
    app_files.trust(plant(run, tmp_path / "ran", record=True))
    compiled(run / "app", mark, "app")
    ended, said = fab(tmp_path, f"app check {run}/app --inventory inv.yaml")
    assert (ended, mark.exists()) == (0, False), said
    assert (tmp_path / "ran").exists()


def test_bytes_that_changed_after_the_look_are_not_imported(
    run: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = own(run, app="def data(folder): return 1\n")
    streams = AppFiles.streams

    def swapped(self: AppFiles, folder: str) -> Iterator[FileToPack]:
        write_tree(app, {"app.py": code(mark)})
        yield from streams(self, folder)

    monkeypatch.setattr(AppFiles, "streams", swapped)
    with pytest.raises(UsageError, match="has changed while the app was read"):
        load_copy(app, "mine")
    assert not mark.exists()


def test_a_mistake_in_a_copy_is_told_where_it_lies_in_the_run(run: Path) -> None:
    app = own(run, app="def data(folder):\n    raise ValueError('short')\n")
    with pytest.raises(
        UsageError, match=rf"^{app / 'app.py'}:2: data\(\) failed: ValueError: short"
    ):
        load_copy(app, "mine").call("data", app)


@pytest.mark.parametrize("newest", [newest_model, newest_unfinished])
@pytest.mark.parametrize("kind", ["planted", "recorded", "fetched", "a fetched one of our own"])
def test_a_foreign_run_is_never_the_newest(
    run: Path,
    mark: Path,
    newest: Callable[[Path], Path],
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    planted = run.with_name("20260101T120000Z-train")
    digest = plant(planted, mark, record=kind != "planted", finished=False)
    if "fetched" in kind:
        write_tree(planted, {FETCHED: '{"node": "rpi11", "job": "20260101T1200-train"}'})
    if kind == "a fetched one of our own":
        app_files.remember_digest(digest, "mine")
    with pytest.raises(UsageError, match=r"is the newest run, but it .*: name the run with --run"):
        newest(run.parent)
    write_tree(run, {"model/model.json": "{}", "coordinator.log": ""})
    capsys.readouterr()
    assert newest(run.parent) == run
    assert f"{planted}: " in capsys.readouterr().err
    assert not mark.exists()


def test_a_run_of_our_own_app_is_taken(tmp_path: Path, run: Path) -> None:
    run.mkdir(parents=True)
    app = write_tree(tmp_path, {"app.py": "def data(folder): ...\n"}) / "app.py"
    keep(files_of_app(app), run)
    assert why_foreign(run) == "has code that was not trained from here"
    app_files.remember_digest(files_of_app(app).digest, str(app))
    assert why_foreign(run) is None


def test_the_model_of_a_built_in_network_imports_nothing(run: Path, mark: Path) -> None:
    from cluster.jobs.train_result import load as load_model

    app_files.remember_digest(
        plant(run, mark, record=True, name="residual"), "even code of our own"
    )
    with pytest.raises(UsageError, match="expected a model that a training run left"):
        load_model(run / "model")
    assert not mark.exists()


APP = """
import numpy as np
def init(seed):
    return {"kernel": np.ones((4, 3), "float32")}
def forward(parameters, statistics, x, training, seed):
    return x @ parameters["kernel"], {}
def data(folder):
    x, y = np.random.default_rng(0).normal(size=(60, 4)).astype("float32"), np.arange(60) % 3
    return {"x_train": x, "y_train": y, "x_test": x[:20], "y_test": y[:20]}
"""
SMALL = f"{JOB} --epochs 1 --set jobs.train.batch_size=20 --set jobs.train.slots=2"


@pytest.mark.long
def test_what_was_trained_here_needs_no_flag_and_what_an_earlier_version_trained_needs_it_once(
    tmp_path: Path, state: Path
) -> None:
    def done(line: str) -> None:
        ended, said = fab(tmp_path, line)
        assert ended == 0, said

    write_tree(tmp_path, {"mine.py": APP})
    done(f"job train --app mine.py {SMALL}")
    (run,) = tmp_path.glob("runs/*-train")
    (listed,) = state.iterdir()
    export = f"export --run {run} --to onnx --out"
    done(f"{export} first")
    (run / "result.json").unlink()
    done(f"job train --resume {SMALL}")
    listed.unlink()
    ended, said = fab(tmp_path, f"{export} second")
    assert ended == ExitCode.BAD_USAGE
    assert said.count("\n") == 1
    flag, digest = said.split()[-2:]
    assert (flag, digest) == (app_files.TRUST_FLAG, listed.name)
    done(f"{export} third {flag} {digest}")
    done(f"{export} fourth")
