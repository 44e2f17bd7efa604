"""`fab deploy status --watch`: the same picture again and again, in place on a terminal, as blocks elsewhere."""

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import is_animated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from cluster.logs.screen import Screen

USUAL_SECONDS = 2.0
SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 3600.0


def interval(watch: str | bool) -> float:
    """The seconds of `--watch [SECONDS]`. Raises UsageError for what is no number of seconds."""
    if watch is True:
        return USUAL_SECONDS
    try:
        seconds = float(watch)
    except ValueError:
        seconds = -1.0
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise UsageError(
            f"--watch: expected seconds from {SHORTEST_SECONDS} to {LONGEST_SECONDS:.0f}, or nothing, got {watch!r}"
        )
    return seconds


def watch(seconds: float, look: Callable[[], "list[RenderableType]"]) -> None:
    """Show what `look` finds every so many seconds until Ctrl-C, which is the way to end it, as with `watch`.

    What cannot be found out is shown as the error it is, and asked for again.
    """
    from cluster.logs.screen import coloured

    try:
        with _screen() as show:
            while True:
                try:
                    seen = look()
                except ClusterError as problem:
                    seen = [coloured(str(problem), "red")]
                show([coloured(f"{time.strftime('%H:%M:%S')}  every {seconds:g} s, Ctrl-C ends it", "dim"), *seen])
                time.sleep(seconds)
    except KeyboardInterrupt:
        return


@contextmanager
def _screen() -> "Iterator[Callable[[list[RenderableType]], None]]":
    from rich.console import Group
    from rich.live import Live

    if not is_animated(sys.stdout):
        from deploy.terminal.console import console

        screen = console()

        def print_block(seen: "list[RenderableType]") -> None:
            for one in seen:
                screen.print(one)
            screen.print()
            sys.stdout.flush()

        yield print_block
        return
    with Live(console=narrow_console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda seen: live.update(Group(*seen), refresh=True)


def narrow_console() -> "Screen":
    """As wide as the terminal is: what is redrawn in place must not be wrapped by it."""
    from cluster.logs.screen import Screen

    return Screen()


def columns() -> int:
    """How wide what is watched may be."""
    from deploy.terminal.console import console

    return narrow_console().width if is_animated(sys.stdout) else console().width
