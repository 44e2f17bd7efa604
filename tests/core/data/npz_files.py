"""Small `.npz` files of windows and of other examples, as a person saves them."""

from typing import Any

import numpy as np

Arrays = dict[str, Any]
RANDOM = np.random.default_rng(2)


def sample() -> Arrays:
    """Return four classes, six channels, 64 steps.

    Twelve windows of subjects 1 and 2, eight of subject 3.
    """
    random = np.random.default_rng(7)
    return {
        "x_train": random.normal(size=(12, 64, 6)),
        "y_train": np.arange(12) % 4,
        "x_test": random.normal(size=(8, 64, 6)),
        "y_test": np.arange(8) % 4,
        "subject_train": np.repeat([1, 2], 6),
        "subject_test": np.full(8, 3),
        "labels": np.array(["rest", "row", "skip", "jump"]),
    }


def changed(content: Arrays, row: Arrays) -> Arrays:
    """`content` in which a row has others: a value, or `fill` in all of a `shape` or `at` an index.

    What is None is left out.
    """
    found = dict(content)
    for name in row.keys() - {"says", "as"}:
        given = row[name]
        if not isinstance(given, dict):
            found[name] = given
            continue
        array = np.array(content.get(name))
        fill = given.get("fill", 0)
        if "shape" in given:
            kind = given.get("dtype", "float64")
            start = 0 if "at" in given else fill
            array = np.full(given["shape"], start, kind, given.get("order", "C"))
        if "at" in given:
            array[tuple(given["at"])] = fill
        found[name] = array
    return {name: value for name, value in found.items() if value is not None}


def cut(x: Any, y: Any) -> Arrays:
    """Eighteen examples: the first twelve are for training."""
    return {"x_train": x[:12], "y_train": y[:12], "x_test": x[12:], "y_test": y[12:]}


def examples(*shape: int, dtype: str = "uint8") -> Arrays:
    """Three classes of examples of this shape."""
    return cut(RANDOM.integers(0, 200, (18, *shape)).astype(dtype), np.arange(18) % 3)


def cut_arrays() -> Arrays:
    """Four windows of two classes, four more for the test, whose channels have no names."""
    x = np.zeros((8, 16, 2), np.float32)
    y = np.arange(8) % 2
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
