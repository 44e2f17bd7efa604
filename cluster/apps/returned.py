"""What a node may send back of a run: the files that jobs leave there, each with its bound.

One list for the folder that `fab` fetches and for the runs of a sweep. All that is not on it stays
on the node, code above all: only a fetched run may bring the app that was sent with its job. Nor
does a page: it is drawn here from the figures.
"""

import re
from collections.abc import Mapping, Sequence

from core.ground.files import LARGEST_OF_RUN

_NUMBER = 64
_TEXT = 256 << 20
_TENSORS = 4 << 30

_MODEL = {
    r"model\.json": LARGEST_OF_RUN,
    r"(weights|constants)\.safetensors": _TENSORS,
    r"model\.keras": _TENSORS,
}
_CHECKPOINTS = {
    r"update-[0-9]+\.json": LARGEST_OF_RUN,
    r"update-[0-9]+(-again)?\.safetensors": _TENSORS,
    r"progress": _NUMBER,
}


def _below(folder: str, kinds: Mapping[str, int]) -> dict[str, int]:
    return {f"{folder}/(?:{pattern})": most for pattern, most in kinds.items()}


_TRAINING = {
    r"(result|environment)\.json": LARGEST_OF_RUN,
    r"(history|chaos)\.jsonl": _TEXT,
    r"coordinator\.log": _TEXT,
    r"sequence": _NUMBER,
    r"tensorboard/events\.out\.tfevents\.[\w.-]+": _TEXT,
    **_below("model", _MODEL),
    **_below("checkpoints", _CHECKPOINTS),
}
_RUN = {
    **_TRAINING,
    r"cv\.json": LARGEST_OF_RUN,
    **_below(r"folds/[\w-]+/checkpoints", _CHECKPOINTS),
    r"labels\.csv": _TEXT,
    r"attempts": _NUMBER,
    r"(output|[a-z]+-[0-9]+)\.log": _TEXT,
    r"files/.+": _TENSORS,  # what a person's own program wrote
}
_APP = {r"app\.json": LARGEST_OF_RUN, r"app/.+": LARGEST_OF_RUN}
_OF_SWEEP = {
    r"(sweep|plan)\.json": LARGEST_OF_RUN,
    r"sweep\.yaml|table\.csv|study\.db": _TEXT,
    r"runs/[0-9]+\.log": _TEXT,
}
_NAME = r"[0-9]{8}T[0-9]{6}Z-train(-[0-9]{1,3})?"
_BACK = _below(_NAME, _TRAINING)
_FETCHED = {
    **_RUN,
    **_APP,
    **_OF_SWEEP,
    **_below(f"runs/[0-9]+/{_NAME}", {**_TRAINING, **_APP}),
}


def _most(kinds: Mapping[str, int], path_segments: Sequence[str]) -> int:
    path = "/".join(path_segments)
    if len(path) > 4096:
        return 0
    return next((most for kind, most in kinds.items() if re.fullmatch(kind, path)), 0)


def bytes_back(path_segments: Sequence[str]) -> int:
    """Return how long a file may be that a node of a sweep sends back, 0 for one that may not come.

    What a training leaves may, below the folder of the training, and no code.
    """
    return _most(_BACK, path_segments)


def bytes_fetched(path_segments: Sequence[str]) -> int:
    """Return how long a file of a fetched run may be, 0 for one that no run has."""
    return _most(_FETCHED, path_segments)
