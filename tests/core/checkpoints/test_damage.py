"""Whatever happened to a file, it is refused by name and the checkpoint before it is used."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.checkpoints import CheckpointStore, manifest, read_newest
from core.ground.errors import ClusterError
from tests.core.checkpoints.contents import files, newest, numbered, version_of
from tests.tables import table

MANIFEST = "update-000000002.json"
TENSORS = "update-000000002.safetensors"
BOTH = pytest.mark.parametrize("name", [MANIFEST, TENSORS])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints 1 and 2. A test that changes a file puts it back."""
    folder = tmp_path_factory.mktemp("damage")
    with CheckpointStore(folder) as store:
        facts: dict[str, Any] = {
            "cursor": [3, 4],
            "loss": float("nan"),
            "settings": {"mode": "sync"},
        }
        for version in (1, 2):
            store.write(numbered(version, size=20, **facts))
    return folder


@pytest.fixture(scope="module")
def pristine(folder: Path) -> Iterator[dict[str, bytes]]:
    pristine = dict(files(folder))
    yield pristine
    assert files(folder) == pristine


def refusal(folder: Path, name: str) -> str:
    """The line about `name`."""
    version, (line,) = newest(folder)
    assert version == 1
    assert line.startswith(f"{folder / name}: ")
    assert line.isprintable()
    return line


@contextmanager
def holding(path: Path, content: bytes) -> Iterator[None]:
    """The file holds something else for a while."""
    whole = path.read_bytes()
    try:
        path.write_bytes(content)
        yield
    finally:
        path.write_bytes(whole)


def refusal_of(folder: Path, name: str, content: bytes) -> str:
    with holding(folder / name, content):
        return refusal(folder, name)


