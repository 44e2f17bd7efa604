"""A damaged or foreign `.npz` ends in one error or in data."""

import io
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.core.data.desk import Desk, refused
from tests.core.data.npz_files import Arrays, cut, examples, sample


def members() -> dict[str, bytes]:
    """Each array of `sample` as the member that numpy writes."""
    stream = io.BytesIO()
    np.savez(stream, **sample())
    with zipfile.ZipFile(stream) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


MEMBERS = members()


def packed(path: Path, changed: dict[str, bytes]) -> Path:
    """Write the archive of `sample` in which these members are others."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (MEMBERS | changed).items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


NO_ZIP = (
    "own.npz: not a complete .npz file (File is not a zip file); save it again with"
    " numpy.savez_compressed"
)


@pytest.mark.parametrize("kept", [0, 3, 100, -30])
def test_a_truncated_file_is_refused(desk: Desk, kept: int) -> None:
    whole = desk.write("whole.npz", sample()).read_bytes()
    desk.refuses(NO_ZIP, "own.npz", whole[:kept])


def test_one_array_and_a_pickle_are_refused_unread(desk: Desk) -> None:
    np.save(desk.folder / "array.npy", np.zeros(9))
    (desk.folder / "array.npy").rename(desk.folder / "own.npz")
    desk.refuses(NO_ZIP, "own.npz")
    desk.refuses(NO_ZIP, "own.npz", pickle.dumps([1]))


BOMB = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 64, 600), }"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x_train.npy", b"1,2,3\n", "own.npz: x_train: not an array in .npy format"),
        ("labels.npy", b"1,2,3\n", "own.npz: labels: not an array in .npy format"),
        ("../x_train.npy", b"", "names a file outside the archive"),
        ("", b"x", "own.npz: an entry of the archive has no name"),
        (
            "x_train.npy",
            b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + BOMB.ljust(117) + b"\n",
            "x_train: cannot be read",
        ),
    ],
)
def test_a_member_that_is_no_array_of_the_file_is_named(
    desk: Desk, name: str, content: bytes, said: str
) -> None:
    desk.refuses(said, packed(desk.folder / "own.npz", {name: content}))


@settings(max_examples=100, deadline=None)
@given(
    base=st.sampled_from([{}, examples(4, 5, 3)]),
    changes=st.dictionaries(
        st.sampled_from([*sample(), "task", "standardized", "weight_train"]),
        arrays.arrays(
            dtype=st.sampled_from(["<f4", "<f8", "<i8", "|b1", "<U3", "<c8", "|S2"]),
            shape=arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        ),
    ),
)
def test_no_file_ends_in_anything_but_data_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, base: Arrays, changes: Arrays
) -> None:
    dataset = Desk(tmp_path_factory.mktemp("npz")).tried("any.npz", base | changes)
    if dataset is not None:
        assert dataset.rows == len(dataset.windows()) == len(dataset.target_values())


DTYPES = ("<f4", "<f8", ">i2", "|S3", "<U2", "|O", "<M8[s]", "|V5", "<c8", "|b1", "nonsense")


SHAPES = (
    "(12, 64, 6)",
    "()",
    "(12,)",
    "(0, 64, 6)",
    "(-1,)",
    "(12, 0, 6)",
    "(10**12,)",
    "[1]",
    "('a',)",
    "(2**63,)",
)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(MEMBERS)),
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
def test_whatever_a_member_claims_ends_in_one_error_or_in_data(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    header: str,
    version: bytes,
    body: bytes,
    claimed: int | None,
) -> None:
    words = header.encode("utf-8", "surrogatepass")
    length = (len(words) if claimed is None else claimed).to_bytes(
        2 if version == b"\x01\x00" else 4, "little"
    )
    content = b"\x93NUMPY" + version + length + words + body
    desk = Desk(tmp_path_factory.mktemp("fuzz"))
    desk.tried(packed(desk.folder / "own.npz", {name: content}))


def test_a_small_npz_that_unpacks_to_much_is_refused(desk: Desk) -> None:
    content = cut(np.zeros((18, 2**21), np.float32), np.arange(18) % 3)
    desk.refuses("which no recording does; do not trust this archive", "bomb.npz", content)


def test_what_the_memory_does_not_take_is_one_line(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filled(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("core.data.npz._Content._windows_of", filled)
    desk.refuses("whole.npz: takes more memory than this process may have", "whole.npz", sample())


def test_a_set_that_would_fill_the_disk_is_refused_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.data.store.LOOK_BYTES", 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=65 << 20))
    x = np.arange(18 * 2**17, dtype=np.float32).reshape(18, -1)
    with refused("cannot be written (No space left on device)"):
        desk.read("large.npz", cut(x, np.arange(18) % 3))
    assert desk.cached() == []
