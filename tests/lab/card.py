"""A node's SD card: the upper layer over the image.

The node sees files written there before its first boot.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.lab.commands import run

SMALL_CARD_MIB = 96
"""A card with almost no free space: ext4's own needs, the journal, the logs of a boot."""


@dataclass(frozen=True)
class Card:
    """A node's disk: `folder` holds `upper`, `work` (overlay's) and `srv`.

    `srv` is bound in, because a server in user space can't export an overlay. `lower` are the
    read-only layers, the topmost first, the image last.
    """

    folder: Path
    lower: tuple[Path, ...]
    image_file: Path | None = None

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    def make(self) -> None:
        """An empty card, and the folder that the node mounts it at."""
        for name in ("upper", "work", "srv", "root"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name).chmod(0o755)

    def freeze(self) -> None:
        """Makes a small card's file system of the written files; the node boots from that alone."""
        if self.image_file is None:
            return
        contents = self.folder / "contents"
        contents.mkdir()
        for name in ("upper", "work", "srv"):
            (self.folder / name).rename(contents / name)
        with self.image_file.open("wb") as file:
            file.truncate(SMALL_CARD_MIB << 20)
        run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-d", contents, self.image_file)
        shutil.rmtree(contents)

    def write(self, path: str, content: str, mode: int = 0o644, owner: int = 0) -> Path:
        """Puts a file on the card, below folders as on the image."""
        target = self.upper / path
        self.make_parents(target)
        target.write_text(content)
        os.chown(target, owner, owner)
        target.chmod(mode)
        return target

    def copy(self, path: str, name: str) -> None:
        """Puts a copy of a file of the image beside it, under another name."""
        target = (self.upper / path).with_name(name)
        self.make_parents(target)
        shutil.copy(self._on_image(Path(path)), target)

    def make_parents(self, target: Path) -> None:
        """Makes the folders above a path of the card as they are on the image."""
        for folder in reversed(target.relative_to(self.upper).parents[:-1]):
            if not (self.upper / folder).exists():
                like = self._on_image(folder).stat()
                (self.upper / folder).mkdir()
                os.chown(self.upper / folder, like.st_uid, like.st_gid)
                (self.upper / folder).chmod(like.st_mode & 0o7777)

    def _on_image(self, path: Path) -> Path:
        return self.lower[-1] / path
