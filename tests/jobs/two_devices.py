"""`mirrored` on two logical processors beside `single`, in a process of its own: TensorFlow's devices are made once."""

import json
import sys
from pathlib import Path

import numpy as np

from cluster.engine.devices import devices_here
from cluster.inventory.devices import DeviceSettings
from cluster.models.network import Network
from cluster.models.thesis import Thesis, ThesisModel
from tests.jobs.steps_here import PROBLEM, recordings, trained
from tests.jobs.test_same_bits_here import Scaled, job_of


def main(folder: Path) -> None:
    """Print a JSON object: the devices, and for each case whether parameters and losses have the bits of `single`."""
    names = devices_here(DeviceSettings(kind="cpu", ids=(0, 1)), all_of_them=True)
    data, same = recordings(folder), {}
    networks: dict[str, Network] = {
        "constants": Scaled(PROBLEM),
        "norm": Thesis(ThesisModel(hidden=8, n_stacked_layers=1, batch_norm=True), PROBLEM),
    }
    for name, network in networks.items():
        for pieces in (2, 5):
            expected, losses = trained(network, job_of("single", micro_batches=pieces), data)
            found, same_losses = trained(network, job_of("mirrored", micro_batches=pieces), data, on=names)
            same[f"{name} {pieces}"] = bool(np.array_equal(found.view(np.int32), expected.view(np.int32)))
            same[f"{name} {pieces} losses"] = losses == same_losses
    sys.stdout.write(json.dumps({"devices": names, "same": same}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
