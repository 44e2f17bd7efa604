"""docs/page.md says what /api/status answers."""

import ast
from pathlib import Path

from core.status import reference, view
from tests.core.status.played_run import pi, whole

PAGE = Path(__file__).parents[3] / reference.PAGE


def test_the_page_has_every_field_of_the_picture() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == reference.with_reference(text), "run: python -m core.status.reference --write"


def test_every_field_has_a_meaning() -> None:
    tree = ast.parse(Path(view.__file__).read_text(encoding="utf-8"))
    without = [
        f"{node.name}.{name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for name, _, meaning in reference.fields(node)
        if not meaning
    ]
    assert not without


def test_every_key_of_the_answer_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for played in (whole(), pi()):
        assert all(f"| `{key}` " in text for key in view.described(played.view(60.0)))
