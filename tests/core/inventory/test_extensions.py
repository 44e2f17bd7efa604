"""A mode, a codec, an optimizer, a model and a reader are added as docs/how-to-add/ says.

Each is a module and a line.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from core.ground.registry import IncompleteExtensionError, Registry
from core.inventory.templates import local_inventory
from tests.core.inventory.cases import PROJECT
from tests.ran import python
from tests.tables import table

PAGES = PROJECT / "docs" / "how-to-add"
KINDS = ("mode", "codec", "optimizer", "model", "reader")
PACKAGES = ("cluster", "core", "deploy", "kernels", "ps_node", "recognise", "worker_node")
_EXAMPLE = re.compile(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)


def files(root: Path) -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
    }


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the examples of all five pages."""
    root = tmp_path_factory.mktemp("extended")
    ignore = shutil.ignore_patterns("__pycache__")
    for package in (*PACKAGES, "tools"):
        shutil.copytree(PROJECT / package, root / package, ignore=ignore)
    for name in ("fabfile.py", "pyproject.toml"):
        shutil.copy(PROJECT / name, root / name)
    for kind in KINDS:
        before = files(root)
        page = (PAGES / f"{kind}.md").read_text(encoding="utf-8")
        (module, text), (listing, line) = _EXAMPLE.findall(page)
        (root / module).write_text(text, encoding="utf-8")
        head, brace, rest = before[root / listing].partition("EXTENSIONS = {")
        (root / listing).write_text(f"{head}{brace}\n{line}{rest}", encoding="utf-8")
        differ = {path for path, text in files(root).items() if text != before.get(path)}
        assert differ == {root / module, root / listing}, f"a {kind} is one file and one line"
        assert root / module not in before
    return root


def test_flags_messages_and_reference_know_what_was_added(extended: Path) -> None:
    assert "serial" in python("-m", "fabric", "--help", "job.train", folder=extended)
    page = python("-m", "tools.inventory_reference", folder=extended)
    words = ["`serial` lets one at a time compute", "`jobs.train.serial`"]
    words += ["name: bf16`", "name: signum`", "name: statistics`"]
    assert [each for each in words if each not in page] == []
    (extended / "misspelt.yaml").write_text(local_inventory() + "    mode: serail\n")
    load = "from core.inventory import load; load('misspelt.yaml')"
    assert "did you mean `serial`?" in python("-c", load, code=1, folder=extended)
    shown = python("-m", "core.data.look", "no-such-file", folder=extended)
    assert ".readings with lines such as" in shown


def test_what_was_added_costs_fab_no_tensorflow(extended: Path) -> None:
    (extended / "plain.yaml").write_text(local_inventory())
    loaded = "import sys; from core.inventory import load; load('plain.yaml'); print(*sys.modules)"
    modules = set(python("-c", loaded, folder=extended).split())
    added = {"core.consistency.serial", "core.models.statistics", "core.engine.codecs.bf16"}
    assert added <= modules
    assert not {"tensorflow", "numpy"} & modules


class Facts:
    name: str
    cost: int


PLACE = "extension_folder_of_a_test"


EXTENSIONS = table("core/inventory/tables", "extensions")


@pytest.mark.parametrize(("module", "message"), EXTENSIONS.values(), ids=EXTENSIONS)
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
