"""The units as systemd reads them, and what their texts beside this file cannot show."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from deploy.cluster.places import CURRENT, UNIT_FOLDER
from deploy.render import units
from tests.core.inventory.cases import read
from tests.deploy.converge.pi import thesis
from tests.deploy.render.rendered import ENCRYPTED, FULL, ODD, unit_texts
from tests.deploy.tables import Tables
from tests.habits import needs
from tests.hang import HANG_SECONDS

rows = Tables(__file__)

PROGRAMS = (
    *(f"{CURRENT}/environment/bin/python", "/usr/sbin/nft"),
    *("/usr/bin/prometheus", "/usr/bin/promtool", "/usr/bin/wireguard-go", "/usr/sbin/ip"),
)


@pytest.fixture
def unit_folder(tmp_path: Path) -> Path:
    """The units as files, of a program that is on this machine and an account that is."""
    needs.tool("systemd-analyze")
    texts = {"odd": ODD, "full": FULL, "encrypted": ENCRYPTED}
    inventories = {name: read(text) for name, text in texts.items()}
    for name, inventory in {"thesis": thesis(), **inventories}.items():
        (tmp_path / name).mkdir()
        for file, text in unit_texts(inventory).items():
            kept = re.sub("|".join(map(re.escape, PROGRAMS)), "/bin/true", text)
            kept = re.sub("User=pscluster.*", "User=root", kept)
            (tmp_path / name / file).write_text(kept, encoding="utf-8")
    return tmp_path


def analyzed(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemd-analyze", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


@rows("inventory")
def test_systemd_understands_every_line(unit_folder: Path, inventory: str) -> None:
    folder = unit_folder / inventory
    names = sorted(path.name.replace("@", "@one") for path in folder.iterdir())
    done = analyzed("verify", *names, folder=folder)
    ours = [line for line in done.stderr.splitlines() if "pscluster" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize(
    ("job", "state", "links"),
    [
        ("20260101T0000-task", "stopping", [1, 1]),
        ("20260101T0000-task-2", "running", [1, 0]),
        ("20260101T0000-train", "running", [0, 0]),
    ],
)
def test_a_runner_starts_at_boot_until_it_ends(
    tmp_path: Path, job: str, state: str, links: list[int]
) -> None:
    """Not where the node goes down: that is what it comes back after."""
    systemctl = needs.tool("systemctl")
    text = units.job_unit(thesis(), coordinates=False)
    folder = tmp_path / UNIT_FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    (folder / units.JOB_UNIT).write_text(text)
    played = f"""#!/bin/sh
    [ "$1" != is-system-running ] || exec echo {state}
    [ "$1" = --root=/ ] && shift && exec {systemctl} --root={tmp_path} "$@"
    """
    (tmp_path / "systemctl").write_text(played)
    (tmp_path / "systemctl").chmod(0o755)
    counts = []
    for line in re.findall(r"^ExecSt(?:art|op)Post=-\+(.*)$", text, re.MULTILINE):
        command = line.replace("%i", job).replace("%n", units.unit_of_job(job)).replace("$$", "$")
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(shlex.split(command), env=environment, check=True, timeout=HANG_SECONDS)
        counts.append(len(list(folder.glob("*.wants/pscluster-job*"))))
    assert counts == links


@rows("inventory", "kind", "tenths")
def test_exposure_is_at_most(unit_folder: Path, inventory: str, kind: str, tenths: int) -> None:
    """With the drop-in of all units. `full` opens the files of a GPU, which count as exposed."""
    path = unit_folder / inventory / f"pscluster-{kind}.service"
    path.write_text(path.read_text().replace("User=root", "User=pscluster"))
    drop_in = unit_folder / inventory / "pscluster-.service.d/10-addresses.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(units.addresses_drop_in(read(ODD)))
    done = analyzed(
        *("security", "--offline=true", f"--threshold={tenths}", "--no-pager", str(path)),
        folder=unit_folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
