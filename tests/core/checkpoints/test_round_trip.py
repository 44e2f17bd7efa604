"""What is read is what was written, bit for bit."""

import math
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from safetensors.numpy import load_file

from core import checkpoints
from core.checkpoints import DTYPES, Checkpoint, CheckpointStore, read_newest
from core.checkpoints.manifest import Manifest, from_json, to_json
from core.ground.errors import ClusterError, UsageError
from tests.core.checkpoints.contents import files, newest, numbered
from tests.tables import table


def back(folder: Path, tensors: dict[str, Any], **facts: Any) -> Checkpoint:
    with CheckpointStore(folder) as store:
        store.write(Checkpoint(740, tensors, facts))
    found, refused = read_newest(folder)
    assert refused == ()
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_type_come_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    random = np.random.default_rng(5)
    width = np.dtype(dtype).itemsize
    raw = random.integers(0, 2 if dtype == "bool" else 256, 24 * width, np.uint8)
    full: NDArray[Any] = raw.view(dtype).reshape(
        2, 3, 4
    )  # every bit pattern: NaNs of all kinds among them
    arrays = {
        "z/full": full,
        "a scalar": np.array(full[0, 0, 0]),
        "nothing": full[:0],
        "transposed": full.T,
        "every other, backwards": full[:, :, ::-2],
        "big-endian": full.astype(np.dtype(dtype).newbyteorder(">")),
        "Ünter Strom": full[0],
    }
    found = back(tmp_path, arrays)
    assert list(found.tensors) == list(arrays)
    for name, array in arrays.items():
        again = found.tensors[name]
        assert (again.dtype, again.shape) == (np.dtype(dtype), array.shape)
        assert again.tobytes() == array.astype(dtype).tobytes()


def test_nothing_at_all_comes_back(tmp_path: Path) -> None:
    found = back(tmp_path, {})
    assert (dict(found.tensors), found.facts) == ({}, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_facts_come_back_equal(facts: Any) -> None:
    assert repr(from_json(to_json(facts))) == repr(
        facts
    )  # repr: NaN is NaN, -0.0 is not 0.0, True is not 1


def test_random_state_and_a_loss_that_is_none_survive_the_file(tmp_path: Path) -> None:
    facts = {
        "random": np.random.PCG64(7).state,  # integers of 128 bits
        "loss": [1e-310, math.nan, math.inf, -math.inf, -0.0, np.float64(0.1)],
        "order": {"b": 1, "a": {"\n": None, "\ud800": "ü"}},
    }
    found = back(tmp_path, {}, **facts)
    assert str(found.facts) == str(
        {**facts, "loss": [1e-310, math.nan, math.inf, -math.inf, -0.0, 0.1]}
    )


class Phase(IntEnum):
    TRAIN = 2


def test_tuples_views_and_enumerations_become_what_json_has(tmp_path: Path) -> None:
    found = back(tmp_path, {}, shape=(1, 2), view=MappingProxyType({"a": 1}), phase=Phase.TRAIN)
    assert found.facts == {"shape": [1, 2], "view": {"a": 1}, "phase": 2}


def deep(levels: int) -> Any:
    if levels:
        return [deep(levels - 1)]
    return 1


@pytest.mark.parametrize(
    ("reason", "update", "types", "facts"),
    [
        *table("core/checkpoints/tables", "not taken"),
        ("surrogates", 1, {"\ud800": "float64"}, {}),
        (r"facts\.a\[0\]\.b: .*ndarray", 1, {}, {"a": [{"b": np.zeros(2)}]}),
        (r"facts\.a: .*float32: convert it", 1, {}, {"a": np.float32(1)}),
        ("at most 64 levels", 1, {}, {"a": deep(100)}),
        ("4300 digits", 1, {}, {"a": 10**5000}),
        ("at most 16777216 bytes", 1, {}, {"a": "x" * (17 << 20)}),
    ],
)
def test_what_would_not_come_back_is_refused_and_writes_nothing(
    tmp_path: Path, reason: str, update: Any, types: dict[str, str], facts: Any
) -> None:
    tensors = {name: np.zeros(2, dtype) for name, dtype in types.items()}
    with CheckpointStore(tmp_path) as store:
        store.write(numbered(0))
        before = files(tmp_path)
        with pytest.raises(ClusterError, match=reason) as caught:
            store.write(Checkpoint(update, tensors, facts))
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == before


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path / "a" / "b", keep=2) as store:
        paths = [store.write(numbered(version)) for version in (0, 5, 999_999_999, 1_000_000_000)]
    assert newest(tmp_path / "a" / "b") == (1_000_000_000, ())
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert sorted(files(tmp_path / "a" / "b")) == [
        f"update-{number}.{kind}"
        for number in (1_000_000_000, 999_999_999)
        for kind in ("json", "safetensors")
    ]


def test_the_tensors_are_a_file_any_reader_can_use(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        store.write(numbered(740, size=3))
    assert_array_equal(
        load_file(tmp_path / "update-000000740.safetensors")["weights"], np.full(3, 740, np.float32)
    )


def test_writing_an_update_again_replaces_it(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep=1) as store:
        for version in range(4):
            store.write(numbered(version, update=740, size=10 + version))
            assert newest(tmp_path) == (version, ())
            assert "update-000000740.json" in files(tmp_path)
            assert len(files(tmp_path)) == 2


def test_keeping_none_and_writing_into_a_closed_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        CheckpointStore(tmp_path / "none", keep=0)
    assert not (tmp_path / "none").exists()
    store = CheckpointStore(tmp_path)
    store.close()
    store.close()
    with pytest.raises(ClusterError, match="closed"):
        store.write(numbered(1))
    assert files(tmp_path) == {}


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    assert read_newest(tmp_path / "nowhere") == (None, ())
    assert read_newest(tmp_path) == (None, ())


def test_a_reader_looks_again_where_a_writer_replaced_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = checkpoints._tensors

    def replaced(path: Path, described: Manifest) -> dict[str, NDArray[Any]]:
        if described.update == 1:
            store.write(numbered(2))
        return read(path, described)

    monkeypatch.setattr(checkpoints, "_tensors", replaced)
    with CheckpointStore(tmp_path, keep=1) as store:
        store.write(numbered(1))
        assert newest(tmp_path) == (2, ())
