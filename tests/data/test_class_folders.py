"""Images and sounds in a folder for each class."""

import io
import re
import struct
import wave
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from cluster.data import Dataset, find_source, prepare
from cluster.errors import DataError

RATE = 8000


def picture(path: Path, shade: int, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> None:
    """`size` is width and height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, shade if mode != "RGB" else (shade, 0, 255 - shade)).save(path)


def sound(path: Path, value: float, samples: int = 100, rate: int = RATE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wavfile.write(path, rate, np.full(samples, value * 32768, np.int16))


Make = Callable[[Path, int], None]
KINDS: dict[str, tuple[str, Make]] = {
    "images": (".png", picture), "audio": (".wav", lambda path, value: sound(path, value / 256))
}  # fmt: skip


def in_sets(folder: Path, kind: str) -> Path:
    suffix, make = KINDS[kind]
    for part, count in (("train", 3), ("test", 2)):
        for number, label in enumerate(("cat", "ape")):
            for index in range(count):
                make(folder / part / label / f"{index}{suffix}", 10 * number + index)
    (folder / "README.txt").write_text("made here")
    (folder / "train" / "cat" / ".hidden").touch()
    return folder


def by_class(folder: Path, kind: str, counts: dict[str, int]) -> Path:
    suffix, make = KINDS[kind]
    for number, (label, count) in enumerate(counts.items()):
        for index in range(count):
            make(folder / label / f"{index:03}{suffix}", 100 * number + index)
    return folder


def read(folder: Path, cache: Path, **options: Any) -> Dataset:
    source = find_source(str(folder), {}, folder, folder)
    return prepare(source, cache=cache / "cache", options=options)


def test_images_come_in_the_order_of_their_classes(tmp_path: Path) -> None:
    dataset = read(in_sets(tmp_path / "pets", "images"), tmp_path)
    assert (dataset.name, dataset.labels, dataset.standardized) == ("pets", ("ape", "cat"), False)
    assert (dataset.inputs.dtype, dataset.input_shape) == ("uint8", (4, 6, 3))
    assert (dataset.train_windows, dataset.test_windows) == (6, 4)
    assert dataset.windows()[:, 3, 5, 0].tolist() == [10, 11, 12, 0, 1, 2, 10, 11, 0, 1]
    assert dataset.windows()[0, 0, 0].tolist() == [10, 0, 245]
    assert dataset.classes().tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_sounds_are_padded_to_the_longest_and_standardized(tmp_path: Path) -> None:
    folder = in_sets(tmp_path / "birds", "audio")
    sound(folder / "train" / "ape" / "9.wav", -1.0, samples=120)
    dataset = read(folder, tmp_path)
    assert (dataset.inputs.dtype, dataset.input_shape, dataset.standardized) == ("float32", (120, 1), True)
    assert dataset.holds_windows
    clip = dataset.windows()[0, :, 0]
    assert clip[:100].tolist() == [10 / 256] * 100
    assert clip[100:].tolist() == [0.0] * 20
    assert dataset.windows()[3, 119, 0] == -1.0
    assert read(folder, tmp_path, clip_seconds=0.01).input_shape == (80, 1)
    assert read(folder, tmp_path, clip_seconds=0.1).input_shape == (800, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_without_sets_the_same_fifth_of_each_class_is_held_out(tmp_path: Path, kind: str) -> None:
    folder = by_class(tmp_path / "pets", kind, {"cat": 10, "ape": 5, "bee": 2})
    dataset = read(folder, tmp_path)
    assert np.bincount(dataset.classes()[: dataset.train_windows]).tolist() == [4, 1, 8]
    assert np.bincount(dataset.classes()[dataset.train_windows :]).tolist() == [1, 1, 2]
    source = find_source(str(folder), {}, folder, folder)
    assert prepare(source, cache=tmp_path / "other", seed=7).sha256 == dataset.sha256


def test_images_are_resized_and_made_grey(tmp_path: Path) -> None:
    folder = in_sets(tmp_path / "pets", "images")
    picture(folder / "train" / "cat" / "large.jpg", 7, (60, 31), "L")
    dataset = read(folder, tmp_path, image_size=[8, 5], image_channels=1)
    assert dataset.input_shape == (8, 5, 1)
    large = dataset.windows()[6]
    np.testing.assert_allclose(large, 7, atol=1)
    assert {path.name[:5] for path in (tmp_path / "cache").iterdir()} == {"pets-"}


def test_a_picture_that_was_taken_upright_lies_upright(tmp_path: Path) -> None:
    folder = in_sets(tmp_path / "pets", "images")
    turned = Image.new("RGB", (4, 6))
    exif = turned.getexif()
    exif[0x0112] = 6  # rotated by 90 degrees
    turned.save(folder / "train" / "cat" / "3.jpg", exif=exif)
    assert read(folder, tmp_path).input_shape == (4, 6, 3)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 192), ("int16", 16384), ("int32", 2**30), ("float32", 0.5)])
def test_every_uncompressed_format_of_sounds_has_one_scale(tmp_path: Path, dtype: str, value: float) -> None:
    folder = by_class(tmp_path / "birds", "audio", {"ape": 2, "cat": 2})
    wavfile.write(folder / "cat" / "000.wav", RATE, np.full((100, 2), value, dtype))
    found = read(folder, tmp_path).windows()[:, 0, 0].tolist()
    assert 0.5 in found


def test_24_bits_are_read(tmp_path: Path) -> None:
    folder = by_class(tmp_path / "birds", "audio", {"ape": 2, "cat": 2})
    with wave.open(str(folder / "cat" / "000.wav"), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(3)
        stream.setframerate(RATE)
        stream.writeframes(b"\x00\x00\x40" * 100)
    assert 0.5 in read(folder, tmp_path).windows()[:, 0, 0].tolist()


def bomb(path: Path) -> None:
    """A few hundred bytes that unpack to 400 million pixels."""
    picture(path, 1)
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 20_000, 20_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path.write_bytes(content)


def cut(path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (4, 6, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:60])


WRONG: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "another size": (
        "images", lambda pets: picture(pets / "train" / "cat" / "7.png", 1, (5, 4)),
        r"train/cat/7.png: expected 6 x 4 pixels as in train/ape/0.png, got 5 x 4; set jobs.train.data.image_size",
    ),
    "no image": (
        "images", lambda pets: (pets / "test" / "cat" / "7.png").write_bytes(b"hello"),
        r"test/cat/7.png: damaged, or no image \(cannot identify",
    ),
    "cut short": ("images", lambda pets: cut(pets / "train" / "cat" / "1.png"), "cat/1.png: damaged, or no image"),
    "a bomb": ("images", lambda pets: bomb(pets / "train" / "cat" / "1.png"), "expected at most 50,000,000 pixels"),
    "16 bits": (
        "images", lambda pets: picture(pets / "train" / "cat" / "1.png", 900, mode="I;16"), "expected 8 bits a colour"
    ),
    "another ending": (
        "images", lambda pets: (pets / "train" / "cat" / "a.tiff").touch(), "train/cat/a.tiff: expected .*, got .tiff"
    ),
    "beside the classes": (
        "images", lambda pets: (pets / "train" / "a.png").touch(), "train/a.png: expected train/CLASS/FILE or"
    ),
    "another set": (
        "images", lambda pets: picture(pets / "val" / "cat" / "1.png", 1), "val/cat/1.png: expected train/CLASS/FILE"
    ),
    "a class of the test alone": (
        "images", lambda pets: picture(pets / "test" / "bee" / "1.png", 1), "test/bee: expected a folder train/bee too"
    ),
    "no sound": (
        "audio", lambda birds: (birds / "train" / "cat" / "1.wav").write_bytes(b"RIFF"), "damaged, or no uncompressed"
    ),
    "a sound cut short": (
        "audio",
        lambda birds: (birds / "train" / "cat" / "1.wav").write_bytes((birds / "train/cat/0.wav").read_bytes()[:100]),
        "train/cat/1.wav: damaged, or no uncompressed WAV",
    ),
    "another rate": (
        "audio", lambda birds: sound(birds / "test" / "cat" / "1.wav", 0.1, rate=44_100),
        "test/cat/1.wav: expected 8000 samples a second as in train/ape/0.wav, got 44100; resample",
    ),
    "too long": (
        "audio", lambda birds: sound(birds / "test" / "cat" / "1.wav", 0.1, samples=RATE * 61),
        "test/cat/1.wav: expected at most 60 s, got 61.0; set jobs.train.data.clip_seconds",
    ),
    "not finite": (
        "audio",
        lambda birds: wavfile.write(birds / "train" / "cat" / "1.wav", RATE, np.full(9, np.nan, np.float32)),
        "train/cat/1.wav: expected finite samples, got nan",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_file_is_one_line_with_its_name(tmp_path: Path, name: str) -> None:
    kind, damage, expected = WRONG[name]
    folder = in_sets(tmp_path / "set", kind)
    damage(folder)
    with pytest.raises(DataError) as caught:
        read(folder, tmp_path)
    line = str(caught.value)
    assert line.startswith(str(folder))
    assert re.search(expected, line), line
    assert "\n" not in line
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_alone_and_a_file_alone_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError, match="expected a folder for each of two classes or more, got cat"):
        read(by_class(tmp_path / "one", kind, {"cat": 4}), tmp_path)
    with pytest.raises(DataError, match=r"ape: expected at least 2 files, .*train/ape"):
        read(by_class(tmp_path / "two", kind, {"cat": 4, "ape": 1}), tmp_path)
    lonely = by_class(tmp_path / "three" / "train", kind, {"cat": 4, "ape": 4}).parent
    with pytest.raises(DataError, match="test: expected test/CLASS/FILE, got no such file"):
        read(lonely, tmp_path)


def test_a_search_takes_no_folder_of_images_for_recordings(tmp_path: Path) -> None:
    in_sets(tmp_path / "work" / "shared" / "data" / "pets", "images")
    project = tmp_path / "work" / "project"
    assert find_source(None, {}, project, tmp_path / "none").kind == "synthetic"
    assert (
        find_source(None, {"PSCLUSTER_DATA": str(tmp_path / "work/shared/data/pets")}, project, project).kind
        == "images"
    )


def test_a_changed_image_is_prepared_again_and_an_unchanged_folder_is_not(tmp_path: Path) -> None:
    folder = in_sets(tmp_path / "pets", "images")
    first = read(folder, tmp_path)
    (folder / "README.txt").write_text("other words")
    assert read(folder, tmp_path).folder == first.folder
    picture(folder / "train" / "cat" / "0.png", 99)
    assert read(folder, tmp_path).folder != first.folder


def test_any_bytes_are_one_error_or_an_image(tmp_path: Path) -> None:
    folder = in_sets(tmp_path / "pets", "images")
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (4, 6, 3), np.uint8)).save(stream, "PNG")
    random = np.random.default_rng(5)
    path = folder / "train" / "cat" / "0.png"
    for _ in range(60):
        content = np.frombuffer(stream.getvalue(), np.uint8).copy()
        content[random.integers(8, len(content), 3)] = random.integers(0, 255, 3)
        path.write_bytes(content.tobytes())
        said = f"{folder}: train/"
        try:
            read(folder, tmp_path)
        except DataError as problem:
            said = str(problem)
        assert said.startswith(f"{folder}: train/")
        assert "\n" not in said
