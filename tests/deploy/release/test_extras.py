"""Packages over the common environment: locked beside it, installed over it, kept while they are used."""

import fcntl
import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ClusterError, UsageError
from deploy.release import extras
from deploy.release.extras import Base, Lock, environment_for, locked, unsatisfied, wanted
from deploy.release.requirements import MACHINES, PYTHONS, Pin, Target
from deploy.release.scripts import Refusal, RefusedError, install_environment, prune_extras
from deploy.release.wheelhouse import make_wheelhouse
from tests.deploy.release.wheels import EXECUTABLE, MACHINE, PYTHON, pure_wheel, requirements, run, uv_wheel

HERE = Target(f"{PYTHON}.2", MACHINE)
FOREIGN = Target("3.11.2", "x86_64" if MACHINE == "aarch64" else "aarch64")
SITE = sysconfig.get_path("purelib")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that uv and pip take wheels from instead of an index."""
    folder = tmp_path / "index"
    pure_wheel(folder, "alpha", text="a", needs=["beta>=1", "shared"])
    pure_wheel(folder, "beta", "1.0", text="old")
    pure_wheel(folder, "beta", "2.0", text="new")
    pure_wheel(folder, "shared", "1.0")
    pure_wheel(folder, "shared", "2.0")
    native = pure_wheel(folder, "native")
    native.rename(folder / f"native-1.0-cp{PYTHON.replace('.', '')}-abi3-manylinux_2_28_{MACHINE}.whl")
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "simple").as_uri())  # which has none of them
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for tool in ("UV", "PIP"):
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(folder))
    return folder


def base(target: Target = HERE, **versions: str) -> Base:
    return Base("0" * 16, versions, SITE, target)


def lock(folder: Path, text: str, of: Base) -> Lock:
    path = folder / "requirements.txt"
    path.write_text(text)
    return locked(path, of, folder / "locks")


def test_what_is_named_and_what_that_needs_is_locked_but_nothing_that_is_there(index: Path, tmp_path: Path) -> None:
    found = lock(tmp_path, "alpha  # the first letter\n\n# all of it\n", base(shared="1.0"))
    assert [(pin.name, pin.version) for pin in found.pins] == [("alpha", "1.0"), ("beta", "2.0")]
    assert all(pin.hashes for pin in found.pins)
    assert lock(tmp_path, "shared\n", base(shared="1.0")).pins == ()
    assert lock(tmp_path, "shared\n", base(shared="1.0")).key == ""


def test_a_file_is_locked_once(index: Path, tmp_path: Path) -> None:
    first = lock(tmp_path, "beta<2\nshared\n", base())
    for wheel in index.iterdir():
        wheel.unlink()
    assert lock(tmp_path, "# in other words\nshared\nbeta < 2\n", base()) == first


def test_the_key_is_that_of_the_packages_and_of_what_lies_below(index: Path, tmp_path: Path) -> None:
    keys = {lock(tmp_path, text, base()).key for text in ("beta\n", "beta<2\n", "shared\n")}
    keys.add(lock(tmp_path, "beta\n", replace(base(), key="1" * 16)).key)
    assert len(keys) == 4
    assert all(len(key) == 16 for key in keys)


def test_another_machine_is_asked_for_by_name(index: Path, tmp_path: Path) -> None:
    assert lock(tmp_path, "native\n", base()).pins
    with pytest.raises(UsageError, match=f"CPython 3.11 on {FOREIGN.machine}.*native.*platform tag"):
        lock(tmp_path, "native\n", base(FOREIGN))


REFUSED = {
    "gamma\n": "gamma was not found",
    "beta==7\n": r"no version of beta==7",
    "shared>1\n": r"shared>1 and shared==1\.0.*; shared 1\.0: the cluster's own version, which stays",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_lock_that_cannot_be_had_names_package_and_reason_in_one_line(index: Path, tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=rf"requirements\.txt: no versions fit .*{REFUSED[text]}") as refused:
        lock(tmp_path, text, base(shared="1.0"))
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "locks").glob("*"))


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
def test_tensorflow_is_ours_by_either_name(index: Path, tmp_path: Path, name: str) -> None:
    pure_wheel(index, "keras_two", needs=[f"{name}<3"])
    ours = replace(base(), versions={"tensorflow-cpu": "2.21.0"})
    pure_wheel(index, "tensorflow_cpu", "2.21.0")
    pure_wheel(index, "tensorflow", "2.21.0")
    assert [pin.name for pin in lock(tmp_path, f"keras_two\n{name}>2\n", ours).pins] == ["keras-two"]
    with pytest.raises(UsageError, match=r"TensorFlow is the cluster's own 2\.21\.0, which stays"):
        lock(tmp_path, f"{name}<2.16\n", ours)


def test_an_index_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(ClusterError, match=r"cannot be locked .*: is the network there\?") as failed:
        lock(tmp_path, "beta\n", base())
    assert not isinstance(failed.value, UsageError)
    assert "\n" not in str(failed.value)


WRONG = {
    "beta\n-r others.txt\n": "line 2: .*'-r others.txt'",
    "--index-url https://example.org\n": "line 1",
    "-e .\n": "line 1",
    "./here.whl\n": "line 1",
    "git+https://example.org/a.git\n": "line 1",
    "beta @ https://example.org/beta.whl\n": "line 1",
    "beta==1 --hash=sha256:00\n": "line 1",
    "beta beta\n": "line 1",
    "beta\n" * 201: "at most 200 lines",
    "# long\n" + "x" * (64 << 10): "64 KiB",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_a_line_that_names_no_package_is_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=WRONG[text]):
        wanted(path)


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        wanted(tmp_path / "requirements.txt")
    with pytest.raises(UsageError, match="cannot be read"):
        wanted(tmp_path / "nothing.txt")


def test_the_reason_is_uvs_without_its_frame() -> None:
    said = "error: No solution\n  cause: Because a has\n  no wheels, we can conclude that your requirements are "
    assert unsatisfied(f"{said}unsatisfiable.\n\nhint: Wheels of `a`\n") == "Because a has no wheels"
    assert unsatisfied("error: something else") == "something else"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_kind_of_node_has_its_base(python: str, machine: str) -> None:
    found = Base.of_nodes(Target(f"{python}.1", machine))
    assert {"numpy", "keras"} <= found.versions.keys()
    assert "uv" not in found.versions
    assert found.site_packages == f"/opt/pscluster/environments/{found.key}/lib/python{python}/site-packages"


def imported(python: Path, *modules: str) -> list[str]:
    """The files of modules, as this Python imports them."""
    program = f"import {', '.join(modules)}; print(*[one.__file__ for one in ({', '.join(modules)},)], sep='\\n')"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_environment_here_has_both_and_ours_come_first(index: Path, tmp_path: Path) -> None:
    pure_wheel(index, "yaml", text="not PyYAML")
    said: list[str] = []
    found = lock(tmp_path, "beta\nyaml\n", replace(Base.of_this_process(), here=True))
    python = environment_for(found, said.append, tmp_path / "extras")
    beta, yaml, packaging = imported(python, "beta", "yaml", "packaging")
    assert beta.startswith(str(tmp_path / "extras" / found.key))
    assert {str(Path(path).parents[1]) for path in (yaml, packaging)} == {SITE}
    assert len(said) == 1
    assert environment_for(found, said.append, tmp_path / "extras") == python
    assert len(said) == 1


def test_where_nothing_is_missing_our_own_python_is_it(tmp_path: Path) -> None:
    assert environment_for(Lock(base(), ()), print, tmp_path / "extras") == Path(sys.executable)
    assert not (tmp_path / "extras").exists()


def test_an_installation_that_fails_leaves_no_environment(index: Path, tmp_path: Path) -> None:
    wrong = Lock(Base.of_this_process(), (Pin("beta", "2.0", frozenset({"0" * 64})),))
    with pytest.raises(ClusterError, match=r"cannot be installed: .*ash mismatch") as failed:
        environment_for(wrong, lambda _: None, tmp_path / "extras")
    assert "\n" not in str(failed.value)
    assert [path.name for path in (tmp_path / "extras").iterdir()] == [".lock"]


def test_old_environments_go_but_none_that_a_process_holds(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "extras"
    for age, name in enumerate("abcdef"):
        (folder / (name * 16)).mkdir(parents=True)
        mark = folder / (name * 16) / ".complete"
        mark.touch()
        os.utime(mark, (1000 - age, 1000 - age))
    monkeypatch.setattr(extras, "_install", lambda lock, home: ((home).mkdir(), (home / ".complete").touch()))
    with (folder / ("e" * 16) / ".complete").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        found = lock(tmp_path, "beta\n", base())
        environment_for(found, lambda _: None, folder)
        assert {path.name[0] for path in folder.glob("*/")} - {found.key[0]} == {"a", "b", "e"} - {found.key[0]}
        kept = {path.name for path in folder.iterdir() if path.is_dir()}
    assert kept == {"a" * 16, "b" * 16, "e" * 16, found.key}


def refusal(text: str) -> tuple[Refusal | None, str]:
    with pytest.raises(RefusedError) as caught:
        run(text)
    return caught.value.refusal, str(caught.value)


def test_a_node_installs_the_packages_over_its_environment(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = uv_wheel(index)
    monkeypatch.setattr(extras, "committed", lambda **_: requirements(uv))
    found = lock(tmp_path, "beta\n", base())
    wheels = make_wheelhouse(found.wheelhouse_list(), PYTHON, MACHINE, cache=tmp_path / "wheels", say=lambda _: None)
    root = tmp_path / "o'clock $(touch pwned)"
    text = install_environment(wheels, str(wheels.folder), root=str(root), python=EXECUTABLE, lock=found)
    assert run(text).changed
    home = root / "environments" / found.key
    beta, packaging = imported(home / "bin" / "python", "beta", "packaging")
    assert beta.startswith(str(home))
    assert packaging.startswith(SITE)
    assert not run(text).changed
    nowhere = replace(found, base=replace(found.base, site_packages="/nowhere/site-packages"))
    other = install_environment(wheels, str(wheels.folder), root=str(root), python=EXECUTABLE, lock=nowhere)
    kind, line = refusal(other.replace(found.key, "1" * 16))
    assert (kind, line.partition(" ")[0]) == (Refusal.NOT_THERE, "/nowhere/site-packages")
    assert [path.name for path in (root / "environments").iterdir()] == [found.key]


def test_a_node_keeps_the_latest_and_those_in_use(tmp_path: Path) -> None:
    folder = tmp_path / "environments"
    for age, name in enumerate("abcdef"):
        (folder / (name * 16)).mkdir(parents=True)
        mark = folder / (name * 16) / ".complete"
        mark.touch()
        os.utime(mark, (1000 - age, 1000 - age))
    with (folder / ("e" * 16) / ".complete").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert run(prune_extras("f" * 16, 2, root=str(tmp_path))).line == "removed 2"
    assert {path.name[0] for path in folder.iterdir()} == set("abef")
    assert not run(prune_extras("f" * 16, 5, root=str(tmp_path))).changed
    assert not run(prune_extras("f" * 16, 5, root=str(tmp_path / "nothing"))).changed
    with pytest.raises(ValueError, match="expected a key"):
        prune_extras("../..", 2)
