"""A disk that is missing, or too small, is found before a start."""

from typing import Any

from deploy.converge.storage import NOTE
from tests.deploy.converge.examined import found, roots
from tests.deploy.converge.tables import rows

SHARED = "/srv/pscluster"


def marked(mark: str) -> dict[str, Any]:
    """The files of the server after its first start, with this mark in its shared folder."""
    files = {NOTE: roots(f"{SHARED} a-mark\n")}
    if mark:
        files[f"{SHARED}/.pscluster-storage"] = roots(f"{mark}\n")
    return files


@rows("missing_disks")
def test_a_shared_folder_whose_disk_is_missing_is_not_taken_for_an_empty_one(row: Any) -> None:
    facts: dict[str, Any] = {"fstab": row.get("fstab", ())}
    if "mark" in row:
        facts["files"] = marked(row["mark"])
    missing = found("rpi11", **facts)["storage"]
    assert missing.level == "problem"
    assert row["says"] in missing.line
    assert found(**facts) == {}  # another node's disk is its owner's business
