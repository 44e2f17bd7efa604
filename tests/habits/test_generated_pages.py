"""Pages that programs write, whole or in part, say what the sources of now say."""

from pathlib import Path

import pytest

from tests.habits.leaks import PROJECT
from tools import command_reference as commands
from tools import extension_tables
from tools import inventory_reference as inventory
from tools import metrics_reference as metrics
from tools import status_schemas as status

pytestmark = pytest.mark.sources


def written() -> dict[str | Path, str]:
    """The text of each page now."""
    flags = (PROJECT / commands.PAGE).read_text(encoding="utf-8")
    return {
        inventory.PAGE: inventory.render_reference(),
        metrics.PAGE: metrics.render_reference(),
        commands.PAGE: commands.render(flags),
        status.SCHEMA: status.written(status.schema()),
        status.HISTORY: status.written(status.history_schema()),
        status.FORMAT: status.written(status.format_schema()),
        **{f"docs/{name}": page for name, page in extension_tables.pages().items()},
    }


def test_a_page_is_what_its_program_writes() -> None:
    """`python -m PROGRAM --write` writes it, where this file imports the program."""
    texts = written()
    assert [page for page in texts if (PROJECT / page).read_text("utf-8") != texts[page]] == []
