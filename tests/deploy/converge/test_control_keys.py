"""A role's node has that role's key alone, the coordinator's the token; plans show neither."""

import json
from dataclasses import replace

from core.control.client import key_of
from deploy.cluster.places import CONTROL_TOKEN, UNIT_FOLDER
from deploy.converge.deployment import plan
from deploy.converge.monitor import token_of
from tests.deploy.converge.pi import (
    PlayedPis,
    all_changes,
    machines_for,
    named,
    on_node,
)
from tests.deploy.converge.test_plan import small

TOKEN = "c3" * 32
OTHER = "d4" * 32
SMALL = machines_for(small(2))
WORKER = "pscluster-worker-0.service"
KEY = "/etc/pscluster/keys/worker-0"


def test_a_cluster_gets_its_secrets_and_keeps_them(pis: PlayedPis) -> None:
    # An installed cluster of the version before: no secret anywhere, and roles that run.
    before, _ = pis.deploy(SMALL, "pi-0", "pi-1")
    assert "LoadCredential" not in str(before["pi-1"].files[f"{UNIT_FOLDER}/{WORKER}"].content)
    fresh = token_of(SMALL.inventory, before)
    assert fresh not in (None, token_of(SMALL.inventory, before))
    secret = replace(SMALL, token=TOKEN)
    facts, plans = pis.deploy(secret, "pi-0", "pi-1", phases=("services",))
    assert f"restart {WORKER}" in on_node(plans, "pi-1"), "it takes its key by itself"
    shown = json.dumps([change.to_json() for _, change in all_changes(plans)])
    own = key_of(TOKEN, "worker:0")
    assert own is not None
    assert not [text for text in (TOKEN, own) if text in shown]

    key = facts["pi-1"].files[KEY]
    assert (key.content, key.mode, key.owner) == (f"{own}\n".encode(), 0o600, "root")
    assert KEY not in facts["pi-0"].files
    assert facts["pi-0"].files[CONTROL_TOKEN].mode == 0o600
    of_other_nodes = [file.content or b"" for file in facts["pi-1"].files.values()]
    assert not [text for text in of_other_nodes if TOKEN.encode() in text]
    unit = str(facts["pi-1"].files[f"{UNIT_FOLDER}/{WORKER}"].content)
    assert f"LoadCredential=key:{KEY}" in unit
    assert own not in unit
    job = str(facts["pi-0"].files[f"{UNIT_FOLDER}/pscluster-job@.service"].content)
    assert f"LoadCredential=token:{CONTROL_TOKEN}" in job

    assert token_of(SMALL.inventory, facts) == TOKEN, "another machine's `fab` finds it"
    assert token_of(SMALL.inventory, {"pi-1": facts["pi-1"]}) is None, "`--limit pi-1`"
    there = {"pi-1": facts["pi-1"]}
    assert named(plan(SMALL, there)["services"]["pi-1"]) == [], "and the node keeps what it has"
    other = plan(replace(SMALL, token=OTHER), there)
    assert f"restart {WORKER}" in on_node(other, "pi-1")
