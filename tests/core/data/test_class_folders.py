"""Images and sounds in a folder for each class."""

import io
import struct
import wave
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from core.data import find_source
from core.data.dataset import Array
from tests.core.data.desk import Desk, has, words, wrong
from tests.core.data.makers import Files

RATE = 8000


def png(
    shade: int, size: tuple[int, int] = (6, 4), mode: str = "RGB", kind: str = "PNG", **exif: Any
) -> bytes:
    """A picture of one colour, of another `kind` too; `size` is width and height."""
    stream = io.BytesIO()
    colour = (shade, 0, 255 - shade) if mode == "RGB" else shade
    Image.new(mode, size, colour).save(stream, kind, **exif)
    return stream.getvalue()


def wav(shade: float, samples: int = 100, rate: int = RATE, kind: Any = np.int16) -> bytes:
    """A sound whose samples are all `shade` / 256."""
    stream = io.BytesIO()
    scale = 128 if kind is np.int16 else 1 / 256
    wavfile.write(stream, rate, np.full(samples, shade * scale, kind))
    return stream.getvalue()


KINDS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "images": (".png", png),
    "audio": (".wav", wav),
}


def made(kind: str, counts: dict[str, int], step: int = 10) -> Files:
    """Write files of each class, such as `train/cat`."""
    suffix, make = KINDS[kind]
    return {
        f"{label}/{index:03}{suffix}": make(step * label.endswith("ape") + index)
        for label, count in counts.items()
        for index in range(count)
    }


SETS = {"train/cat": 3, "train/ape": 3, "test/cat": 2, "test/ape": 2}
PETS = made("images", SETS) | {"README.txt": b"made here", "train/cat/.hidden": b""}
BIRDS = made("audio", SETS)


def test_images_come_in_the_order_of_their_classes(desk: Desk) -> None:
    dataset = desk.read("pets", PETS)
    has(
        dataset,
        name="pets",
        labels=("ape", "cat"),
        standardized=False,
        inputs=Array("inputs.uint8", "uint8", (4, 6, 3)),
        train_windows=6,
        test_windows=4,
        classes=[0, 0, 0, 1, 1, 1, 0, 0, 1, 1],
    )
    shades = [10, 11, 12, 0, 1, 2, 10, 11, 0, 1]
    assert dataset.windows()[:, 3, 5].tolist() == [[shade, 0, 255 - shade] for shade in shades]


