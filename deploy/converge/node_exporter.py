"""The node exporter: it runs where the inventory wants it, on a port of its own. Pure."""

from collections.abc import Sequence

from deploy.converge.change import Resource
from deploy.converge.listening import until_it_listens
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import RunningUnit
from deploy.converge.subject import DeploymentSpec, Found, NodeSpec, Subject
from deploy.render.firewall import NODE_EXPORTER_PORT
from deploy.render.units import NODE_EXPORTER as PACKAGE

UNIT = f"{PACKAGE}.service"


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    holder = facts.listening.get(NODE_EXPORTER_PORT)
    if not spec.inventory.deployment.node_exporter or holder is None:
        return
    unit = facts.unit(UNIT)
    if unit is None or not holder.startswith(f"process {unit.pid} "):
        line = f"port {NODE_EXPORTER_PORT} of the node exporter is taken by {holder}"
        yield "problem", "port", f"{line}: stop it, or set `deployment.node_exporter: false`"


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    if not spec.inventory.deployment.node_exporter:
        return ()
    return (RunningUnit(UNIT, until=until_it_listens(UNIT, NODE_EXPORTER_PORT)),)


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(units=(UNIT,), packages=(PACKAGE,))


NODE_EXPORTER = Subject(
    "node exporter", "services", check=_check, resources=_resources, questions=_questions
)
