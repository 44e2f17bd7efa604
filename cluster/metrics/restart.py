"""Who may have a role process started anew with `POST /restart` on its metrics port."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.metrics.asker import may_ask


@dataclass(frozen=True)
class RestartRequests:
    """Requests are taken from the address `coordinator` and from the machine itself, and handed to `obey`.

    `obey` gets the address that asked, after it has been answered. While the process is `fresh`, still starting,
    there is nothing to do: it holds nothing, and whoever started it would take its end for a failure.

    A coordinator needs this because it has no way to log in on the other nodes, and what a dead one left on their
    servers (its variables, its contexts for 600 s) has to go before the next one begins. It gives nobody a power they
    lack: the TensorFlow port beside it executes any graph, one that ends the process too, for whoever reaches it.
    """

    coordinator: str
    obey: Callable[[str], None]
    fresh: Callable[[], bool] = lambda: False

    def allowed(self, client: str, own: str) -> bool:
        """Whether the address `client` may ask, on a connection to our address `own`."""
        return may_ask(client, own, self.coordinator)
