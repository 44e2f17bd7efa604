"""The network that an app describes: with Keras or without."""

from cluster.apps.app import App
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.checks import check
from cluster.apps.plain_network import PlainNetwork


def network_of(app: App, kind: Kind, seed: int) -> AppNetwork:
    """Return the app's model with initial values from `seed`.

    Raises AppError for a model that the cluster cannot train, with the reason and the remedy.
    """
    network: AppNetwork
    if app.has("model"):
        from cluster.apps.keras_network import KerasNetwork

        network = KerasNetwork(app, kind, seed)
    else:
        network = PlainNetwork(app, kind, seed)
    check(network)
    return network
