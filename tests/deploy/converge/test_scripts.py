"""Every script a deployment sends, as a shell and as shellcheck read it."""

import subprocess

import pytest

from cluster.inventory import Inventory
from deploy.converge.change import Shell
from deploy.converge.deployment import plan
from deploy.converge.fact_script import fact_script
from deploy.converge.reset import Traces, reset_script
from deploy.converge.systemd import interrupt_script, restart_script, stop_script
from tests.deploy.converge.pi import all_changes, converged, thesis, untouched_cluster, wish_for
from tests.habits import needs

ODD = ("storage.mount=/mnt/a~b+c@d.e-f", "storage.export=/srv/übung", "ssh.user=a.b-c", "deployment.node_exporter=true")


def scripts(inventory: Inventory) -> dict[str, str]:
    """By what they do, for an untouched cluster and for one that runs something else."""
    wish = wish_for(inventory)
    cluster, _ = converged(wish_for(inventory, "a" * 16), {})
    made = {
        "ask": fact_script(wish.questions("rpi11")),
        "stop": stop_script(),
        "interrupt": interrupt_script(),
        "restart": restart_script(["pscluster-ps-0.service"]),
        **{f"reset {name}": reset_script(Traces.of(inventory, data=True), name) for name in ("rpi01", "rpi11")},
    }
    for facts in (untouched_cluster(inventory), cluster):
        for name, change in all_changes(plan(wish, facts)):
            if name in ("rpi01", "rpi11"):
                made |= {f"{name}: {one.what}": one.script for one in change.steps if isinstance(one, Shell)}
    return made


@pytest.mark.parametrize("overrides", [(), ODD, ("deployment.firewall=false",)])
def test_a_shell_can_read_every_script(overrides: tuple[str, ...]) -> None:
    made = scripts(thesis(*overrides))
    assert len(made) > 40
    for what, script in made.items():
        done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), what


def test_shellcheck_finds_no_error_in_them() -> None:
    whole = scripts(thesis())
    for what in ("ask", "stop", "restart", "reset rpi11", *(name for name in whole if name.startswith("rpi11: "))):
        done = subprocess.run(
            [needs.tool("shellcheck"), "--shell=dash", "--severity=error", "--format=gcc", "-"],
            input=whole[what],
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{what}\n{done.stdout}"
