"""The schemas of /api/status and of the history say what is written there."""

import ast
import json
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest

from core.status import events, view
from core.status.history import KEPT, line_of
from core.status.parts import TrainCount
from core.status.past_run import TOLD
from core.status.records import FIGURES
from tests.core.status.played_run import STARTED, Played, pi, whole
from tools import status_schemas as reference


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


def test_the_tables_name_fields_that_there_are() -> None:
    for name, rows in FIGURES.items():
        known = {field.name for field in fields(getattr(events, name))}
        assert {field for row in rows.values() for field in row.values()} <= known, name
        assert {*rows.get("count", ()), *rows.get("added", ())} <= {
            field.name for field in fields(TrainCount)
        }, name
    assert {*TOLD["counted"], *TOLD["lacking"]} <= {field.name for field in fields(view.TrainView)}
    for row in TOLD["events"]:
        for name, places in row.items():
            assert places.keys() <= {field.name for field in fields(KEPT[name])}, name


of_both_jobs = pytest.mark.parametrize("played", [whole(), pi()], ids=["train", "pi"])


@of_both_jobs
def test_an_answer_fits_the_schema(played: Played) -> None:
    answer = json.loads(json.dumps(view.described(played.view(60.0))))
    schema = reference.schema()
    jsonschema.validate(answer, schema)
    assert answer.keys() == schema["properties"].keys()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answer, "nodes": "rpi11"}, schema)


@of_both_jobs
def test_a_line_of_the_history_fits_its_schema(played: Played) -> None:
    fits = jsonschema.Draft202012Validator(reference.history_schema()).is_valid
    lines = [json.loads(line_of(event, at, STARTED)) for at, event in played.kept]
    assert lines
    assert [line for line in lines if not fits(line)] == []
    assert not fits({**lines[0], "cluster": 3})
