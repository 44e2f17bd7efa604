"""Every script that a deployment sends, as shellcheck reads it; what they do is tried elsewhere."""

import subprocess

from core.inventory import Inventory
from deploy.converge.deployment import plan
from deploy.converge.recap import runs_script
from deploy.converge.subject import Shell
from deploy.converge.subjects import reset_script
from deploy.converge.survey import fact_script
from deploy.converge.systemd import interrupt_script, restart_script, stop_script
from tests.deploy.converge.pi import (
    Cluster,
    all_changes,
    machines_for,
    thesis,
    untouched_cluster,
)
from tests.habits import needs

ODD = (
    *("storage.mount=/mnt/a~b+c@d.e-f", "storage.export=/srv/übung", "ssh.user=a.b-c"),
    "deployment.node_exporter=true",
)


def scripts(inventory: Inventory, of_others: Cluster) -> dict[str, str]:
    """By what they do, for untouched nodes and for two that run something else."""
    machines = machines_for(inventory, "a" * 16)
    odd = ["a b'.service", "c.service"]
    made = {
        "ask": fact_script(machines.questions("rpi11")),
        "stop": stop_script(),
        "interrupt": interrupt_script(),
        "restart": restart_script(odd),
        "runs": runs_script(odd),
        "reset a worker's": reset_script(inventory, "rpi01", data=True),
        "reset": reset_script(inventory, "rpi11", data=True),
    }
    for facts in (untouched_cluster(inventory), of_others):
        for name, change in all_changes(plan(machines, facts)):
            for step in change.steps:
                if name in of_others and isinstance(step, Shell):
                    made[f"{name}: {step.what}"] = step.script
    return made


def test_shellcheck_finds_no_error_in_them(deployed: Cluster) -> None:
    words = [str(needs.tool("shellcheck")), "--shell=dash", "--severity=error", "--format=gcc", "-"]
    made = scripts(thesis(*ODD, rpi01="service"), deployed)
    assert len(made) > 40
    for script in {*made.values()}:
        done = subprocess.run(words, input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), script
