"""The only module that uses rich: styles never come from a text. Import it late: rich is slow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from core.logs import one_line, visible


class Screen(Console):
    """A console that shows strings literally: it ignores markup and escapes control characters."""

    def __init__(self, **options: Any) -> None:
        """`options`: as `rich.console.Console` takes them."""
        super().__init__(**{**options, "markup": False, "emoji": False, "highlight": False})

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string; every one passes here, cells of tables included."""
        return super().render_str(
            visible(text), **{**options, "markup": False, "emoji": False, "highlight": False}
        )


def coloured(text: str, style: str) -> Text:
    """`text` in a style of rich: `red`, `bold`."""
    return Text(visible(text), style)


def words(*spans: str | tuple[str, str]) -> Text:
    """One line of parts, each plain or with a style: `words(("failed", "red"), " ", reason)`."""
    line = Text()
    for span in spans:
        if isinstance(span, str):
            text = span
            style = ""
        else:
            text, style = span
        line.append(one_line(text), style)
    return line


@contextmanager
def spinner(text: str, *, error: bool = False) -> Iterator[Callable[[str], None]]:
    """Show a spinner with `text` beside it, on standard error with `error`.

    Yields a function that changes the text.
    """
    with Status(words(text), console=Screen(stderr=error)) as status:
        yield lambda text: status.update(words(text))
