"""What is shown again and again until Ctrl-C: in place on a terminal, as blocks elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError
from core.logs import is_animated
from deploy.terminal.console import columns, console

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_again(seconds: float, draw: "Callable[[int], list[RenderableType]]") -> None:
    """Show what `draw` returns for so many columns every so many seconds, until Ctrl-C.

    What cannot be found out is shown as the error it is, and asked for again.
    """
    from core.logs.screen import coloured

    try:
        with _in_place() as show:
            while True:
                try:
                    renderables = draw(columns())
                except ClusterError as problem:
                    renderables = [coloured(str(problem), "red")]
                now = time.strftime("%H:%M:%S")
                heading = coloured(f"{now}  every {seconds:g} s, Ctrl-C ends it", "dim")
                show([heading, *renderables])
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

        def print_block(renderables: "list[RenderableType]") -> None:
            for renderable in renderables:
                screen.print(renderable)
            screen.print()
            sys.stdout.flush()

        yield print_block
        return
    # As wide as the terminal is: what is redrawn in place must not be wrapped by it.
    with Live(console=Screen(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda renderables: live.update(Group(*renderables), refresh=True)
