"""What is shown again and again until Ctrl-C: in place on a terminal, as blocks elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError
from core.logs.terminal import is_animated
from deploy.terminal.console import columns, console

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_again(seconds: float, look: "Callable[[int], list[RenderableType]]") -> None:
    """Show what `look` finds for so many columns every so many seconds, until Ctrl-C.

    What cannot be found out is shown as the error it is, and asked for again.
    """
    from core.logs.screen import coloured

    try:
        with _in_place() as show:
            while True:
                try:
                    seen = look(columns())
                except ClusterError as problem:
                    seen = [coloured(str(problem), "red")]
                now = time.strftime("%H:%M:%S")
                heading = coloured(f"{now}  every {seconds:g} s, Ctrl-C ends it", "dim")
                show([heading, *seen])
                time.sleep(seconds)
    except KeyboardInterrupt:
        return


@contextmanager
def _in_place() -> "Iterator[Callable[[list[RenderableType]], None]]":
    from rich.console import Group
    from rich.live import Live

    from core.logs.screen import Screen

    if not is_animated(sys.stdout):
        screen = console()

        def print_block(seen: "list[RenderableType]") -> None:
            for one in seen:
                screen.print(one)
            screen.print()
            sys.stdout.flush()

        yield print_block
        return
    # As wide as the terminal is: what is redrawn in place must not be wrapped by it.
    with Live(console=Screen(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda seen: live.update(Group(*seen), refresh=True)
