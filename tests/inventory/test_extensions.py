"""A mode, a codec, an optimizer, a model and a reader are added as docs/how-to-add/ says: a module and a line each."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cluster.inventory.templates import local_inventory
from cluster.registry import IncompleteExtensionError, Registry
from tests.inventory.cases import PROJECT

PAGES = PROJECT / "docs" / "how-to-add"
KINDS = ("mode", "codec", "optimizer", "model", "reader")
PACKAGES = ("cluster", "deploy", "ps_node", "worker_node")
_EXAMPLE = re.compile(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
    }


def touched(before: dict[str, str], after: dict[str, str]) -> tuple[list[str], list[str]]:
    """Files that are new, and lines that are new in the others."""
    new = sorted(set(after) - set(before))
    lines = [
        line
        for name in set(before) & set(after)
        for line in set(after[name].splitlines()) - set(before[name].splitlines())
    ]
    return new, lines


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the examples of all five pages."""
    root = tmp_path_factory.mktemp("extended")
    for package in (*PACKAGES, "tools"):
        shutil.copytree(PROJECT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("fabfile.py", "pyproject.toml"):
        shutil.copy(PROJECT / name, root / name)
    for kind in KINDS:
        before = files(root)
        examples = _EXAMPLE.findall((PAGES / f"{kind}.md").read_text(encoding="utf-8"))
        assert len(examples) == (4 if kind == "model" else 2), "a module and its line; a model's export is another"
        for (module, text), (listing, line) in zip(examples[::2], examples[1::2], strict=True):
            (root / module).write_text(text, encoding="utf-8")
            listed = (root / listing).read_text(encoding="utf-8")
            head, brace, rest = listed.partition("EXTENSIONS = {")
            (root / listing).write_text(f"{head}{brace}\n{line}{rest}", encoding="utf-8")
            new, _ = touched(before, files(root))
            changed = [name for name, content in files(root).items() if before.get(name, content) != content]
            assert (new, changed) == ([module], [listing]), f"a {kind} is one new file and one line"
            before = files(root)
    return root


def python(root: Path, *words: str, code: int = 0) -> str:
    """Standard output of a Python that runs the copy."""
    done = subprocess.run([sys.executable, *words], cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_flags_messages_and_reference_know_what_was_added(extended: Path) -> None:
    assert "serial" in python(extended, "-m", "fabric", "--help", "job.train")
    page = python(extended, "-m", "tools.inventory_reference")
    for words in (
        "`serial` lets one at a time compute",
        "`jobs.train.serial`",
        "name: bf16`",
        "name: signum`",
        "name: statistics`",
    ):
        assert words in page, words
    (extended / "misspelt.yaml").write_text(local_inventory() + "    mode: serail\n")
    load = "from cluster.inventory import load; load('misspelt.yaml')"
    assert "did you mean `serial`?" in python(extended, "-c", load, code=1)
    assert ".readings with lines such as" in python(extended, "-m", "cluster.data.look", "no-such-file")


def test_what_was_added_costs_fab_no_tensorflow(extended: Path) -> None:
    (extended / "plain.yaml").write_text(local_inventory())
    loaded = "import sys; from cluster.inventory import load; load('plain.yaml'); print(*sys.modules)"
    modules = set(python(extended, "-c", loaded).split())
    assert {"cluster.consistency.serial", "cluster.models.statistics", "cluster.engine.codecs.bf16"} <= modules
    assert not {"tensorflow", "numpy"} & modules


def recordings(path: Path) -> Path:
    random = np.random.default_rng(3)
    lines = []
    for part, subjects in (("train", range(4)), ("test", range(4, 6))):
        for subject in subjects:
            for rate, label in enumerate(("REST", "ROW", "JUMP")):
                phase = np.arange(320)[:, None] / 16 * 2 * np.pi * rate
                samples = np.sin(phase + np.arange(3)) + random.normal(0, 0.1, (320, 3))
                lines += [f"{part},{subject},{label},{','.join(f'{value:.4f}' for value in row)}" for row in samples]
    path.write_text("\n".join(lines))
    return path


def trained(root: Path, folder: Path, settings: Sequence[str]) -> dict[str, object]:
    overrides = [word for setting in (*settings, f"runs={folder / 'runs'}") for word in ("--set", setting)]
    inventory = ["--inventory", str(folder / "inventory.yaml")]
    fab = ("-m", "fabric", "-r", str(root))
    try:
        python(root, *fab, "deploy", "start", "--jobs", *inventory, *overrides)
    finally:
        python(root, *fab, "deploy", "stop", *inventory)
    (result,) = (folder / "runs").glob("*-train/result.json")
    found: dict[str, object] = json.loads(result.read_text())
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_cluster_trains_with_what_was_added(extended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = local_inventory(workers=2)
    head, _, _ = text.partition("\njobs:")
    data = recordings(tmp_path / "mine.readings")
    train = {
        "mode": "serial", "codec": {"name": "bf16"}, "optimizer": {"name": "signum"},
        "model": {"name": "statistics", "hidden": 16},
        "data": {"source": str(data)}, "epochs": 2, "batch_size": 10, "validation_subjects": 0,
    }  # fmt: skip
    (tmp_path / "inventory.yaml").write_text(f"{head}\njobs: {{train: {json.dumps(train)}}}\n")
    result = trained(extended, tmp_path, ())
    assert result["mode"] == "serial"
    assert result["model"]["name"] == "statistics"  # type: ignore[index]
    assert result["settings"]["codec"]["name"] == "bf16"  # type: ignore[index]
    assert result["settings"]["optimizer"]["name"] == "signum"  # type: ignore[index]
    assert result["dataset"]["name"] == "mine"  # type: ignore[index]
    assert result["updates"]["applied"] == result["updates"]["scheduled"] > 0  # type: ignore[index]
    # 70 values and 16 statistics less, two bytes each: less than the four bytes of plain values.
    assert result["wire"]["push_bytes_per_step"] > 0  # type: ignore[index]


class Facts:
    name: str
    cost: int


PLACE = "extension_folder_of_a_test"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("class Toy(Facts):\n    name = 'toy'", r"extension_folder_of_a_test\.toy: the gear Toy .* `cost`"),
        ("class Toy(Facts):\n    name = 'tool'\n    cost = 3", r"expected `name = 'toy'` as listed, got 'tool'"),
        ("class Toy:\n    name = 'toy'\n    cost = 3", "expected a class that inherits from Facts"),
        ("class Other(Facts):\n    name = 'toy'\n    cost = 3", "expected a class that inherits from Facts"),
        (
            "from abc import ABC, abstractmethod\nclass Toy(Facts, ABC):\n    name = 'toy'\n    cost = 3\n"
            "    @abstractmethod\n    def turn(self): ...",
            "the gear Toy does not define turn",
        ),
    ],
)
def test_an_incomplete_extension_is_refused_by_module_and_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    folder = tmp_path / PLACE
    folder.mkdir()
    (folder / "__init__.py").write_text("EXTENSIONS = {'toy': 'toy:Toy'}")
    (folder / "toy.py").write_text(f"from {__name__} import Facts\n{module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (PLACE, f"{PLACE}.toy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    with pytest.raises(IncompleteExtensionError, match=message):
        Registry("gear", PLACE, Facts)["toy"]
