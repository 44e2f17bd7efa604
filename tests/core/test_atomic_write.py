"""A file is on the disk before its name is, and the name before the call returns."""

import os
from pathlib import Path
from typing import Any

import pytest

from core.atomic_write import atomic_write


def test_the_content_is_synced_then_named_then_the_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str]] = []
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(("sync", "folder" if path == tmp_path else path.read_text()))
        real_sync(descriptor)

    def observed(name: str) -> None:
        real = getattr(os, name)

        def move(source: Any, target: Any, **words: Any) -> None:
            steps.append(("name", Path(target).name))
            real(source, target, **words)

        monkeypatch.setattr(os, name, move)

    monkeypatch.setattr(os, "fsync", sync)
    observed("replace")
    observed("rename")
    atomic_write(tmp_path / "result.json", b"{}")
    assert steps == [("sync", "{}"), ("name", "result.json"), ("sync", "folder")]