def test_sounds_are_padded_to_the_longest_and_standardized(desk: Desk) -> None:
    dataset = desk.read("birds", BIRDS | {"train/ape/9.wav": wav(-256, samples=120)})
    inputs = Array("windows.f32", "float32", (120, 1))
    has(dataset, inputs=inputs, standardized=True, holds_windows=True)
    assert dataset.windows()[0, :, 0].tolist() == [10 / 256] * 100 + [0.0] * 20
    assert dataset.windows()[3, 119, 0] == -1.0
    assert desk.read("birds", clip_seconds=0.01).input_shape == (80, 1)
    assert desk.read("birds", clip_seconds=0.1).input_shape == (800, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_without_sets_the_same_fifth_of_each_class_is_held_out(desk: Desk, kind: str) -> None:
    dataset = desk.read("pets", made(kind, {"cat": 10, "ape": 5, "bee": 2}, 100))
    train, test = np.split(dataset.classes(), [dataset.train_windows])
    assert (np.bincount(train).tolist(), np.bincount(test).tolist()) == ([4, 1, 8], [1, 1, 2])
    desk.cache = desk.folder / "other"
    assert desk.read("pets", seed=7).sha256 == dataset.sha256


def test_images_are_resized_and_made_grey(desk: Desk) -> None:
    large = {"train/cat/large.jpg": png(7, (60, 31), "L", "JPEG")}
    dataset = desk.read("pets", PETS | large, image_size=[8, 5], image_channels=1)
    assert dataset.input_shape == (8, 5, 1)
    np.testing.assert_allclose(dataset.windows()[6], 7, atol=1)
    assert [name[:5] for name in desk.cached()] == ["pets-"]


def test_a_picture_that_was_taken_upright_lies_upright(desk: Desk) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    turned = {"train/cat/3.png": png(1, (4, 6), exif=exif)}
    assert desk.read("pets", PETS | turned).input_shape == (4, 6, 3)


def frames(width: int, frame: bytes) -> bytes:
    """A sound of samples of this many bytes."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setparams((2, width, RATE, 100, "NONE", ""))
        sound.writeframes(frame * 200)
    return stream.getvalue()


@pytest.mark.parametrize(
    "sound",
    [
        frames(1, b"\xc0"),
        frames(2, b"\x00\x40"),
        frames(3, b"\x00\x00\x40"),
        frames(4, b"\x00\x00\x00\x40"),
        wav(128, kind=np.float32),
    ],
    ids=["8 bits", "16 bits", "24 bits", "32 bits", "floats"],
)
def test_every_uncompressed_format_of_sounds_has_one_scale(desk: Desk, sound: bytes) -> None:
    dataset = desk.read("birds", BIRDS | {"train/cat/000.wav": sound})
    assert 0.5 in dataset.windows()[:, 0, 0]


def noise() -> bytes:
    """A picture whose bytes all matter."""
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (4, 6, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def bomb() -> bytes:
    """A few hundred bytes that unpack to 400 million pixels."""
    content = bytearray(noise())
    content[16:24] = struct.pack(">II", 20_000, 20_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("test/cat/7.png", b"hello", "7.png: damaged, or no image (cannot identify"),
        ("train/cat/001.png", noise()[:60], "cat/001.png: damaged, or no image"),
        ("train/cat/001.png", bomb(), "expected at most 50,000,000 pixels"),
        ("train/cat/001.png", png(900, mode="I;16"), "expected 8 bits a colour"),
        (
            "train/cat/7.png",
            png(1, (5, 4)),
            "7.png: expected 6 x 4 pixels as in train/ape/000.png, got 5 x 4; set"
            " jobs.train.data.image_size",
        ),
        ("train/cat/a.tiff", b"", "train/cat/a.tiff: expected ... , got .tiff"),
        ("train/a.png", b"", "train/a.png: expected train/CLASS/FILE or"),
        ("val/cat/1.png", png(1), "val/cat/1.png: expected train/CLASS/FILE"),
        ("test/bee/1.png", png(1), "test/bee: expected a folder train/bee too"),
        ("train/cat/001.wav", b"RIFF", "001.wav: damaged, or no uncompressed"),
        ("train/cat/001.wav", wav(1)[:100], "001.wav: damaged, or no uncompressed WAV"),
        (
            "train/cat/001.wav",
            wav(1, rate=44_100),
            "001.wav: expected 8000 samples a second as in train/ape/000.wav, got 44100; resample",
        ),
        (
            "train/cat/001.wav",
            wav(1, samples=RATE * 61),
            "001.wav: expected at most 60 s, got 61.0; set jobs.train.data.clip_seconds",
        ),
        (
            "train/cat/001.wav",
            wav(np.nan, kind=np.float32),
            "train/cat/001.wav: expected finite samples, got nan",
        ),
    ],
    ids=words,
)
def test_a_bad_file_is_one_line_with_its_name(
    desk: Desk, name: str, content: bytes, said: str
) -> None:
    files = BIRDS if name.endswith(".wav") else PETS
    desk.refuses(said, "set", files | {name: content})


@pytest.mark.parametrize("kind", KINDS)
@wrong("class folders")
def test_a_class_alone_and_a_file_alone_are_refused(
    desk: Desk, row: dict[str, Any], kind: str
) -> None:
    desk.refuses(row["says"], "few", made(kind, row["files"]))


def test_a_search_takes_no_folder_of_images_for_recordings(desk: Desk) -> None:
    folder = desk.write("shared/data/pets", PETS)
    project = desk.folder / "project"
    assert find_source(None, {}, project, project).kind == "synthetic"
    named = find_source(None, {"PSCLUSTER_DATA": str(folder)}, project, project)
    assert named.kind == "images"


def test_a_changed_image_is_prepared_again_and_an_unchanged_folder_is_not(desk: Desk) -> None:
    first = desk.read("pets", PETS)
    assert desk.read("pets", {"README.txt": b"other words"}).folder == first.folder
    assert desk.read("pets", {"train/cat/000.png": png(99)}).folder != first.folder


def test_any_bytes_are_one_error_or_an_image(desk: Desk) -> None:
    desk.write("pets", PETS)
    random = np.random.default_rng(5)
    for _ in range(60):
        content = np.frombuffer(noise(), np.uint8).copy()
        content[random.integers(8, len(content), 3)] = random.integers(0, 255, 3)
        desk.tried("pets", {"train/cat/000.png": content.tobytes()})