@BOTH
def test_cut_anywhere(folder: Path, pristine: dict[str, bytes], name: str) -> None:
    whole = len(pristine[name])
    for length in (*range(0, whole, 13), 7, 8, 9, whole - 2, whole - 1):
        line = refusal_of(folder, name, pristine[name][:length])
        assert name == MANIFEST or f"{length} bytes where its manifest says {whole}" in line


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A few bytes changed, put in or taken out anywhere, or something else altogether."""
    place = draw(st.integers(0, len(whole) - 1))
    rest = whole[place + draw(st.integers(0, 3)) :]
    edited = whole[:place] + draw(st.binary(max_size=3)) + rest
    return draw(st.just(edited) | st.binary(max_size=200))


@BOTH
@settings(max_examples=200)
@given(data=st.data())
def test_a_file_that_is_damaged_or_another(
    folder: Path, pristine: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    content = data.draw(damaged(pristine[name]))
    if content != pristine[name]:
        refusal_of(folder, name, content)


def signed(content: Any) -> bytes:
    """The manifest with the checksum that its content has: somebody's who knows the format."""
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key != "checksum"}
        content = {**content, "checksum": manifest._checksum(content)}
    return manifest._line(content)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all that this JSON value holds."""
    yield path
    match value:
        case dict():
            inner = list(value.items())
        case list():
            inner = list(enumerate(value))
        case _:
            inner = []
    for key, child in inner:
        yield from places(child, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text() | st.just("$float"), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_a_wrong_value_under_the_right_checksum_never_ends_in_a_traceback(
    folder: Path, pristine: dict[str, bytes], data: st.DataObject
) -> None:
    content = json.loads(pristine[MANIFEST])
    del content["checksum"]
    path = data.draw(st.sampled_from(sorted(places(content), key=str)), "path")
    edited = replaced(content, path, data.draw(ANYTHING, "value"))
    with holding(folder / MANIFEST, signed(edited)):
        found, refused = read_newest(folder)
    assert found is not None
    # Facts are the caller's: others than were written are no damage under the right checksum.
    if path[:1] != ("facts",) and edited != content:
        assert (version_of(found), len(refused)) == (1, 1)
    assert (found.update, len(refused)) in ((2, 0), (1, 1))


@pytest.mark.parametrize(("path", "value", "reason"), table("core/checkpoints/tables", "manifest"))
def test_a_manifest_that_says_something_else(
    folder: Path, pristine: dict[str, bytes], path: list[str], value: Any, reason: str
) -> None:
    edited = replaced(json.loads(pristine[MANIFEST]), tuple(path), value)
    assert reason in refusal_of(folder, MANIFEST, signed(edited))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"schema":' + b"1" * 5000 + b"}", "4300"),
        (b" " * (manifest.LARGEST_BYTES + 1), "more than the 16777216 a manifest has"),
    ],
    ids=["a number too long", "more than a manifest"],
)
def test_a_manifest_made_to_do_harm(folder: Path, content: bytes, reason: str) -> None:
    assert reason in refusal_of(folder, MANIFEST, content)


def test_the_same_content_in_other_words(folder: Path, pristine: dict[str, bytes]) -> None:
    spaced = json.dumps(json.loads(pristine[MANIFEST])).encode()
    assert "not the bytes that were written" in refusal_of(folder, MANIFEST, spaced)


def test_other_arrays_than_the_manifest_says(folder: Path, pristine: dict[str, bytes]) -> None:
    edited = replaced(json.loads(pristine[MANIFEST]), ("arrays", "weights", "shape"), [4, 5])
    with holding(folder / MANIFEST, signed(edited)):
        assert "holds other arrays than its manifest says" in refusal(folder, TENSORS)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


OBSTACLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, "No such file"),
    "a folder": (Path.mkdir, "not a regular file"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "a link to itself": (lambda path: path.symlink_to(path), "symbolic links"),
}


@pytest.mark.parametrize(
    ("name", "obstacle"),
    [
        *((TENSORS, each) for each in OBSTACLES),
        *((MANIFEST, each) for each in OBSTACLES if each != "nothing"),
    ],
)
def test_a_part_that_is_no_file(copy: Path, name: str, obstacle: str) -> None:
    put, reason = OBSTACLES[obstacle]
    (copy / name).unlink()
    put(copy / name)
    assert reason in refusal(copy, name)


def test_none_whole_is_none_and_a_line_each_newest_first(copy: Path) -> None:
    for name in ("update-000000001.safetensors", MANIFEST):
        (copy / name).write_bytes(b"")
    found, refused = read_newest(copy)
    assert found is None
    assert [Path(line.partition(":")[0]).name for line in refused] == [
        MANIFEST,
        "update-000000001.safetensors",
    ]


def test_a_manifest_under_another_checkpoints_name(copy: Path) -> None:
    shutil.copy(copy / MANIFEST, copy / "update-000000009.json")
    version, (line,) = newest(copy)
    assert version == 2
    assert "update-000000009.json: says that it is of update 2" in line


def test_names_that_are_no_checkpoints_are_nobodys_business(copy: Path) -> None:
    names = ["update-2.json", "update-٠٠٠٠٠٠٠٠٩.json", "update-000000009.json.bak"]
    names += ["notes.txt", ".update-7.partial.txt"]
    for name in names:
        (copy / name).write_text("mine")
    with CheckpointStore(copy, keep=1) as store:
        assert store.newest()[1] == ()
        store.write(numbered(10))
    assert set(files(copy)) == {*names, "update-000000010.json", "update-000000010.safetensors"}


def test_a_damaged_one_does_not_count_among_those_that_are_kept(copy: Path) -> None:
    (copy / TENSORS).write_bytes(b"")
    with CheckpointStore(copy, keep=2) as store:
        store.write(numbered(3))
        (copy / "update-000000003.json").write_bytes(b"{")
        version, refused = newest(copy)
        assert (version, len(refused)) == (1, 2)
        store.write(numbered(4))
        assert (copy / "update-000000001.json").exists()
        assert (copy / "update-000000003.safetensors").exists()
        store.write(numbered(5))
    assert {int(name[7:16]) for name in files(copy)} == {4, 5}


def test_a_damaged_one_is_written_again(copy: Path) -> None:
    (copy / MANIFEST).write_bytes(b"{")
    with CheckpointStore(copy, keep=3) as store:
        store.write(numbered(7, update=2))
    assert newest(copy) == (7, ())
    assert len(files(copy)) == 4


def test_a_place_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for use, words in ((read_newest, "cannot be looked for"), (CheckpointStore, "cannot be made")):
        with pytest.raises(ClusterError, match=words):
            use(tmp_path / "file")
