"""The page's files, whom the service gives them to, and the link that a person opens."""

import ipaddress
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from core.ground.addresses import with_port
from deploy.common.project import environment_for_any_folder
from recognise.service import addresses
from recognise.service.page.files import STATIC
from tests.recognise.service.exports import export
from tests.recognise.service.running import Service, command, state_of

EXPORT = export


def get(running: Service, path: str, **headers: str) -> httpx.Response:
    """Without a token, as a browser asks for a page."""
    return httpx.get(f"http://{running.address}{path}", headers=headers, timeout=30)


def test_every_file_that_the_page_names_is_there_without_a_token(running: Service) -> None:
    page = get(running, "/")
    named = re.findall(r'(?:href|src)="(?P<path>[^"]+)"', page.text)
    scripts = [f"page/{path.name}" for path in STATIC.glob("*.js")]
    assert len(named) == 4
    for path in {*named, *scripts}:
        found = get(running, f"/{path}")
        assert found.status_code == 200
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["cross-origin-resource-policy"] == "same-origin"
    kind = get(running, "/page/phone.js").headers["content-type"]
    assert kind == "text/javascript; charset=utf-8"
    imported = {
        name
        for path in STATIC.glob("*.js")
        for name in re.findall(r'from "\./(.+)"', path.read_text())
    }
    assert imported < {path.name for path in STATIC.glob("*.js")}


def test_the_page_s_policy_lets_it_ask_this_service_alone(running: Service) -> None:
    policy = get(running, "/").headers["content-security-policy"]
    assert policy.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    )
    assert f"connect-src 'self' ws://{running.address} wss://{running.address};" in policy
    assert "frame-ancestors 'none'" in policy


def test_a_host_that_would_break_out_of_the_policy_is_left_out(running: Service) -> None:
    found = get(running, "/", Host="[fe80::1%a;x]")
    assert found.status_code == 200
    assert "connect-src 'self'; base-uri" in found.headers["content-security-policy"]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
def test_a_link_of_another_site_leads_to_the_page(running: Service, site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert get(running, "/", **headers).status_code == 200


def test_what_is_no_file_of_the_page_stays_closed(running: Service) -> None:
    for path, headers, status in (
        ("/v2", {}, 401),
        ("/v2", {"Origin": "https://example.org"}, 403),
        ("/", {"Host": "example.org"}, 421),
        ("/page/..%2ffiles.py", {}, 404),
        ("/page/files.py", {}, 404),
    ):
        assert get(running, path, **headers).status_code == status


def test_the_link_has_the_token_in_its_fragment_and_the_log_does_not(tmp_path: Path) -> None:
    export(tmp_path / "export")
    words = command(state_of(tmp_path), "--model", str(tmp_path / "export"), "--tls", "--link")
    with subprocess.Popen(
        words,
        env=environment_for_any_folder(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        serving, page, authority = (process.stdout.readline() for _ in range(3))
        base = serving.split()[5]
        token = (state_of(tmp_path) / "token").read_text().strip()
        assert page == f"page for a phone: {base}/#token={token}\n"
        found = re.fullmatch(
            rf"certificate for phones: {re.escape(base)}/authority\.crt \(SHA-256"
            r" (?P<print>[0-9A-F:]{95})\)\n",
            authority,
        )
        assert found is not None, authority
        got = httpx.get(f"{base}/authority.crt", verify=False)
        assert got.headers["content-type"] == "application/x-x509-ca-cert"
        assert got.content == (state_of(tmp_path) / "authority.crt").read_bytes()
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert token not in errors


def test_the_link_names_an_address_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [ipaddress.ip_address(text) for text in ("192.168.1.16", "fd00::2", "127.0.0.1")]
    monkeypatch.setattr(addresses, "private_addresses", lambda: own)
    listened = ("0.0.0.0", "::", "10.0.0.1", "::1")
    expected = ["192.168.1.16:1", "[fd00::2]:1", "10.0.0.1:1", "[::1]:1"]
    assert [with_port(addresses.reachable(each), 1) for each in listened] == expected
