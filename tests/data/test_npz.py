"""Somebody's own windows in an `.npz`."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cluster.data import Dataset, find_source, prepare
from cluster.data.npz_windows import read_windows as read_npz
from cluster.data.recordings import Cutting, check, silent
from cluster.errors import DataError

Arrays = dict[str, Any]


def sample() -> Arrays:
    """Four classes, six channels, 64 steps: twelve windows of subjects 1 and 2, eight of subject 3."""
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


def save(path: Path, content: Arrays) -> Path:
    np.savez_compressed(path, **content)
    return path


def read(path: Path, cache: Path, window_steps: int = 128) -> Dataset:
    return prepare(find_source(str(path), {}, path, path), cache=cache, window_steps=window_steps)


def test_any_window_length_channels_and_classes_are_taken_as_they_are(tmp_path: Path) -> None:
    content = sample()
    dataset = read(save(tmp_path / "rowing.npz", content), tmp_path / "cache")
    assert (dataset.name, dataset.window_steps, dataset.channels) == ("rowing", 64, 6)
    assert (dataset.train_windows, dataset.test_windows) == (12, 8)
    assert dataset.labels == ("rest", "row", "skip", "jump")
    np.testing.assert_array_equal(
        dataset.windows(), np.concatenate([content["x_train"], content["x_test"]]).astype(np.float32)
    )
    assert dataset.classes().tolist() == [*content["y_train"], *content["y_test"]]
    assert dataset.subjects().tolist() == [1] * 6 + [2] * 6 + [3] * 8


def test_the_files_name_is_the_sets_name_whatever_it_is(tmp_path: Path) -> None:
    for name in ("Übung 7: rudern", "x" * 240):
        dataset = read(save(tmp_path / f"{name}.npz", sample()), tmp_path / "cache")
        assert dataset.name == name
        assert dataset.folder.name.isascii()


def test_subjects_and_labels_may_be_left_out(tmp_path: Path) -> None:
    content = sample()
    for name in ("subject_train", "subject_test", "labels"):
        del content[name]
    content["y_train"] = content["y_train"] * 10 + 5
    content["y_test"] = content["y_test"] * 10 + 5
    dataset = read(save(tmp_path / "own.npz", content), tmp_path / "cache")
    assert dataset.labels == ("5", "15", "25", "35")
    assert dataset.classes()[:5].tolist() == [0, 1, 2, 3, 0]
    assert set(dataset.subjects().tolist()) == {-1}


def test_classes_may_be_text_in_the_order_of_the_labels(tmp_path: Path) -> None:
    content = sample()
    for part in ("train", "test"):
        content[f"y_{part}"] = content["labels"][content[f"y_{part}"]]
    with_labels = read(save(tmp_path / "labels.npz", content), tmp_path / "cache")
    assert with_labels.labels == ("rest", "row", "skip", "jump")
    assert with_labels.classes()[:4].tolist() == [0, 1, 2, 3]
    del content["labels"]
    without = read(save(tmp_path / "text.npz", content), tmp_path / "cache")
    assert without.labels == ("jump", "rest", "row", "skip")
    assert without.classes()[:4].tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_file_may_say_its_rate_and_its_filters(tmp_path: Path, shape: tuple[int, ...]) -> None:
    content = sample()
    plain = read(save(tmp_path / "plain.npz", content), tmp_path / "cache")
    assert (plain.sampling_hz, plain.filters) == (None, None)
    content |= {"sampling_hz": np.full(shape, 50.0, np.float32), "filters": np.full(shape, "causal")}
    for _ in range(2):  # prepared, then taken from the cache
        dataset = read(save(tmp_path / "said.npz", content), tmp_path / "cache")
        assert (dataset.sampling_hz, dataset.filters) == (50.0, "causal")


def put(name: str, value: Any) -> Callable[[Arrays], None]:
    def damage(content: Arrays) -> None:
        content[name] = value

    return damage


def put_at(name: str, index: tuple[int, ...], value: Any) -> Callable[[Arrays], None]:
    def damage(content: Arrays) -> None:
        content[name][index] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda content: content.pop("y_test"), ["y_test is missing", "savez_compressed"]),
        (put_at("x_train", (3, 2, 1), np.nan), ["x_train[3, 2, 1]", "finite", "nan"]),
        (put_at("x_test", (7, 63, 5), 1e300), ["x_test[7, 63, 5]", "1e+300"]),
        (put("x_train", np.zeros((12, 64))), ["x_test", "(64,) as in x_train", "(64, 6)"]),
        (put("x_train", np.zeros((12, 0, 6))), ["x_train", "(12, 0, 6)"]),
        (put("x_train", np.zeros((12, 64, 6), dtype=complex)), ["x_train", "real numbers", "complex128"]),
        (put("x_train", np.full((12, 64, 6), "a")), ["x_train", "real numbers"]),
        (put("x_test", np.zeros((8, 65, 6))), ["x_test", "(64, 6) as in x_train", "(65, 6)"]),
        (put("x_test", np.zeros((0, 64, 6))), ["y_test", "expected shape (0,)"]),
        (put("y_train", np.arange(11) % 4), ["y_train", "expected shape (12,)", "(11,)"]),
        (put("y_train", np.eye(4)[np.arange(12) % 4]), ["y_train", "one-hot", "argmax"]),
        (put("y_train", np.linspace(0, 1, 12)), ["y_train", "whole numbers", "float64"]),
        (put("y_train", np.full(12, np.nan)), ["y_train", "whole numbers"]),
        (put("y_train", np.arange(12) % 4 - 1), ["y_train[0]", "number from 0"]),
        (put("y_train", np.arange(12) % 4 + 1), ["y_train[3]", "got 4", "from 0 as in labels"]),
        (put("y_test", np.array(["a"] * 8)), ["y_test", "as in y_train"]),
        (put("y_train", np.array([None] * 12)), ["y_train", "cannot be read", "plain array"]),
        (put("subject_test", np.full(8, 2)), ["subject 2 is in the training and in the test set"]),
        (put("subject_test", np.full(7, 3)), ["subject_test", "expected shape (8,)"]),
        (put("labels", np.array(["a", "b", "c", "d", "e"])), ["class 4 ('e') has no training window"]),
        (put("labels", np.array(["a", "b", "c", "a"])), ["labels", "different names"]),
        (put("labels", np.arange(4)), ["labels", "expected text"]),
        (put("labels", np.array("a")), ["labels", "shape ()"]),
        (put("sampling_hz", np.array(0.0)), ["sampling_hz", "one number from 0.001 to 1e+06", "got 0.0"]),
        (put("sampling_hz", np.array(np.nan)), ["sampling_hz", "got nan"]),
        (put("sampling_hz", np.array([50, 60])), ["sampling_hz", "int64 of shape (2,)", "np.array(50.0)"]),
        (put("sampling_hz", np.array("50")), ["sampling_hz", "<U2 of shape ()"]),
        (put("filters", np.array("forwards")), ["filters", "two-way or causal, got forwards", "leave it out"]),
        (put("filters", np.array(["causal", "two-way"])), ["filters", "shape (2,)"]),
        (put("filters", np.array(1)), ["filters", "int64 of shape ()"]),
    ],
)
def test_what_cannot_be_used_is_one_error_that_names_array_and_remedy(
    tmp_path: Path, damage: Callable[[Arrays], None], expected: list[str]
) -> None:
    content = sample()
    damage(content)
    path = save(tmp_path / "own.npz", content)
    with pytest.raises(DataError) as caught:
        read(path, tmp_path / "cache")
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(path), *expected):
        assert part in message
    assert not (tmp_path / "cache").exists()


def test_empty_sets_are_refused(tmp_path: Path) -> None:
    content = sample()
    for name in ("x_test", "y_test", "subject_test"):
        content[name] = content[name][:0]
    with pytest.raises(DataError, match="expected at least one test window, got none"):
        read(save(tmp_path / "own.npz", content), tmp_path / "cache")


def test_a_window_length_that_was_asked_for_must_be_the_files_own(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", sample())
    assert read(path, tmp_path / "cache", window_steps=64).window_steps == 64
    with pytest.raises(DataError, match="its windows have 64 steps, got 100"):
        read(path, tmp_path / "other", window_steps=100)


@pytest.mark.parametrize("kept", [0, 3, 100, -30])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    whole = save(tmp_path / "whole.npz", sample()).read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[:kept])
    with pytest.raises(DataError, match=r"cut\.npz: not a complete \.npz file"):
        read(path, tmp_path / "cache")


def test_a_header_that_promises_more_than_any_memory_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", sample())
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 64, 600), }"
    header = header.ljust(117) + b"\n"
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    members["x_train.npy"] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(path, "w") as bomb:
        for name, content in members.items():
            bomb.writestr(name, content)
    with pytest.raises(DataError, match="x_train: cannot be read"):
        read(path, tmp_path / "cache")


@settings(max_examples=60, deadline=None)
@given(
    content=st.dictionaries(
        st.sampled_from(["x_train", "y_train", "x_test", "y_test", "subject_train", "subject_test", "labels"]),
        st.one_of(
            arrays.arrays(
                dtype=st.sampled_from(["<f4", "<f8", "<i8", "|b1", "<U3", "<c8", "|S2"]),
                shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            )
        ),
        min_size=3,
    )
)
def test_no_file_ends_in_anything_but_windows_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, content: Arrays
) -> None:
    path = save(tmp_path_factory.mktemp("npz") / "any.npz", content)
    try:
        recordings = check(read_npz(path, Cutting(128, 64, 0), silent), str(path))
    except DataError:
        return
    assert len(recordings.windows) == len(recordings.classes) == len(recordings.subjects)
    assert recordings.classes.max() < len(recordings.labels)


def packed(path: Path, members: dict[str, bytes]) -> Path:
    """A whole zip archive, whatever its members are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def as_npy() -> dict[str, bytes]:
    """Each array of `sample` as the member that numpy writes."""
    made = {}
    for name, array in sample().items():
        stream = io.BytesIO()
        np.save(stream, np.asarray(array))
        made[f"{name}.npy"] = stream.getvalue()
    return made


