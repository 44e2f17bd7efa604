"""The JavaScript libraries here are those that npm published, each with its licence."""

import shutil
from pathlib import Path

from tools import vendor_scripts


def test_the_files_are_those_on_the_list() -> None:
    assert vendor_scripts.differences() == []
    assert {script.licence for script in vendor_scripts.listed()} <= {"MIT", "0BSD"}


def test_what_was_changed_added_or_lost_is_found(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(vendor_scripts.FOLDER, tmp_path / "vendor"))
    with (folder / "htmx.min.js").open("a") as stream:
        stream.write(" ")
    (folder / "chart.LICENSE").unlink()
    (folder / "more.js").write_text("")
    found = vendor_scripts.differences(folder)
    assert len(found) == 3
    assert "htmx.org 2.0.11" in found[1] + found[0]
