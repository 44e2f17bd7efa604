"""What a Raspberry Pi's firmware says, in words that real ones gave."""

import stat
from pathlib import Path

import pytest

from cluster.metrics.node import Throttling, conditions, firmware, parse

NOW = {("under_voltage", "now"), ("frequency_capped", "now"), ("throttled", "now"), ("soft_temperature_limit", "now")}


def held(bits: int) -> set[tuple[str, str]]:
    return {key for key, holds in conditions(bits).items() if holds}


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x0, set()),
        (0x50000, {("under_voltage", "boot"), ("throttled", "boot")}),  # a weak supply, some time ago
        (0x50005, {(name, since) for name in ("under_voltage", "throttled") for since in ("now", "boot")}),
        (0x20002, {("frequency_capped", "now"), ("frequency_capped", "boot")}),
        (0xE0008, {("soft_temperature_limit", "now"), ("frequency_capped", "boot"), ("throttled", "boot"),
                   ("soft_temperature_limit", "boot")}),  # a hot Pi 3B+: 60 degrees are its soft limit
        (0xF000F, {*NOW, *((name, "boot") for name, _ in NOW)}),
    ],
)  # fmt: skip
def test_bits(bits: int, expected: set[tuple[str, str]]) -> None:
    assert held(bits) == expected
    assert len(conditions(bits)) == 8


def test_both_ways_to_write_it_are_read_and_nothing_else() -> None:
    assert parse("throttled=0x50005\n") == parse("50005\n") == parse("0x50005") == 0x50005
    assert parse("0\n") == parse("throttled=0x0\n") == 0
    assert parse("VCHI initialization failed\n") is parse("") is None


def test_what_once_was_stays_though_the_kernel_makes_the_firmware_forget() -> None:
    answers = iter(["0", "50005", "0", "broken"])
    throttling = Throttling(lambda: next(answers))
    assert not any(throttling().values())
    assert throttling()["under_voltage", "now"]
    later = throttling()
    assert not later["under_voltage", "now"]
    assert later["under_voltage", "boot"]
    assert not later["frequency_capped", "boot"]
    assert throttling() == {}


@pytest.mark.parametrize("folder", ["soc/soc:firmware", "soc@107c000000/soc@107c000000:firmware"])
def test_the_kernel_s_file_is_found_on_every_pi(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "get_throttled").write_text("50000\n")
    found = firmware(tmp_path)
    assert found is not None
    assert found()["under_voltage", "boot"]


def test_vcgencmd_where_the_kernel_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "vcgencmd"
    program.write_text('#!/bin/sh\n[ "$1" = get_throttled ] && echo throttled=0x20002\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
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