@pytest.mark.parametrize("name", ["x_train", "y_test", "subject_train", "labels"])
def test_a_member_that_is_no_npy_is_named(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "own.npz", as_npy() | {f"{name}.npy": b"1,2,3\n"})
    with pytest.raises(DataError, match=rf"own\.npz: {name}: not an array in \.npy format"):
        read_npz(path, Cutting(64, 64, 0), silent)


def test_an_entry_without_a_name_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "own.npz", as_npy() | {"": b"x"})
    with pytest.raises(DataError, match=r"own\.npz: an entry of the archive has no name"):
        read_npz(path, Cutting(64, 64, 0), silent)


DTYPES = ("<f4", "<f8", ">i2", "|S3", "<U2", "|O", "<M8[s]", "|V5", "<c8", "|b1", "nonsense")
SHAPES = ("(12, 64, 6)", "()", "(12,)", "(0, 64, 6)", "(-1,)", "(12, 0, 6)", "(10**12,)", "[1]", "('a',)", "(2**63,)")


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(as_npy())),
    header=st.one_of(
        st.builds(
            "{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n".format,
            st.sampled_from(DTYPES),
            st.sampled_from(("False", "True", "3", "None")),
            st.sampled_from(SHAPES),
        ),
        st.text(max_size=40),
    ),
    version=st.sampled_from((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00", b"")),
    body=st.binary(max_size=64),
    claimed=st.one_of(st.none(), st.integers(0, 65535)),
)
def test_whatever_a_member_claims_ends_in_one_error_or_in_windows(
    tmp_path_factory: pytest.TempPathFactory, name: str, header: str, version: bytes, body: bytes, claimed: int | None
) -> None:
    words = header.encode("utf-8", "surrogatepass")
    length = (len(words) if claimed is None else claimed).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    content = b"\x93NUMPY" + version + length + words + body
    path = packed(tmp_path_factory.mktemp("fuzz") / "own.npz", as_npy() | {name: content})
    said = str(path)
    try:
        check(read_npz(path, Cutting(64, 64, 0), silent), str(path))
    except DataError as problem:
        said = str(problem)
    assert said.startswith(str(path))
    assert "\n" not in said
