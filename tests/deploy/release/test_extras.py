"""Packages over the common environment are locked beside it, installed over it, and kept."""

import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, UsageError
from deploy.release import extras
from deploy.release.extras import (
    Base,
    Lock,
    environment_for,
    lock_packages,
    package_lines,
    unsatisfied_reason,
)
from deploy.release.requirements import MACHINES, PYTHONS, Pin, Target
from deploy.release.scripts import Refusal, prune_extras
from deploy.release.wheelhouse import make_wheelhouse
from tests.deploy.release.wheels import (
    MACHINE,
    PYTHON,
    installing,
    names,
    pure_wheel,
    refusal,
    requirements,
    run,
    uv_wheel,
)
from tests.deploy.tables import Tables

rows = Tables(__file__)

HERE = Target(f"{PYTHON}.2", MACHINE)
OTHER_MACHINE = "x86_64" if MACHINE == "aarch64" else "aarch64"
SITE = sysconfig.get_path("purelib")


@pytest.fixture
def packages(index: Path) -> Path:
    """An index of four packages."""
    pure_wheel(index, "alpha", text="a", needs=["beta>=1", "shared"])
    pure_wheel(index, "beta", "1.0", text="old")
    pure_wheel(index, "beta", "2.0", text="new")
    pure_wheel(index, "shared", "1.0")
    pure_wheel(index, "shared", "2.0")
    tag = f"cp{PYTHON.replace('.', '')}-abi3-manylinux_2_28_{MACHINE}"
    pure_wheel(index, "native").rename(index / f"native-1.0-{tag}.whl")
    return index


def base(target: Target = HERE, key: str = "0" * 16, **versions: str) -> Base:
    return Base(key, versions, SITE, target)


def lock(folder: Path, text: str, of: Base) -> Lock:
    path = folder / "requirements.txt"
    path.write_text(text)
    return lock_packages(path, of, folder / "locks")


def versions(found: Lock) -> dict[str, str]:
    assert all(pin.hashes for pin in found.pins)
    return {pin.name: pin.version for pin in found.pins}


@pytest.mark.usefixtures("packages")
def test_what_is_named_and_what_that_needs_is_locked_but_nothing_that_is_there(
    tmp_path: Path,
) -> None:
    there = base(shared="1.0")
    found = lock(tmp_path, "alpha  # the first letter\n\n# all of it\n", there)
    assert versions(found) == {"alpha": "1.0", "beta": "2.0"}
    nothing = lock(tmp_path, "shared\n", there)
    assert (nothing.pins, nothing.key) == ((), "")


def test_a_file_is_locked_once(packages: Path, tmp_path: Path) -> None:
    first = lock(tmp_path, "beta<2\nshared\n", base())
    for wheel in packages.iterdir():
        wheel.unlink()
    assert lock(tmp_path, "# in other words\nshared\nbeta < 2\n", base()) == first


@pytest.mark.usefixtures("packages")
def test_the_key_is_that_of_the_packages_and_of_what_lies_below(tmp_path: Path) -> None:
    keys = {lock(tmp_path, text, base()).key for text in ("beta\n", "beta<2\n", "shared\n")}
    keys.add(lock(tmp_path, "beta\n", base(key="1" * 16)).key)
    assert sorted(map(len, keys)) == [16] * 4


@pytest.mark.usefixtures("packages")
def test_another_machine_is_asked_for_by_name(tmp_path: Path) -> None:
    assert lock(tmp_path, "native\n", base()).pins
    said = f"CPython 3.11 on {OTHER_MACHINE}.*native.*platform tag"
    with pytest.raises(UsageError, match=said):
        lock(tmp_path, "native\n", base(Target("3.11.2", OTHER_MACHINE)))


@rows("text", "reason")
@pytest.mark.usefixtures("packages")
def test_a_lock_that_cannot_be_had_names_package_and_reason_in_one_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    line = rf"^[^\n]*requirements\.txt: no versions fit .*{reason}[^\n]*$"
    with pytest.raises(UsageError, match=line):
        lock(tmp_path, text, base(shared="1.0"))
    assert not list((tmp_path / "locks").glob("*"))


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
def test_tensorflow_is_ours_by_either_name(index: Path, tmp_path: Path, name: str) -> None:
    pure_wheel(index, "keras_two", needs=[f"{name}<3"])
    pure_wheel(index, "tensorflow_cpu", "2.21.0")
    pure_wheel(index, "tensorflow", "2.21.0")
    ours = replace(base(), versions={"tensorflow-cpu": "2.21.0"})
    assert [*versions(lock(tmp_path, f"keras_two\n{name}>2\n", ours))] == ["keras-two"]
    with pytest.raises(UsageError, match=r"TensorFlow is the cluster's own 2\.21\.0, which stays"):
        lock(tmp_path, f"{name}<2.16\n", ours)


