"""What a Raspberry Pi's firmware says, in words that real ones gave."""

from pathlib import Path

import pytest

from core.metrics.node import Throttling, clock_synchronized, conditions, firmware, parse
from tests.tables import table


@pytest.mark.parametrize(("bits", "expected"), table("core/metrics/tables", "throttling").items())
def test_bits(bits: int, expected: list[str]) -> None:
    found = conditions(bits)
    assert {" ".join(key) for key, holds in found.items() if holds} == set(expected)
    assert len(found) == 8


def test_both_ways_to_write_it_are_read_and_nothing_else() -> None:
    assert parse("throttled=0x50005\n") == parse("50005\n") == parse("0x50005") == 0x50005
    assert parse("0\n") == parse("throttled=0x0\n") == 0
    assert parse("VCHI initialization failed\n") is parse("") is None


def test_what_once_was_stays_though_the_kernel_makes_the_firmware_forget() -> None:
    # Its own record, the bits from 16 on, is there in the third answer alone.
    answers = iter(["0", "5", "20000", "0", "broken"])
    throttling = Throttling(lambda: next(answers))
    assert not any(throttling().values())
    assert throttling()["under_voltage", "now"]
    assert throttling()["frequency_capped", "boot"]
    later = throttling()
    assert {key for key, holds in later.items() if holds} == {
        ("under_voltage", "boot"),
        ("throttled", "boot"),
        ("frequency_capped", "boot"),
    }
    assert throttling() == {}


@pytest.mark.parametrize("folder", ["soc/soc:firmware", "soc@107c000000/soc@107c000000:firmware"])
def test_the_kernel_s_file_is_found_on_every_pi(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "get_throttled").write_text("50000\n")
    found = firmware(tmp_path)
    assert found is not None
    assert found()["under_voltage", "boot"]


def test_vcgencmd_where_the_kernel_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "vcgencmd"
    program.write_text('#!/bin/sh\n[ "$1" = get_throttled ] && echo throttled=0x20002\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert firmware(tmp_path, tmp_path / "no-vcio") is None
    (tmp_path / "vcio").touch()
    found = firmware(tmp_path, tmp_path / "vcio")
    assert found is not None
    assert found()["frequency_capped", "now"]
    program.write_text("#!/bin/sh\nexit 255\n")
    assert found() == {}


def test_no_other_machine_has_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert firmware(tmp_path) is None


@pytest.mark.parametrize("is_set", [True, False])
def test_the_time_service_says_whether_the_clock_is_set(tmp_path: Path, is_set: bool) -> None:
    """Units of nodes forbid the query of the kernel."""
    if is_set:
        (tmp_path / "synchronized").touch()
    assert clock_synchronized(tmp_path) is is_set
