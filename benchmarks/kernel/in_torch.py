"""The same training step in PyTorch, a process of its own and in an environment of its own.

It needs PyTorch, NumPy, `benchmarks.kernel.serving` and no other package. The order's `parts` says
how the batch is cut: into that many parts side by side, each on one thread, their gradients summed
before one clip and one Adam; one part is the whole batch, and PyTorch uses all cores as it likes.
Each cell is first tried with oneDNN's LSTM and with PyTorch's own, then with the fused and the
foreach Adam; the fastest is measured.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.kernel.serving import Step, fastest, serve

PRODUCT = 2048
Network = Any
Gradient = Callable[[], float]
"""Leaves the gradients of a batch in the parameters of one network and returns its mean loss."""


def _filled(layer: Any, values: dict[str, Any]) -> Any:
    with torch.no_grad():
        for name, value in values.items():
            getattr(layer, name).copy_(torch.from_numpy(np.ascontiguousarray(value)))
    return layer


def dense(arrays: Any, name: str) -> Any:
    """A linear layer with the weights of that name."""
    kernel = arrays[f"{name}/kernel"]
    bias = arrays[f"{name}/bias"]
    return _filled(nn.Linear(*kernel.shape), {"weight": kernel.T, "bias": bias})


def lstm(arrays: Any, *names: str) -> Any:
    """One `nn.LSTM`, time-major; two names make it bidirectional.

    Its second bias starts, as ours is one, at zero.
    """
    hidden = arrays[f"{names[0]}/bias"].shape[0] // 4
    features = arrays[f"{names[0]}/kernel"].shape[0] - hidden
    layer = nn.LSTM(features, hidden, bidirectional=len(names) == 2)
    for name, suffix in zip(names, ("", "_reverse"), strict=False):
        kernel = arrays[f"{name}/kernel"]
        bias = arrays[f"{name}/bias"]
        values = {
            "weight_ih": kernel[:features].T,
            "weight_hh": kernel[features:].T,
            "bias_ih": bias,
        }
        values["bias_hh"] = np.zeros_like(bias)
        _filled(layer, {f"{key}_l0{suffix}": value for key, value in values.items()})
    return layer


class Way(nn.Module):
    """One direction of a cell: projection, ReLU, LSTM, in the order of time either way."""

    def __init__(self, arrays: Any, name: str, backward: bool) -> None:
        super().__init__()
        self.projection, self.lstm = (
            dense(arrays, f"{name}/projection"),
            lstm(arrays, f"{name}/lstm"),
        )
        self.backward_in_time = backward

    def forward(self, inputs: Any) -> Any:
        """(steps, batch, hidden) from (steps, batch, features)."""
        rows = torch.relu(self.projection(inputs))
        if self.backward_in_time:
            return self.lstm(rows.flip(0))[0].flip(0)
        return self.lstm(rows)[0]


class Thesis(nn.Module):
    """The thesis's network."""

    def __init__(self, order: dict[str, Any], arrays: Any) -> None:
        super().__init__()
        self.two_ways = order["bidirectional"]
        ways = ("/forward", "/backward") if self.two_ways else ("",)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                nn.ModuleList(
                    Way(arrays, f"layer{k}/cell{j}{way}", way == "/backward") for way in ways
                )
                for j in range(max(1, order["highway"]))
            )
            for k in range(order["stacked"])
        )
        self.head = dense(arrays, "head")

    def forward(self, windows: Any) -> Any:
        """Logits (batch, classes) of time-major windows."""
        hidden = windows
        for cells in self.layers:
            outputs = [
                torch.cat([way(hidden) for way in cell], 2) if len(cell) > 1 else cell[0](hidden)
                for cell in cells
            ]
            hidden = outputs[0]
            for output in outputs[1:]:
                hidden = hidden + output
        if not self.two_ways:
            return self.head(hidden[-1])
        half = hidden.shape[2] // 2
        return self.head(torch.cat([hidden[-1, :, :half], hidden[0, :, half:]], 1))


class Deep(nn.Module):
    """The dBLSTM."""

    def __init__(self, arrays: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            lstm(arrays, f"layer{k}/forward", f"layer{k}/backward") for k in range(2)
        )
        self.last, self.head = lstm(arrays, "layer2"), dense(arrays, "head")

    def forward(self, windows: Any) -> Any:
        """Logits (batch, classes) of time-major windows."""
        hidden = windows
        for layer in self.layers:
            hidden = layer(hidden)[0]
        return self.head(self.last(hidden)[0][-1])


