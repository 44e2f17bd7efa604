"""The same training step in PyTorch, a process of its own and in an environment of its own.

Needs PyTorch and NumPy and nothing of the project but `benchmarks.kernel_serve`. Each cell is first tried with oneDNN's
LSTM and with PyTorch's own, then with the fused and the foreach Adam; the fastest is measured.
"""

import os
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.kernel_serve import Step, fastest, serve

PRODUCT = 2048


def _filled(layer: Any, values: dict[str, Any]) -> Any:
    with torch.no_grad():
        for name, value in values.items():
            getattr(layer, name).copy_(torch.from_numpy(np.ascontiguousarray(value)))
    return layer


def dense(arrays: Any, name: str) -> Any:
    """A linear layer with the weights of that name."""
    kernel, bias = arrays[f"{name}/kernel"], arrays[f"{name}/bias"]
    return _filled(nn.Linear(*kernel.shape), {"weight": kernel.T, "bias": bias})


def lstm(arrays: Any, *names: str) -> Any:
    """One `nn.LSTM`, time-major; two names make it bidirectional. Its second bias starts, as ours is one, at zero."""
    hidden = arrays[f"{names[0]}/bias"].shape[0] // 4
    features = arrays[f"{names[0]}/kernel"].shape[0] - hidden
    layer = nn.LSTM(features, hidden, bidirectional=len(names) == 2)
    for name, suffix in zip(names, ("", "_reverse"), strict=False):
        kernel, bias = arrays[f"{name}/kernel"], arrays[f"{name}/bias"]
        values = {"weight_ih": kernel[:features].T, "weight_hh": kernel[features:].T, "bias_ih": bias}
        values["bias_hh"] = np.zeros_like(bias)
        _filled(layer, {f"{key}_l0{suffix}": value for key, value in values.items()})
    return layer


class Way(nn.Module):
    """One direction of a cell: projection, ReLU, LSTM, in the order of time either way."""

    def __init__(self, arrays: Any, name: str, backward: bool) -> None:
        super().__init__()
        self.projection, self.lstm = dense(arrays, f"{name}/projection"), lstm(arrays, f"{name}/lstm")
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
                nn.ModuleList(Way(arrays, f"layer{k}/cell{j}{way}", way == "/backward") for way in ways)
                for j in range(max(1, order["highway"]))
            )
            for k in range(order["stacked"])
        )
        self.head = dense(arrays, "head")

    def forward(self, windows: Any) -> Any:
        """Logits (batch, classes) of time-major windows."""
        hidden = windows
        for cells in self.layers:
            outputs = [torch.cat([way(hidden) for way in cell], 2) if len(cell) > 1 else cell[0](hidden)
                       for cell in cells]  # fmt: skip
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
        self.layers = nn.ModuleList(lstm(arrays, f"layer{k}/forward", f"layer{k}/backward") for k in range(2))
        self.last, self.head = lstm(arrays, "layer2"), dense(arrays, "head")

    def forward(self, windows: Any) -> Any:
        """Logits (batch, classes) of time-major windows."""
        hidden = windows
        for layer in self.layers:
            hidden = layer(hidden)[0]
        return self.head(self.last(hidden)[0][-1])


def stepping(order: dict[str, Any], arrays: Any, onednn: bool, adam: str) -> tuple[Step, Any]:
    """A fresh network's step, with oneDNN's LSTM or PyTorch's own, and with one of Adam's implementations."""
    model = Thesis(order, arrays) if order["model"] == "thesis" else Deep(arrays)
    optimizer = torch.optim.Adam(model.parameters(), lr=order["learning_rate"], eps=1e-7, **{adam: True})
    windows = torch.from_numpy(np.ascontiguousarray(arrays["windows"].transpose(1, 0, 2)))
    classes = torch.from_numpy(arrays["classes"].astype(np.int64))

    def step() -> float:
        with torch.backends.mkldnn.flags(enabled=onednn):
            loss = nn.functional.cross_entropy(model(windows), classes)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), order["clip_norm"])
        optimizer.step()
        return float(loss.item())

    return step, model


def build(order: dict[str, Any]) -> tuple[Step, dict[str, Any]]:
    """The fastest step of one cell, and what it is."""
    arrays = np.load(order["arrays"])
    arrays = {name: arrays[name] for name in arrays.files}
    library = fastest({name: stepping(order, arrays, name == "oneDNN", "fused")[0] for name in ("oneDNN", "native")})
    adam = fastest({name: stepping(order, arrays, library == "oneDNN", name)[0] for name in ("fused", "foreach")})
    step, model = stepping(order, arrays, library == "oneDNN", adam)
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)
    return step, {
        "variant": f"{library} LSTM, {adam} Adam",
        "matrix_parameters": weights - model.head.weight.numel(),
    }


def main() -> None:
    """Serve until standard input ends."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    factor = torch.rand(PRODUCT, PRODUCT)
    serve(build, lambda: torch.mm(factor, factor))


if __name__ == "__main__":
    main()
