from pathlib import Path

import pytest

from cluster.errors import ExitCode
from cluster.server.memory import (
    MEBIBYTE,
    NEEDED_BYTES,
    Headroom,
    TooLittleMemoryError,
    check_memory,
    headroom,
    require,
)


def machine(folder: Path, membership: str, available_mib: int = 900) -> Path:
    """A /proc with so much memory available, whose process is in these control groups."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1000000 kB\nMemAvailable:   {available_mib * 1024} kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    return proc


def group(folder: Path, limit: str, used_mib: int, evictable_mib: int, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used_mib * MEBIBYTE}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {evictable_mib * MEBIBYTE}\nactive_file 5\n")


def test_without_limits_the_machine_bounds(tmp_path: Path) -> None:
    proc = machine(tmp_path, "0::/\n")
    assert headroom(proc, tmp_path / "groups") == Headroom(900 * MEBIBYTE, "the machine's available memory")


def test_a_control_group_bounds_and_its_page_cache_does_not_count(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "0::/system.slice/ps.service\n"), tmp_path / "groups"
    group(groups / "system.slice" / "ps.service", str(200 * MEBIBYTE), used_mib=120, evictable_mib=40)
    found = headroom(proc, groups)
    assert found.available_bytes == 120 * MEBIBYTE
    assert "system.slice/ps.service" in found.bound


def test_the_limit_of_an_enclosing_group_holds(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "0::/outer/inner\n"), tmp_path / "groups"
    group(groups / "outer" / "inner", "max", used_mib=10, evictable_mib=0)
    group(groups / "outer", str(64 * MEBIBYTE), used_mib=60, evictable_mib=0)
    assert headroom(proc, groups).available_bytes == 4 * MEBIBYTE


def test_version_1_and_its_way_to_say_unlimited(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "5:devices:/\n4:cpu,memory:/job\n0::/\n"), tmp_path / "groups"
    group(groups / "memory", "9223372036854771712", used_mib=5000, evictable_mib=0, version=1)
    assert headroom(proc, groups).available_bytes == 900 * MEBIBYTE
    group(groups / "memory" / "job", str(300 * MEBIBYTE), used_mib=250, evictable_mib=20, version=1)
    assert headroom(proc, groups).available_bytes == 70 * MEBIBYTE


def test_a_container_whose_own_path_is_not_mounted_has_the_limit_at_the_root(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "0::/docker/5ac3\n"), tmp_path / "groups"
    group(groups, str(256 * MEBIBYTE), used_mib=200, evictable_mib=0)
    assert headroom(proc, groups).available_bytes == 56 * MEBIBYTE


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "0::/full\n"), tmp_path / "groups"
    group(groups / "full", str(100 * MEBIBYTE), used_mib=101, evictable_mib=0)
    assert headroom(proc, groups).available_bytes == 0


def test_this_machine_has_memory_and_a_role_fits() -> None:
    assert headroom().available_bytes > 0
    check_memory("lean")


def test_too_little_names_need_bound_and_remedy() -> None:
    room = Headroom(NEEDED_BYTES["lean"] - 1, "the machine's available memory")
    with pytest.raises(TooLittleMemoryError) as caught:
        require("lean", NEEDED_BYTES["lean"], room, "stop something")
    assert str(caught.value) == (
        "a lean server needs 128 MiB and the machine's available memory leaves 127 MiB: stop something"
    )
    assert caught.value.exit_code == ExitCode.TOO_LITTLE_MEMORY
