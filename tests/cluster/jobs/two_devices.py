"""`mirrored` on two logical processors beside `single`, in a process of its own."""

import sys
from pathlib import Path

from core.engine.devices import HOST, devices_here
from core.inventory.slots import DeviceSettings
from tests.cluster.jobs.steps_here import (
    PROBLEM,
    Scaled,
    built_in,
    job_of,
    recordings,
    same_bits,
    trained,
)


def main(folder: Path) -> None:
    """Raise AssertionError where one of them has other bits than `single`."""
    names = devices_here(DeviceSettings(kind="cpu", ids=(0, 1)), all_of_them=True)
    assert names == (HOST, HOST.replace("CPU:0", "CPU:1"))
    data = recordings(folder)
    for network in (
        Scaled(PROBLEM),
        built_in("thesis", hidden=8, n_stacked_layers=1, batch_norm=True),
    ):
        for pieces in (2, 5):
            expected, losses = trained(network, job_of("single", slots=pieces), data)
            mirrored = job_of("mirrored", slots=pieces)
            found, same_losses = trained(network, mirrored, data, on=names)
            same_bits(found, expected, f"{network} in {pieces}")
            assert losses == same_losses
    sys.stdout.write("equal\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
