"""What a node installs, and the keys that follow."""

import re

import pytest

from deploy.release.requirements import (
    INSTALLER,
    MACHINES,
    PYTHONS,
    Target,
    committed,
    environment_key,
    pins,
    text_for,
)
from tests.habits.leaks import PROJECT

DIGEST = "0" * 64
LIST = f"""\
# a comment
fast==1.0 ; python_full_version < '3.12' and platform_machine == 'aarch64' \\
    --hash=sha256:{DIGEST} \\
    --hash=sha256:{DIGEST[:-1]}1
fast==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:{DIGEST}
Plain_Name==1.0 \\
    --hash=sha256:{DIGEST}
uv==0.13.8 --hash=sha256:{DIGEST}
"""


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_committed_list_serves_every_kind_of_node(python: str, machine: str) -> None:
    names = {pin.name for pin in pins(committed(), Target(python, machine))}
    assert {"numpy", "psutil", "pydantic", INSTALLER} <= names
    assert ("tensorflow" if machine == "aarch64" else "tensorflow-cpu") in names
    assert not {"fabric", "paramiko", "pip", "pytest", "ruff"} & names


def test_the_nodes_uv_is_the_one_that_makes_the_environment_here() -> None:
    script = (PROJECT / "tools" / "make_venv.sh").read_text()
    wanted = re.search(r"^uv_version=(.*)$", script, re.MULTILINE)
    (installer,) = (
        pin for pin in pins(committed(), Target("3.11", "aarch64")) if pin.name == INSTALLER
    )
    assert wanted is not None
    assert installer.version == wanted[1]


def test_a_list_for_one_target_has_its_lines_without_markers() -> None:
    plain = f"plain-name==1.0 --hash=sha256:{DIGEST}\n"
    fast = f"fast==1.0 --hash=sha256:{DIGEST} --hash=sha256:{DIGEST[:-1]}1\n"
    uv = f"uv==0.13.8 --hash=sha256:{DIGEST}\n"
    assert text_for(LIST, Target("3.11", "aarch64"), installer=False) == fast + plain
    assert text_for(LIST, Target("3.11", "x86_64"), installer=True) == plain + uv


@pytest.mark.parametrize(
    "line", ["fast==1.0", f"fast>=1.0 --hash=sha256:{DIGEST}", f"fast --hash=sha256:{DIGEST}"]
)
def test_a_line_that_leaves_anything_open_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="expected NAME==VERSION"):
        pins(line, Target("3.11", "aarch64"))


def test_a_key_follows_what_counts_on_its_kind_of_node() -> None:
    def key(text: str) -> str:
        return environment_key(text, "3.11", "aarch64")

    assert re.fullmatch("[0-9a-f]{16}", key(LIST))
    for same in (LIST + "# more\n", LIST.replace("fast==2.0", "fast==2.1")):
        assert key(same) == key(LIST)
    assert key(LIST.replace("uv==0.13.8", "uv==0.13.9")) != key(LIST)
    kinds = [(python, machine) for python in PYTHONS for machine in MACHINES]
    assert len({environment_key(LIST, *kind) for kind in kinds}) == 6
