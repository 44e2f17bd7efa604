"""The recognition service as pods: who reaches it, what it reads, how it comes and goes."""

from itertools import pairwise
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.render.firewall import NFS_PORT, NODE_EXPORTER_PORT, closed_ports
from deploy.render.kubernetes import KUSTOMIZATION, NETWORK_POLICIES, manifests
from deploy.render.serving_pods import FILE
from tests.deploy.render.test_kubernetes import BYTES, MINIMAL, VERSIONS, named, of
from tests.inventory.cases import machine, read

SERVING = MINIMAL.replace("roles: [worker]", "roles: [worker, service]")
ALLOWED = "service: {allow: [10.9.0.0/16, 10.0.0.7]}\n"
STORED = "storage: {external: 'nas.local:/volume1/x'}\n"


def documents(text: str, *overrides: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(of(text, *overrides)[FILE]))


def one(kind: str, text: str, *overrides: str, name: str = "small-service") -> dict[str, Any]:
    found: dict[str, Any] = named({FILE: of(text, *overrides)[FILE]}, kind, name)
    return found


def container(text: str, *overrides: str) -> dict[str, Any]:
    (found,) = one("Deployment", text, *overrides)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def following(words: list[str], flag: str) -> list[str]:
    return [after for word, after in pairwise(words) if word == flag]


