"""`fab app new`: whole folders, and nothing where one cannot be made."""

import ast
import stat
from pathlib import Path

import pytest

from cluster.apps.files import look
from cluster.errors import ClusterError, UsageError
from deploy.apps.templates import FOLDER, TEMPLATES, USUAL, new_app
from deploy.commands.flags import FLAGS


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_app_is_written_whole(tmp_path: Path, template: str) -> None:
    made = new_app("my-app_2", template, tmp_path)
    assert made == tmp_path / "my-app_2"
    assert stat.S_IMODE(made.stat().st_mode) == 0o755
    names = {path.name for path in made.iterdir()}
    assert names == {path.name for path in (FOLDER / template).iterdir() if path.is_file()}
    assert names >= {"app.py", "test_app.py", "README.md"}
    texts = {path.name: path.read_text() for path in made.iterdir()}
    assert not [name for name, text in texts.items() if "APP_NAME" in text]
    for command in ("app check my-app_2", "job train --app my-app_2 --mode single", "job train --app my-app_2"):
        assert f"$ fab {command} --inventory mine.yaml" in texts["README.md"]
    app = ast.parse(texts["app.py"])
    functions = [node for node in ast.walk(app) if isinstance(node, ast.FunctionDef)]
    assert ast.get_docstring(app)
    assert all(ast.get_docstring(function) for function in functions if function.name != "weights")
    assert look(made).defines("data")
    assert list(tmp_path.iterdir()) == [made]


def test_every_template_has_a_folder_and_the_flag_lists_them() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(TEMPLATES)
    assert FLAGS["template"].default == USUAL
    assert all(name in FLAGS["template"].help for name in TEMPLATES)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/a", "9lives", "-x", "a b", "é", "a" * 64, "a\nb", "~"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UsageError, match=r"expected a name of letters, digits, - and _ that begins with a letter"
    ) as at:
        new_app(name, USUAL, tmp_path)
    assert "\n" not in str(at.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("template", "remedy"),
    [("kers", "did you mean keras?"), ("image", "did you mean images?"), ("zzz", "choose keras, tabular, images")],
)
def test_unknown_templates(tmp_path: Path, template: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=f"--template: unknown template '{template}'.*") as at:
        new_app("a", template, tmp_path)
    assert remedy in str(at.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["empty folder", "folder", "file", "link to nothing"])
def test_what_exists_stays(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "mine"
    if kind == "file":
        place.write_text("kept")
    elif kind == "link to nothing":
        place.symlink_to(tmp_path / "gone")
    else:
        place.mkdir()
        if kind == "folder":
            (place / "kept").write_text("kept")
    with pytest.raises(UsageError, match="mine: exists already: choose another name, or remove it"):
        new_app("mine", USUAL, tmp_path)
    assert list(tmp_path.iterdir()) == [place]
    if kind == "folder":
        assert [path.name for path in place.iterdir()] == ["kept"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"gone/mine: cannot be written \(No such file or directory\)"):
        new_app("mine", USUAL, tmp_path / "gone")
