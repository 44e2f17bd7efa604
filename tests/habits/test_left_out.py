"""What `.ci/run` leaves to `make test-long` exists by that name."""

import pytest

from tests.habits.leaks import PROJECT

pytestmark = pytest.mark.sources
LEFT_OUT = (PROJECT / ".ci" / "left_out").read_text().splitlines()


@pytest.mark.parametrize("line", LEFT_OUT)
def test_a_test_of_that_name_is_in_its_file(line: str) -> None:
    option, _, place = line.partition("=")
    file, _, name = place.partition("::")
    assert option == "--deselect"
    assert f"def {name.partition('[')[0]}(" in (PROJECT / file).read_text()
