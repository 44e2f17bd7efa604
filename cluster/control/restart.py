"""Having a role process started anew with `POST /restart` on its metrics port."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.control.rules import Acting

PATH = "/restart"


@dataclass(frozen=True)
class RestartRequests:
    """Requests are taken from the address `coordinator` and from the machine itself, and handed to `obey`.

    `obey` gets the address that asked, after it has been answered. While the process is `fresh`, still starting,
    there is nothing to do: it holds nothing, and whoever started it would take its end for a failure.

    A coordinator needs this because it has no way to log in on the other nodes, and what a dead one left on their
    servers (its variables, its contexts for 600 s) has to go before the next one begins.
    """

    coordinator: str
    obey: Callable[[str], None]
    fresh: Callable[[], bool] = lambda: False

    @property
    def acting(self) -> Acting:
        """Who may."""
        return Acting("only the coordinator's node may restart this process", (self.coordinator,))
