"""Pages that programs write, whole or in part, say what the sources of now say."""

from collections.abc import Callable

import pytest

from core.metrics import reference as metrics
from core.status import reference as status
from deploy.commands import reference as commands
from tests.habits.leaks import PROJECT
from tools import extension_tables
from tools import inventory_reference as inventory

pytestmark = pytest.mark.sources


@pytest.mark.parametrize(
    ("page", "written", "program"),
    [
        (inventory.PAGE, lambda _: inventory.render_reference(), "tools.inventory_reference"),
        (metrics.PAGE, lambda _: metrics.render_reference(), "core.metrics.reference"),
        (commands.PAGE, commands.render, "deploy.commands.reference"),
        (status.SCHEMA, lambda _: status.written(status.schema()), "core.status.reference"),
        (
            status.HISTORY,
            lambda _: status.written(status.history_schema()),
            "core.status.reference",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_a_page_is_what_its_program_writes(
    page: str, written: Callable[[str], str], program: str
) -> None:
    text = (PROJECT / page).read_text(encoding="utf-8")
    assert written(text) == text, f"run `python -m {program} --write`"


def test_the_tables_of_extensions_are_what_their_program_writes() -> None:
    for name, page in extension_tables.pages().items():
        text = (PROJECT / "docs" / name).read_text(encoding="utf-8")
        assert text == page, "run `python -m tools.extension_tables --write`"
