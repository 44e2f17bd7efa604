"""What the page's server wants of whoever draws the page."""

from typing import Protocol

from cluster.status.view import RunView


class Renderer(Protocol):
    """Draws one picture of a run. Called by one thread at a time."""

    def page(self, view: RunView) -> str:
        """The whole page, as HTML."""
        ...

    def fragments(self, view: RunView) -> dict[str, str]:
        """The parts of the page that change, by the name of the server-sent event that carries each."""
        ...
