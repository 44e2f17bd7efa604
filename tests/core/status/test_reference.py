"""docs/status.schema.json says what /api/status answers, and docs/page.md has the events."""

import ast
import json
from pathlib import Path

import jsonschema
import pytest

from core.status import reference, view
from tests.core.status.played_run import Played, pi, whole


def test_every_field_has_a_meaning() -> None:
    tree = ast.parse(Path(view.__file__).read_text(encoding="utf-8"))
    without = [
        f"{node.name}.{name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for name, meaning in reference.fields(node)
        if not meaning
    ]
    assert not without


@pytest.mark.parametrize("played", [whole(), pi()], ids=["train", "pi"])
def test_an_answer_fits_the_schema(played: Played) -> None:
    answer = json.loads(json.dumps(view.described(played.view(60.0))))
    schema = reference.schema()
    jsonschema.validate(answer, schema)
    assert answer.keys() == schema["properties"].keys()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answer, "nodes": "rpi11"}, schema)
