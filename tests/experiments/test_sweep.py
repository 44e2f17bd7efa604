from cluster.sweeps.sweep_file import read_text
from experiments.sweep import SWEEP


def test_its_file_is_a_sweep() -> None:
    assert read_text(SWEEP.format(epochs=2, seeds=[0, 1, 2]), "s.yaml").run_count == 3
