"""The card of a node: whether it can be written, whether that lasts, whether it is a copy. Pure."""

from collections.abc import Mapping

from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Found, NodeAnswer, NodeSpec, Subject

_WRITTEN = ("/etc", "/opt", "/var/lib")
"""Folders that every deployment writes below."""
_NEW_KEYS = (
    "`sudo rm /etc/ssh/ssh_host_* && sudo dpkg-reconfigure openssh-server` there, then `fab deploy"
    " trust`"
)
_NEW_ID = (
    "`sudo rm -f /etc/machine-id /var/lib/dbus/machine-id && sudo systemd-machine-id-setup` there,"
    " and reboot"
)


def _script(questions: Questions) -> str:
    return f"""\
section unwritable; for folder in {quoted(*_WRITTEN)}; do [ -w $folder ] || echo $folder; done
section overlay; grep -owE 'boot=overlay|overlayroot=[^ ]+' /proc/cmdline 2>/dev/null
section machine_id; cat /etc/machine-id 2>/dev/null
section host_keys; awk '{{ print $2 }}' /etc/ssh/ssh_host_*_key.pub 2>/dev/null
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    return {
        "unwritable": tuple(answer.sections.get("unwritable", "").split()),
        "overlay": answer.sections.get("overlay", "").strip(),
        "machine_id": answer.sections.get("machine_id", "").strip(),
        "host_keys": frozenset(answer.sections.get("host_keys", "").split()),
    }


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    if facts.unwritable:
        line = (
            f"root cannot write below {', '.join(facts.unwritable)}: the file system is read-only"
        )
        remedy = (
            "`sudo dmesg | grep -i remount` says whether the kernel did that, as it does when a"
            " card fails"
        )
        yield "problem", "card", f"{line}; {remedy}"
    if facts.overlay:
        line = (
            f"an overlay file system ({facts.overlay} in /proc/cmdline) keeps what is written until"
            " the next boot"
        )
        yield "warning", "card", f"{line} alone: switch it off in `sudo raspi-config`, and reboot"


def clones(facts_by_node: Mapping[str, MachineFacts]) -> dict[str, list[str]]:
    """Return by node what it shares with another node by a copied card, with the remedy."""
    lines_by_node: dict[str, list[str]] = {}
    for name, facts in facts_by_node.items():
        other_nodes = {
            other: other_facts for other, other_facts in facts_by_node.items() if other != name
        }
        same_keys = [
            other
            for other, other_facts in other_nodes.items()
            if other_facts.host_keys & facts.host_keys
        ]
        same_id = [
            other
            for other, other_facts in other_nodes.items()
            if facts.machine_id and other_facts.machine_id == facts.machine_id
        ]
        if same_keys:
            line = (
                f"it has the SSH host key of {', '.join(same_keys)}, so that each can pose as the"
                " other"
            )
            lines_by_node.setdefault(name, []).append(f"{line}: {_NEW_KEYS}")
        if same_id:
            line = f"it has the machine-id of {', '.join(same_id)}, as a copied card has"
            lines_by_node.setdefault(name, []).append(f"{line}: {_NEW_ID}")
    return lines_by_node


CARD = Subject("card", "prepare", _script, _read, _check)