def whole(model: Network, windows: Any, classes: Any) -> Gradient:
    """The batch in one piece, on all threads that PyTorch has."""

    def gradient() -> float:
        loss = nn.functional.cross_entropy(model(windows), classes)
        model.zero_grad(set_to_none=True)
        loss.backward()
        return float(loss.item())

    return gradient


def split(models: list[Network], windows: Any, classes: Any, pool: ThreadPoolExecutor) -> Gradient:
    """A part of the batch for each of `models`, side by side.

    All share the parameters of the first one.
    """
    first, *others = models
    for other in others:
        for mine, shared in zip(other.parameters(), first.parameters(), strict=True):
            mine.data = shared.data
    parts = zip(
        models,
        [part.contiguous() for part in torch.tensor_split(windows, len(models), 1)],
        torch.tensor_split(classes, len(models)),
        strict=True,
    )
    tasks = list(parts)

    def of_part(task: tuple[Network, Any, Any]) -> float:
        model, own_windows, own_classes = task
        loss = nn.functional.cross_entropy(model(own_windows), own_classes, reduction="sum") / len(
            classes
        )
        model.zero_grad(set_to_none=True)
        loss.backward()
        return float(loss.item())

    def gradient() -> float:
        loss = sum(pool.map(of_part, tasks))
        for other in others:
            for total, own in zip(first.parameters(), other.parameters(), strict=True):
                total.grad.add_(own.grad)
        return loss

    return gradient


def stepping(
    order: dict[str, Any], arrays: Any, pool: ThreadPoolExecutor, onednn: bool, adam: str
) -> tuple[Step, Network]:
    """Make a network's step with oneDNN's LSTM or PyTorch's own, and one implementation of Adam."""
    models = [
        Thesis(order, arrays) if order["model"] == "thesis" else Deep(arrays)
        for _ in range(order["parts"])
    ]
    model = models[0]
    optimizer = torch.optim.Adam(
        model.parameters(), lr=order["learning_rate"], eps=1e-7, **{adam: True}
    )
    windows = torch.from_numpy(np.ascontiguousarray(arrays["windows"].transpose(1, 0, 2)))
    classes = torch.from_numpy(arrays["classes"].astype(np.int64))
    if len(models) == 1:
        gradient = whole(model, windows, classes)
    else:
        gradient = split(models, windows, classes, pool)

    def step() -> float:
        with torch.backends.mkldnn.flags(enabled=onednn):
            loss = gradient()
        nn.utils.clip_grad_norm_(model.parameters(), order["clip_norm"])
        optimizer.step()
        return loss

    return step, model


def build(order: dict[str, Any], pool: ThreadPoolExecutor) -> tuple[Step, dict[str, Any]]:
    """The fastest step of one cell, and what it is. `pool` computes the parts."""
    parts = order["parts"]
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(1 if parts > 1 else cores)
    arrays = np.load(order["arrays"])
    arrays = {name: arrays[name] for name in arrays.files}

    def variant(library: str, adam: str) -> tuple[Step, Network]:
        return stepping(order, arrays, pool, library == "oneDNN", adam)

    library = fastest({name: variant(name, "fused")[0] for name in ("oneDNN", "native")})
    adam = fastest({name: variant(library, name)[0] for name in ("fused", "foreach")})
    step, model = variant(library, adam)
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)
    if parts > 1:
        cut = f"{parts} parts side by side, a thread each"
    else:
        cut = f"one piece, {cores} threads"
    return step, {
        "variant": f"{cut}; {library} LSTM, {adam} Adam",
        "matrix_parameters": weights - model.head.weight.numel(),
    }


def main() -> None:
    """Serve until standard input ends."""
    factor = torch.rand(PRODUCT, PRODUCT)
    one_thread = {
        "initializer": torch.set_num_threads,
        "initargs": (1,),
    }  # the setting is a thread's own
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), **one_thread) as pool:
        serve(lambda order: build(order, pool), lambda: torch.mm(factor, factor))


if __name__ == "__main__":
    main()
