"""A folder of images by class, through Pillow: uint8 (height, width, channels)."""

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import FolderTree, one_line
from core.data.batch import Batch, Examples
from core.data.class_folders import (
    Filed,
    batch_of,
    filed,
    holds_classes,
    pieces_of,
    wanted_files,
)
from core.data.dataset import CLASSIFICATION
from core.data.given import Batches
from core.data.reader import Reader
from core.data.recordings import Cutting, Report
from core.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM")
"""What Pillow may try: the endings above, none of its rarer parsers."""
MOST_PIXELS = 50_000_000
"""The most pixels of one image: 150 MB as RGB. A small file that unpacks to more is a bomb."""
THREADS = 4
AT_ONCE = 256
"""Images that are read at a time (Pillow lets go of the interpreter while it decodes), and most of
one batch."""
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What Pillow raises over damaged files."""


def read(tree: FolderTree, cutting: Cutting, report: Report) -> Examples:
    """The images, resized if asked, of one size otherwise.

    Raises DataError naming file and remedy.
    """
    pillow = _pillow(tree.where)
    labels, files = filed(tree, SUFFIXES)
    size = cutting.image_size
    if size is not None:
        first = None
    else:
        first = _Opener(pillow, tree, cutting, None).size_of(files[0].name)
    opener = _Opener(pillow, tree, cutting, None if first is None else (files[0].name, first))
    height, width = size or first or (1, 1)
    pieces = pieces_of(files, height * width * cutting.image_channels, AT_ONCE)
    return Examples(
        Batches(_batches(opener, pieces), len(files)), CLASSIFICATION, labels, standardized=False
    )


def _batches(opener: "_Opener", pieces: Sequence[Sequence[Filed]]) -> Iterator[Batch]:
    with ThreadPoolExecutor(THREADS, "images") as pool:
        for piece in pieces:
            pixels = np.stack(list(pool.map(opener.pixels, [file.name for file in piece])))
            yield batch_of(pixels, piece)


def _pillow(where: str) -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DataError(
            f"{where}: images need Pillow, which is not installed; run `pip install pillow`"
        ) from None
    return Image, ImageOps


class _Opener:
    """Reads one image after the other."""

    def __init__(
        self,
        pillow: Any,
        tree: FolderTree,
        cutting: Cutting,
        like: tuple[str, tuple[int, int]] | None,
    ) -> None:
        """Take the tree of images: `like` is the image whose height and width all must have.

        Where it is None they are resized, or may have any size.
        """
        self._image, self._operations = pillow
        self._tree = tree
        self._cutting = cutting
        self._like = like
        self._bombs = (self._image.DecompressionBombError, self._image.DecompressionBombWarning)

    def size_of(self, name: str) -> tuple[int, int]:
        """Height and width of an image as it is shown."""
        height, width = self._decoded(name).shape[:2]
        return height, width

    def pixels(self, name: str) -> NDArray[np.uint8]:
        """uint8 (height, width, channels)."""
        pixels = self._decoded(name)
        if self._like is not None and pixels.shape[:2] != self._like[1]:
            height, width = pixels.shape[:2]
            expected_height, expected_width = self._like[1]
            raise DataError(
                f"{self._tree.where}: {name}: expected {expected_width} x {expected_height} pixels"
                f" as in {self._like[0]}, got {width} x {height}; set jobs.train.data.image_size,"
                " which resizes all"
            )
        return pixels

    def _decoded(self, name: str) -> NDArray[np.uint8]:
        where = f"{self._tree.where}: {name}"
        content = self._tree.read(name)
        try:
            with self._image.open(io.BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise self._image.DecompressionBombError
                if image.mode.startswith(("I", "F")):
                    raise DataError(
                        f"{where}: expected 8 bits a colour, got mode {image.mode}; convert it to 8"
                        " bits"
                    )
                upright = self._operations.exif_transpose(image)
                converted = upright.convert("L" if self._cutting.image_channels == 1 else "RGB")
                if self._cutting.image_size is not None:
                    height, width = self._cutting.image_size
                    converted = converted.resize((width, height), self._image.Resampling.BILINEAR)
                pixels = np.asarray(converted, np.uint8)
        except self._bombs:
            raise DataError(
                f"{where}: expected at most {MOST_PIXELS:,} pixels, got more, which a small file"
                " may unpack to; make the image smaller, or remove it"
            ) from None
        except _DAMAGE as problem:
            said = one_line(problem).replace(f"{io.BytesIO}", "")[:80]
            raise DataError(
                f"{where}: damaged, or no image ({said or type(problem).__name__}); restore or"
                " remove it"
            ) from None
        return pixels.reshape(*pixels.shape[:2], self._cutting.image_channels)


class Images(Reader):
    """A folder of images by class."""

    name = "images"
    accepted = "a folder of images by class"
    is_what = (
        "[images by class](data-formats.md#images-by-class): `train/CLASS/*.png` and"
        " `test/CLASS/*.png`, or `CLASS/*.png`"
    )
    windows_are_cut = "no windows: uint8 (height, width, 3)"
    marker = None
    suffix = None
    usual_names = ()
    settings = ("image_size", "image_channels")
    wanted = staticmethod(wanted_files)
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether the folder holds images by class."""
        return holds_classes(path, SUFFIXES)
