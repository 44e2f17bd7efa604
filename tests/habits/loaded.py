"""Packages that take seconds to load."""

import pytest

DEAR = frozenset({"tensorflow", "keras", "onnx", "playwright", "sklearn"})
LOADED = pytest.StashKey[frozenset[str]]()
"""Those of them that collecting the tests loaded."""