def test_an_index_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    line = r"^[^\n]*cannot be locked .*: is the network there\?[^\n]*$"
    with pytest.raises(ClusterError, match=line) as failed:
        lock(tmp_path, "beta\n", base())
    assert not isinstance(failed.value, UsageError)


@rows("text", "words")
def test_a_line_that_names_no_package_is_shown(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "requirements.txt"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=words):
        package_lines(path)


def test_a_file_has_at_most_200_lines_and_64_kib(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    for text, words in (("beta\n" * 201, "at most 200 lines"), ("#" * ((64 << 10) + 1), "64 KiB")):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            package_lines(path)


def test_the_reason_is_uvs_without_its_frame() -> None:
    said = "error: No solution\n  cause: Because a has\n  no wheels, we can conclude that your"
    rest = " requirements are unsatisfiable.\n\nhint: Wheels of `a`\n"
    assert unsatisfied_reason(said + rest) == "Because a has no wheels"
    assert unsatisfied_reason("error: something else") == "something else"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_kind_of_node_has_its_base(python: str, machine: str) -> None:
    found = Base.of_nodes(Target(f"{python}.1", machine))
    assert {"numpy", "keras"} <= found.versions.keys()
    assert "uv" not in found.versions
    home = f"/opt/pscluster/environments/{found.key}"
    assert found.site_packages == f"{home}/lib/python{python}/site-packages"


def imported(python: Path, *modules: str) -> list[str]:
    """The files of modules, as this Python imports them."""
    program = f"import {', '.join(modules)}\n"
    program += "".join(f"print({module}.__file__)\n" for module in modules)
    return subprocess.check_output([python, "-I", "-c", program], text=True).splitlines()


def test_an_environment_here_has_both_and_ours_come_first(packages: Path, tmp_path: Path) -> None:
    pure_wheel(packages, "yaml", text="not PyYAML")
    said: list[str] = []
    found = lock(tmp_path, "beta\nyaml\n", replace(Base.of_this_process(), is_running=True))
    python = environment_for(found, said.append, tmp_path / "extras")
    beta, *ours = imported(python, "beta", "yaml", "packaging")
    assert beta.startswith(str(tmp_path / "extras" / found.key))
    assert {str(Path(path).parents[1]) for path in ours} == {SITE}
    assert environment_for(found, said.append, tmp_path / "extras") == python
    assert len(said) == 1


def test_where_nothing_is_missing_our_own_python_is_it(tmp_path: Path) -> None:
    assert environment_for(Lock(base(), ()), print, tmp_path / "extras") == Path(sys.executable)
    assert not (tmp_path / "extras").exists()


@pytest.mark.usefixtures("packages")
def test_an_installation_that_fails_leaves_no_environment(tmp_path: Path) -> None:
    wrong = Lock(Base.of_this_process(), (Pin("beta", "2.0", frozenset({"0" * 64})),))
    with pytest.raises(ClusterError, match=r"^[^\n]*cannot be installed: .*ash mismatch[^\n]*$"):
        environment_for(wrong, lambda _: None, tmp_path / "extras")
    assert names(tmp_path / "extras") == [".lock"]


@pytest.mark.usefixtures("packages")
def test_old_environments_go_but_none_that_a_process_holds(
    tmp_path: Path, aged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(_: Lock, home: Path) -> None:
        home.mkdir()
        (home / ".complete").touch()

    monkeypatch.setattr(extras, "_install", install)
    found = lock(tmp_path, "beta\n", base())
    environment_for(found, lambda _: None, aged)
    kept = {path.name for path in aged.iterdir() if path.is_dir()}
    assert kept == {"a" * 16, "b" * 16, "e" * 16, found.key}


def test_a_node_keeps_the_latest_and_those_in_use(aged: Path) -> None:
    root = str(aged.parent)
    assert run(prune_extras("f" * 16, 2, root=root)).line == "removed 2"
    assert names(aged) == [name * 16 for name in "abef"]
    for where in (root, f"{root}/nothing"):
        assert not run(prune_extras("f" * 16, 5, root=where)).changed
    with pytest.raises(ValueError, match="expected a key"):
        prune_extras("../..", 2)


def test_a_node_installs_the_packages_over_its_environment(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = uv_wheel(packages)
    monkeypatch.setattr(extras, "committed", lambda **_: requirements(uv))
    found = lock(tmp_path, "beta\n", base())
    asked = found.wheelhouse_list()
    wheels = make_wheelhouse(asked, PYTHON, MACHINE, cache=tmp_path / "wheels", say=lambda _: None)
    root = tmp_path / "o'clock $(touch pwned)"

    def script(of: Lock) -> str:
        return installing(wheels, wheels.folder, root, lock=of)

    assert run(script(found)).changed
    assert not run(script(found)).changed
    nowhere = replace(found.base, key="1" * 16, site_packages="/nowhere/site-packages")
    kind, line = refusal(script(replace(found, base=nowhere)))
    assert (kind, line.partition(" ")[0]) == (Refusal.NOT_THERE, "/nowhere/site-packages")
    assert names(root / "environments") == [found.key]
