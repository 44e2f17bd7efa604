"""Names of the arrays that this room hands on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Numbers = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int32]
Labels = NDArray[np.int16]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
"""Indices of rows."""
