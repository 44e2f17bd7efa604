"""What one step of an app turned out to be: written by its process, read by `fab app check`."""

import json
from dataclasses import asdict, dataclass

from core.ground.errors import ClusterError
from core.ground.files import parsed_json, record_of


@dataclass(frozen=True)
class MeasuredStep:
    """A step of `batch_size` examples in `batch_slots` pieces on `cores` cores, in mode `single`.

    Bytes of memory are anonymous ones. `pull_bytes` and `push_bytes` are those of the whole vector
    in the job's codec.
    """

    app: str
    task: str
    input_shape: tuple[int, ...]
    outputs: int
    examples: int
    """Examples for training, validation included."""
    parameters: int
    statistics: int
    slots: int
    """Vectors that the optimizer keeps beside the parameters."""
    remembered: int
    """Vectors that a worker keeps for its codec, and for an optimizer of its own."""
    batch_size: int
    batch_slots: int
    cores: int
    loss: float
    """The loss of the first step."""
    first_loss_seconds: float
    """Time since the start of the process."""
    steps: int
    step_seconds: float
    """The median of `steps` steps after the first one, which TensorFlow prepares."""
    step_bytes: int
    """Memory at its highest in the steps, less what there was before the first one."""
    process_bytes: int
    """Memory of the process at its highest before the first step, the preparation of the data
    included."""
    pull_bytes: int
    push_bytes: int

    def to_json(self) -> str:
        """Return one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> "MeasuredStep":
        """Raises ClusterError for anything else than what `to_json` writes."""
        try:
            return record_of(cls, parsed_json(text))
        except ValueError as problem:
            raise ClusterError(
                f"the app's process answered with something else than its figures ({problem}): does"
                " the app print to standard output by file descriptor, or end the process?"
            ) from None
