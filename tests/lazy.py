"""What tests import at its first use, beside `core.ground.lazy`: collecting loads none of it."""

from typing import TYPE_CHECKING, Any

from core.ground.lazy import Lazy

__all__ = [
    "Browser",
    "Page",
    "expect",
    "layers",
    "losses",
    "lstm_kernels",
    "metrics",
    "onnx",
    "optimizers",
    "own_keras",
    "sklearn_metrics",
]

OPTIONS = "core.engine.graph_options"

if TYPE_CHECKING:
    import onnx
    from keras import layers, losses, metrics, optimizers
    from playwright.sync_api import Browser, Page, expect
    from sklearn import metrics as sklearn_metrics

    from core.models import lstm as lstm_kernels
    from tests.cluster.apps import own_keras
else:
    layers = Lazy(OPTIONS, "keras.layers")
    losses = Lazy(OPTIONS, "keras.losses")
    metrics = Lazy(OPTIONS, "keras.metrics")
    optimizers = Lazy(OPTIONS, "keras.optimizers")
    own_keras = Lazy("tests.cluster.apps.own_keras")
    lstm_kernels = Lazy(OPTIONS, "core.models.lstm")
    sklearn_metrics = Lazy("sklearn.metrics")
    onnx = Lazy("onnx")
    Browser = Page = Any

    def expect(found: Any) -> Any:
        from playwright import sync_api

        return sync_api.expect(found)
