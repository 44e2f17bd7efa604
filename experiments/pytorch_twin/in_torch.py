"""The same training in PyTorch, an epoch an order.

Alone, or as DistributedDataParallel over gloo on several processes.

It needs PyTorch, NumPy, `benchmarks.kernel.in_torch` and no other package. Everything that decides
a result comes from the file of `experiments.pytorch_twin.recipe`: initial weights, windows,
batches, learning rates. Each process takes its share of every batch; DDP averages the gradients;
every process clips and steps alike. A checkpoint an epoch.

PyTorch's LSTM has a second bias. It stays at zero here: trained, it would double the step of the
first one.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.kernel.in_torch import Thesis
from core.asking import ROOT, serve

PATIENCE = timedelta(hours=6)
"""Between two orders other contestants have their turn."""
TEST_BATCH = 250
TRIALS = 5
FIRST = 5
"""Batches of an epoch whose losses are reported; of one process they are those of its share."""


class Training:
    """A network, its optimizer, and where it is."""

    def __init__(
        self, recipe: Any, settings: dict[str, Any], checkpoint: Path, rank: int, processes: int
    ) -> None:
        self._recipe = recipe
        self._settings = settings
        self._checkpoint = checkpoint
        self._rank = rank
        self._processes = processes
        self.network = Thesis(settings, recipe)
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad = "bias_hh" not in name
        self.trained = [
            parameter for parameter in self.network.parameters() if parameter.requires_grad
        ]
        if processes > 1:
            self._model = DistributedDataParallel(self.network)
        else:
            self._model = self.network
        options = {"lr": 0.0, "betas": tuple(settings["betas"]), "eps": settings["epsilon"]}
        self._optimizer = torch.optim.AdamW(
            self.trained, weight_decay=settings["weight_decay"], **options
        )
        self._windows = torch.from_numpy(recipe["train_windows"])
        self._classes = torch.from_numpy(recipe["train_classes"].astype(np.int64))
        self.epoch = 0
        if checkpoint.exists():
            kept = torch.load(checkpoint, weights_only=True)
            self.epoch = int(kept["epoch"])
            self.network.load_state_dict(kept["network"])
            self._optimizer.load_state_dict(kept["optimizer"])
        torch.set_num_threads(1)
        if processes == 1:
            self._choose_threads()

    def _choose_threads(self) -> None:
        """One, or one a core, whichever computes a batch faster.

        A narrow layer gains nothing from two.
        """
        cores = len(os.sched_getaffinity(0))
        seconds = dict[int, float]()
        for threads in (1, cores) * TRIALS:
            torch.set_num_threads(threads)
            begin = time.monotonic()
            self._loss(self._recipe["batches"][0][0]).backward()
            seconds[threads] = min(seconds.get(threads, float("inf")), time.monotonic() - begin)
        torch.set_num_threads(min(seconds, key=lambda threads: seconds[threads]))

    def _loss(self, rows: Any) -> Any:
        """Of this process's share of a batch."""
        mine = torch.from_numpy(np.array_split(rows, self._processes)[self._rank].astype(np.int64))
        answers = self._model(self._windows[mine].transpose(0, 1))
        return nn.functional.cross_entropy(
            answers, self._classes[mine], label_smoothing=self._settings["label_smoothing"]
        )

    def train_epoch(self) -> dict[str, Any]:
        """The next epoch; its number, the mean loss of its batches, and the seconds."""
        batches = self._recipe["batches"][self.epoch]
        rates = self._recipe["rates"][self.epoch]
        total = torch.zeros(())
        first = list[float]()
        self._meet()
        begin = time.monotonic()
        for rows, rate in zip(batches, rates, strict=True):
            loss = self._loss(rows)
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._clip()
            for group in self._optimizer.param_groups:
                group["lr"] = float(rate)
            self._optimizer.step()
            total += loss.detach()
            if len(first) < FIRST:
                first.append(float(loss))
        self._meet(total)
        seconds = time.monotonic() - begin
        self.epoch += 1
        if self._rank == 0:
            self._keep()
        loss_of_epoch = float(total) / len(batches) / self._processes
        found = {
            "epoch": self.epoch,
            "loss": loss_of_epoch,
            "seconds": seconds,
            "threads": torch.get_num_threads(),
        }
        return {**found, "first_losses": first}

    def _meet(self, total: Any = None) -> None:
        if self._processes > 1:
            dist.all_reduce(torch.zeros(()) if total is None else total)

    def _clip(self) -> None:
        """To the norm of our own recipe, by its own formula."""
        norm = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(one.grad) for one in self.trained])
        )
        factor = self._settings["clip_norm"] / torch.clamp(norm, min=self._settings["clip_norm"])
        for one in self.trained:
            one.grad.mul_(factor)

    def _keep(self) -> None:
        kept = {
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        partial = self._checkpoint.with_suffix(".partial")
        torch.save(kept, partial)
        partial.replace(self._checkpoint)

    def tested(self) -> dict[str, Any]:
        """The confusion matrix over the test windows, rows the true class."""
        windows = self._recipe["test_windows"]
        classes = self._recipe["test_classes"]
        confusion = np.zeros((self._settings["classes"],) * 2, np.int64)
        with torch.no_grad():
            for start in range(0, len(windows), TEST_BATCH):
                rows = torch.from_numpy(windows[start : start + TEST_BATCH]).transpose(0, 1)
                answers = self.network(rows).argmax(1).numpy()
                np.add.at(confusion, (classes[start : start + TEST_BATCH], answers), 1)
        return {"confusion": confusion.tolist()}


def work(given: argparse.Namespace) -> None:
    """One process: serve orders until there are none."""
    if given.processes > 1:
        address = f"tcp://127.0.0.1:{given.port}"
        dist.init_process_group("gloo", address, PATIENCE, given.processes, given.rank)
    loaded = np.load(given.recipe)
    recipe = {name: loaded[name] for name in loaded.files}
    settings = json.loads(Path(given.recipe).with_suffix(".json").read_text())
    training = Training(recipe, settings, Path(given.checkpoint), given.rank, given.processes)

    def answer(order: dict[str, Any]) -> dict[str, Any]:
        if "finish" in order:
            return training.tested()
        if "stop" in order:
            return {"stopped": training.epoch}
        return training.train_epoch()

    serve(answer)


def lead(given: argparse.Namespace) -> None:
    """Start the processes; each order goes to all, the answer is the first one's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [
        f"--recipe={given.recipe}",
        f"--checkpoint={given.checkpoint}",
        f"--processes={given.processes}",
    ]
    command = [sys.executable, "-m", "experiments.pytorch_twin.in_torch", *flags, f"--port={port}"]
    ranks = [
        subprocess.Popen(
            [*command, f"--rank={rank}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(given.processes)
    ]

    def answer(order: dict[str, Any]) -> dict[str, Any]:
        for process in ranks:
            assert process.stdin is not None
            print(json.dumps(order), file=process.stdin, flush=True)
        lines = [process.stdout.readline() for process in ranks if process.stdout is not None]
        return dict(json.loads(lines[0]))

    try:
        serve(answer)
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def main() -> None:
    """One process, or the lead of several."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.processes == 1:
        given.rank = 0
    if given.rank is None:
        lead(given)
    else:
        work(given)


if __name__ == "__main__":
    main()
