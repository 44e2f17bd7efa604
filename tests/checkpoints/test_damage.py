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

from cluster.checkpoints import CheckpointStore, manifest, read_newest
from cluster.errors import ClusterError
from tests.checkpoints.contents import files, numbered, version_of

MANIFEST, TENSORS = "update-000000002.json", "update-000000002.safetensors"
BOTH = pytest.mark.parametrize("name", [MANIFEST, TENSORS])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints 1 and 2. A test that changes a file puts it back."""
    folder = tmp_path_factory.mktemp("damage")
    with CheckpointStore(folder) as store:
        for version in (1, 2):
            store.write(numbered(version, size=20, cursor=[3, 4], loss=float("nan"), settings={"mode": "sync"}))
    return folder


@pytest.fixture(scope="module")
def pristine(folder: Path) -> Iterator[dict[str, bytes]]:
    pristine = dict(files(folder))
    yield pristine
    assert files(folder) == pristine


def refusal(folder: Path, name: str) -> str:
    """The line about `name`, which is the only one, and the checkpoint before it is what is read."""
    found, refused = read_newest(folder)
    assert found is not None
    assert version_of(found) == 1
    (line,) = refused
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


@BOTH
@settings(deadline=None)
@given(data=st.data())
def test_a_byte_changed_put_in_or_taken_out_anywhere(
    folder: Path, pristine: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    whole = pristine[name]
    place = data.draw(st.integers(0, len(whole) - 1), "place")
    taken_out = data.draw(st.integers(0, 3), "taken out")
    put_in = data.draw(st.binary(max_size=3), "put in")
    content = whole[:place] + put_in + whole[place + taken_out :]
    if content != whole:
        refusal_of(folder, name, content)


@BOTH
@settings(deadline=None)
@given(st.binary(max_size=200))
def test_anything_else_in_its_place(folder: Path, pristine: dict[str, bytes], name: str, content: bytes) -> None:
    refusal_of(folder, name, content)


def signed(content: Any) -> bytes:
    """The manifest with the checksum that its content has: somebody's who knows the format."""
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key != "checksum"}
        content = {**content, "checksum": manifest._checksum(content)}
    return manifest._line(content)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("$float"), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
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


def edit(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: {**content, **changes}


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another schema": (edit(schema=2), "schema 2 where this version reads 1"),
    "a list": (lambda content: [content], "expected a JSON object"),
    "a key missing": (lambda content: {k: v for k, v in content.items() if k != "arrays"}, "expected the keys"),
    "another update": (edit(update=3), "says that it is of update 3"),
    "another file": (lambda content: edit(tensors={**content["tensors"], "name": "../x"})(content), "no file of this"),
    "a negative length": (lambda content: edit(tensors={**content["tensors"], "bytes": -1})(content), "tensors.bytes"),
    "an array without a shape": (edit(arrays={"w\n": {"dtype": "float32"}}), "arrays.'w.n'.shape: Field required"),
    "a shape of text": (
        edit(arrays={"w": {"dtype": "float32", "shape": ["2"]}}),
        "shape.0: Input should be a valid int",
    ),
    "facts that are text": (edit(facts="x"), "facts: Input should be a valid dictionary"),
    "a number that is none": (edit(facts={"a": {"$float": "many"}}), "that is none of nan, inf, -inf"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_manifest_that_says_something_else(folder: Path, pristine: dict[str, bytes], name: str) -> None:
    change, reason = EDITS[name]
    line = refusal_of(folder, MANIFEST, signed(change(json.loads(pristine[MANIFEST]))))
    assert reason.replace("'w.n'", r"'w\n'") in line


WRITTEN: dict[str, tuple[bytes, str]] = {
    "deep nesting": (b"[" * 100_000, "recursion"),
    "a number too long": (b'{"schema":' + b"1" * 5000 + b"}", "4300"),
    "more than a manifest": (b" " * (manifest.LARGEST_BYTES + 1), "more than the 16777216 a manifest has"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_manifest_made_to_do_harm(folder: Path, pristine: dict[str, bytes], name: str) -> None:
    content, reason = WRITTEN[name]
    assert reason in refusal_of(folder, MANIFEST, content)


def test_the_same_content_in_other_words(folder: Path, pristine: dict[str, bytes]) -> None:
    spaced = json.dumps(json.loads(pristine[MANIFEST])).encode()
    assert "not the bytes that were written" in refusal_of(folder, MANIFEST, spaced)


def test_other_arrays_than_the_manifest_says(folder: Path, pristine: dict[str, bytes]) -> None:
    content = json.loads(pristine[MANIFEST])
    content["arrays"]["weights"]["shape"] = [4, 5]
    with holding(folder / MANIFEST, signed(content)):
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


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_tensors_that_are_no_file(copy: Path, obstacle: str) -> None:
    put, reason = OBSTACLES[obstacle]
    (copy / TENSORS).unlink()
    put(copy / TENSORS)
    assert reason in refusal(copy, TENSORS)


@pytest.mark.parametrize("obstacle", sorted(OBSTACLES.keys() - {"nothing"}))
def test_a_manifest_that_is_no_file(copy: Path, obstacle: str) -> None:
    put, reason = OBSTACLES[obstacle]
    (copy / MANIFEST).unlink()
    put(copy / MANIFEST)
    assert reason in refusal(copy, MANIFEST)


def test_none_whole_is_none_and_a_line_each_newest_first(copy: Path) -> None:
    for name in ("update-000000001.safetensors", MANIFEST):
        (copy / name).write_bytes(b"")
    found, refused = read_newest(copy)
    assert found is None
    assert [Path(line.partition(":")[0]).name for line in refused] == [MANIFEST, "update-000000001.safetensors"]


def test_a_manifest_under_another_checkpoints_name(copy: Path) -> None:
    shutil.copy(copy / MANIFEST, copy / "update-000000009.json")
    found, (line,) = read_newest(copy)
    assert found is not None
    assert version_of(found) == 2
    assert "update-000000009.json: says that it is of update 2" in line


def test_names_that_are_no_checkpoints_are_nobodys_business(copy: Path) -> None:
    names = (
        "update-2.json",
        "update-٠٠٠٠٠٠٠٠٩.json",
        "update-000000009.json.bak",
        "notes.txt",
        ".update-7.partial.txt",
    )
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
        found, refused = store.newest()
        assert found is not None
        assert version_of(found) == 1
        assert len(refused) == 2
        store.write(numbered(4))
        assert (copy / "update-000000001.json").exists()
        assert (copy / "update-000000003.safetensors").exists()
        store.write(numbered(5))
    assert {int(name[7:16]) for name in files(copy)} == {4, 5}


def test_a_damaged_one_is_written_again(copy: Path) -> None:
    (copy / MANIFEST).write_bytes(b"{")
    with CheckpointStore(copy, keep=3) as store:
        store.write(numbered(7, update=2))
        found, refused = store.newest()
    assert found is not None
    assert (version_of(found), refused) == (7, ())
    assert len(files(copy)) == 4


def test_a_place_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot be looked for"):
        read_newest(tmp_path / "file")
    with pytest.raises(ClusterError, match="cannot be made"):
        CheckpointStore(tmp_path / "file")
