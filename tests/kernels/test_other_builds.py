"""What compares another build with the committed one says each difference."""

from pathlib import Path

import pytest

from tests.kernels.calls import Called, damaged
from tests.kernels.networks import Case
from tools.compare_kernels import VERBS, OtherBitsError, Run, compare, main


@pytest.mark.parametrize(
    "end", ["echo more # that of kernels/built is", "echo fault >&2; exit 1 # ended with 1: fault"]
)
def test_a_difference(end: str, tmp_path: Path) -> None:
    run = Run("avx2", 3, [Called(Case("kth")), *damaged(1)])
    (tmp_path / "bits").write_bytes(run.expected)
    same = f"cat {tmp_path}/bits"
    assert "12 calls, SHA-256" in compare(["sh", "-c", same], run, tmp_path)
    with pytest.raises(OtherBitsError, match=end.partition("# ")[2]):
        compare(["sh", "-c", f"{same}; {end}"], run, tmp_path)


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_not_installed(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match=rf"^kernels: {verb}: no \S+: install it \(Debian: apt "):
        main([verb])
