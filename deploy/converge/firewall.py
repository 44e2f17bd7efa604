"""The firewall of a node: the loaded table, the way in that it must not close, the new rules, the undo. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.common.command_line import quoted
from deploy.common.texts import filled
from deploy.converge.change import Change, Reconnect, Shell, Upload, text_diff
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Found, NodeAnswer, NodeWish, Subject
from deploy.render import firewall
from deploy.rooted.commands import make_folder

ROLLBACK_SECONDS = 60


def _undo() -> str:
    return f"""\
systemctl stop pscluster-firewall-undo.timer 2>/dev/null
nft delete table inet {firewall.TABLE} 2>/dev/null
rm -f /run/pscluster-firewall.before
"""


def _script(questions: Questions) -> str:
    return f"""\
section firewall
command -v nft >/dev/null && nft list table inet {firewall.TABLE} 2>/dev/null | grep -o 'pscluster [0-9a-f]*'
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    words = answer.sections["firewall"].split()
    return {"firewall": words[-1] if words else None}


def _check(wish: NodeWish, facts: MachineFacts) -> Found:
    """The port that is logged into may be another machine's, which passes it on: who listens here counts."""
    inventory = wish.inventory
    ssh_port = inventory.node(wish.name).ssh.port or inventory.ssh.port
    # With socket activation it is systemd that listens.
    ways = {
        port
        for port, holder in facts.listening.items()
        if "(sshd" in holder or ("(systemd" in holder and port == ssh_port)
    }
    if inventory.deployment.firewall and ways and ways <= firewall.closed_ports(inventory):
        ports = ", ".join(map(str, sorted(ways)))
        line = f"the SSH server listens on port {ports} alone, which the firewall will close to all but the nodes"
        yield "problem", "ssh", f"{line}: give the cluster's processes other ports (`ports`), or sshd another"


@dataclass(frozen=True)
class Firewall:
    """The nftables table. Should the new rules keep us out, the old ones come back after a minute by themselves."""

    rules: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Load and keep the rules, unless those very rules are loaded and kept."""
        now = facts.files.get(firewall.PATH)
        before = None if now is None else now.content
        if before == self.rules.encode() and facts.firewall == firewall.loaded_mark(self.rules):
            return ()
        trial = f"{firewall.PATH}.trial"
        load = filled("converge/firewall_load.sh", trial=trial, firewall=firewall, rollback_seconds=ROLLBACK_SECONDS)
        keep = (
            f"systemctl stop pscluster-firewall-undo.timer; mv -f {trial} {firewall.PATH}; "
            "rm -f /run/pscluster-firewall.before"
        )
        steps = (
            Shell("make /etc/pscluster", quoted(*make_folder("/etc/pscluster"))),
            Upload("write the new rules", self.rules.encode(), trial),
            Shell(
                "load the new rules, to be undone in a minute",
                load,
                hint=f"nft refuses them: `sudo nft -c -f {trial}` there says why",
            ),
            Reconnect("log in again through the new rules"),
            Shell("keep the new rules", keep),
        )
        detail = "only the inventory's addresses reach the cluster's ports"
        diff = text_diff(firewall.PATH, before, self.rules.encode())
        return (Change("firewall", firewall.TABLE, "create" if now is None else "change", detail, steps, diff),)


FIREWALL = Subject("firewall", "firewall", _script, _read, _check, undo=_undo)
