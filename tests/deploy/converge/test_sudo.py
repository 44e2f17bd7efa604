from typing import Any

from deploy.converge.survey import no_root
from tests.deploy.converge.tables import rows


@rows("sudo")
def test_each_refusal_of_sudo_has_its_own_remedy(row: Any) -> None:
    line = no_root("an.na", "rpi01", row["said"])
    assert row["said"] in line
    assert row["remedy"] in line
