from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.ground.errors import ExitCode
from core.server.process import (
    MEBIBYTE,
    NEEDED_BYTES,
    Headroom,
    TooLittleMemoryError,
    check_memory,
    headroom,
    require,
)
from tests.tables import table

FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""Names of a group's limit and use, and of what can be evicted, by the version of the groups."""


@dataclass(frozen=True)
class Group:
    """A control group with a limit; MiB but for the limit of a kernel that has none."""

    folder: str
    limit: int | str
    used: int
    evictable: int = 0
    version: int = 2

    def write(self, groups: Path) -> None:
        folder = groups / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        limit, used, evictable = FILES[self.version]
        text = str(self.limit * MEBIBYTE if isinstance(self.limit, int) else self.limit)
        (folder / limit).write_text(f"{text}\n")
        (folder / used).write_text(f"{self.used * MEBIBYTE}\n")
        statistics = f"anon 1\n{evictable} {self.evictable * MEBIBYTE}\nactive_file 5\n"
        (folder / "memory.stat").write_text(statistics)


@pytest.mark.parametrize("row", table("core/server/tables", "memory"))
def test_the_narrowest_of_machine_and_groups_bounds_and_page_cache_does_not_count(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1000000 kB\nMemAvailable:   {900 * 1024} kB\n")
    (proc / "self" / "cgroup").write_text(row["of"])
    for group in row.get("groups", ()):
        Group(*group).write(tmp_path / "groups")
    found = headroom(proc, tmp_path / "groups")
    assert found.available_bytes == row["left"] * MEBIBYTE
    assert found.bound.endswith(row["bound"])


def test_this_machine_has_memory_and_a_role_fits() -> None:
    assert headroom().available_bytes > 0
    check_memory("lean")


def test_too_little_names_need_bound_and_remedy() -> None:
    room = Headroom(NEEDED_BYTES["lean"] - 1, "the machine's available memory")
    with pytest.raises(TooLittleMemoryError) as caught:
        require("lean", NEEDED_BYTES["lean"], room, "stop something")
    assert (
        str(caught.value)
        == "a lean server needs 128 MiB and the machine's available memory leaves 127 MiB: stop"
        " something"
    )
    assert caught.value.exit_code == ExitCode.TOO_LITTLE_MEMORY