def test_a_cluster_without_the_role_has_none_of_it() -> None:
    files = of(MINIMAL)
    assert FILE not in files
    assert FILE not in yaml.safe_load(files[KUSTOMIZATION])["resources"]
    assert FILE in yaml.safe_load(of(SERVING)[KUSTOMIZATION])["resources"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("more", ["", ALLOWED + STORED, "service: {tls: false, allow: [10.0.0.0/8]}\n"])
def test_every_document_has_the_schema_of_kubernetes(version: str, more: str) -> None:
    for document in documents(SERVING + more):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_kinds_that_a_service_needs() -> None:
    kinds = [document["kind"] for document in documents(SERVING + ALLOWED + STORED)]
    assert kinds == [
        *("Service", "Service", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget"),
        *("PersistentVolumeClaim", "PersistentVolume", "NetworkPolicy"),
    ]  # fmt: skip
    kinds = [document["kind"] for document in documents(SERVING)]
    assert not {"PersistentVolume", "NetworkPolicy"} & set(kinds)


def test_clients_reach_its_port_and_nothing_else() -> None:
    inventory = read(SERVING + ALLOWED, on=machine())
    policy = one("NetworkPolicy", SERVING + ALLOWED)["spec"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "service"
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.9.0.0/16"}}, {"ipBlock": {"cidr": "10.0.0.7/32"}}]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8470}]
    service = one("Service", SERVING + ALLOWED)["spec"]
    assert (service["type"], service["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert service["loadBalancerSourceRanges"] == ["10.9.0.0/16", "10.0.0.7/32"]
    assert [port["port"] for port in service["ports"]] == [8470]
    common = next(iter(yaml.safe_load_all(manifests(inventory, BYTES, 1)[NETWORK_POLICIES])))["spec"]["ingress"]
    opened = {
        port for each in common[0]["ports"] for port in range(each["port"], each.get("endPort", each["port"]) + 1)
    }
    assert opened == closed_ports(inventory) - {NFS_PORT, NODE_EXPORTER_PORT}
    assert {8470, 9204} <= opened


def test_without_clients_from_outside_only_pods_reach_it() -> None:
    assert one("Service", SERVING)["spec"]["type"] == "ClusterIP"
    assert "NetworkPolicy" not in {document["kind"] for document in documents(SERVING)}
    open_to_all = SERVING + ALLOWED + "deployment: {firewall: false}\n"
    assert "NetworkPolicy" not in {document["kind"] for document in documents(open_to_all)}


def test_a_client_stays_with_its_pod() -> None:
    """A recording of Sensor Logger is a session in the memory of one process."""
    assert one("Service", SERVING)["spec"]["sessionAffinity"] == "ClientIP"


def test_the_probes_ask_the_protocol_s_health() -> None:
    for more, scheme in (("", "HTTPS"), ("service: {tls: false}\n", "HTTP")):
        serving = container(SERVING + more)
        asked = {probe: serving[f"{probe}Probe"]["httpGet"] for probe in ("startup", "readiness", "liveness")}
        assert {probe: each["path"] for probe, each in asked.items()} == {
            "startup": "/v2/health/live",
            "readiness": "/v2/health/ready",
            "liveness": "/v2/health/live",
        }
        assert {(each["port"], each["scheme"]) for each in asked.values()} == {("clients", scheme)}
        assert [port["containerPort"] for port in serving["ports"]] == [8470, 9204]


def test_its_words_name_the_model_the_files_and_the_hosts() -> None:
    given = "model: steps, threads: 1, batch_milliseconds: 0.5, least_agreement: 0.9, names: [har.example.org]"
    words = container(f"{SERVING}service: {{{given}}}\n")["args"]
    assert words[0] == "recognise.service"
    assert following(words, "--name") == ["steps"]
    assert following(words, "--threads") == ["1"]
    assert following(words, "--batch-milliseconds") == ["0.5"]
    assert following(words, "--shadow-seconds") == ["10"]
    assert following(words, "--least-agreement") == ["0.9"]
    assert following(words, "--listen") == ["$(POD_IP)"]
    assert following(words, "--host-name") == [
        *("small-service", "small-service.pscluster", "small-service.pscluster.svc"),
        *("small-service.pscluster.svc.cluster.local", "har.example.org"),
    ]  # fmt: skip
    assert "--wait" in words
    assert "--certificate" in words
    assert "--certificate" not in container(SERVING + "service: {tls: false}\n")["args"]


def test_secrets_are_files_that_it_only_reads() -> None:
    pod = one("Deployment", SERVING)["spec"]["template"]["spec"]
    secrets = {volume["secret"]["secretName"]: volume["name"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {"small-service-token": "token", "small-service-tls": "tls"}
    (serving,) = pod["containers"]
    places = {mount["name"]: (mount["mountPath"], mount.get("readOnly", False)) for mount in serving["volumeMounts"]}
    assert following(serving["args"], "--token-file") == [f"{places['token'][0]}/token"]
    assert following(serving["args"], "--key") == [f"{places['tls'][0]}/tls.key"]
    assert following(serving["args"], "--versions") == [places["versions"][0]]
    assert (places["token"][1], places["tls"][1], places["versions"][1]) == (True, True, False)
    assert [variable["name"] for variable in serving["env"]] == ["POD_IP"]  # the cluster's token is not a client's
    assert "Secret" not in {document["kind"] for document in documents(SERVING)}


def test_it_can_gain_no_rights() -> None:
    pod = one("Deployment", SERVING)["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 890)
    (serving,) = pod["containers"]
    assert serving["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert serving["resources"]["limits"] == {"memory": "384Mi"}
    assert container(SERVING + "service: {memory_megabytes: 512}\n")["resources"]["limits"] == {"memory": "512Mi"}


def test_the_autoscaler_stays_between_its_nodes_and_all_nodes() -> None:
    both = SERVING.replace("roles: [ps, coordinator]", "roles: [ps, coordinator, service]")
    both += "  - {name: c, address: 10.0.0.3, roles: [worker]}\n"
    for text, least, most in ((SERVING, 1, 2), (both, 2, 3)):
        scaler = one("HorizontalPodAutoscaler", text)["spec"]
        assert (scaler["minReplicas"], scaler["maxReplicas"]) == (least, most)
        assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "small-service"}
        assert "replicas" not in one("Deployment", text)["spec"]  # which `kubectl apply` would set back
    assert one("PodDisruptionBudget", SERVING)["spec"]["maxUnavailable"] == 1
    update = one("Deployment", SERVING)["spec"]["strategy"]["rollingUpdate"]
    assert update == {"maxSurge": 1, "maxUnavailable": 0}


def test_all_pods_read_the_same_versions() -> None:
    claim = one("PersistentVolumeClaim", SERVING + STORED)["spec"]
    assert claim["accessModes"] == ["ReadWriteMany"]
    volume = one("PersistentVolume", SERVING + STORED)["spec"]
    assert volume["nfs"] == {"server": "nas.local", "path": "/volume1/x/service"}
    assert volume["claimRef"]["name"] == claim["volumeName"] == "small-service"
