"""Where a secret is seen: arguments and environments of all processes, and files."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAUSE_SECONDS = 0.02
"""Between two looks at all processes."""


@dataclass(frozen=True)
class Seen:
    """Where a secret stands: `place` is `argv`, `environ` or a file's path."""

    secret: str
    place: str
    process: str = ""
    """The arguments of the process."""


class Watch:
    """Every different content of `/proc/PID/cmdline` and `/proc/PID/environ` since it began."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], bytes] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_again, daemon=True)
        self._looking.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._looking.join()

    def sightings(self, secrets: Mapping[str, bytes]) -> set[Seen]:
        """Which processes bore a secret."""
        found = set()
        for (place, content), words in self._found.items():
            for name, secret in secrets.items():
                if secret in content:
                    found.add(Seen(name, place, words.replace(b"\0", b" ").decode().strip()))
        return found

    def processes(self, words: str) -> int:
        """How many command lines with these words were seen."""
        return sum(words.encode() in line.replace(b"\0", b" ") for _, line in self._found)

    def _look_again(self) -> None:
        while not self._ended.wait(PAUSE_SECONDS):
            self.look()

    def look(self) -> None:
        for process in PROC.glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes()
                environment = (process / "environ").read_bytes()
                if words != (process / "cmdline").read_bytes() or not words:
                    continue  # it is becoming another program: the next look sees that
                self._found.setdefault(("argv", words), words)
                self._found.setdefault(("environ", environment), words)
            except OSError:  # it has ended, or belongs to another account
                continue


@contextmanager
def watching() -> Iterator[Watch]:
    """Look at all processes while a block runs."""
    watch = Watch()
    try:
        yield watch
    finally:
        watch.end()


def in_files(folders: Iterable[Path], secrets: Mapping[str, bytes]) -> set[Seen]:
    """Which files below the folders hold a secret."""
    found = set()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            content = path.read_bytes()
            for name, secret in secrets.items():
                if secret in content:
                    found.add(Seen(name, str(path)))
    return found
