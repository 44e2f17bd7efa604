"""What a node installs and switches to is what its pinned signer signed, by real ssh-keygen."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import UsageError
from core.inventory.sections import Deployment
from deploy.release.code_wheel import CodeWheel, code_key
from deploy.release.hashes import SUMS, file_sha256, parse_sums, sums_text
from deploy.release.scripts import (
    Refusal,
    install_environment,
    make_current,
    statement_of,
    unpack_release,
)
from deploy.release.signing import Signer, signatures_for
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.release.signed import new_signer, pinning, signature_of
from tests.deploy.release.wheels import EXECUTABLE, names, pure_wheel, refusal, run

ENVIRONMENT = "a" * 16


class Node:
    """A node's disk with one complete environment, and the operator who deploys to it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "opt"
        self.operator = new_signer(folder / "keys", "operator")
        self.stranger = new_signer(folder / "keys", "stranger")
        self._folder = folder
        home = self.root / "environments" / ENVIRONMENT
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(EXECUTABLE)
        (home / ".complete").touch()

    def code(self, text: str) -> CodeWheel:
        path = pure_wheel(self._folder / "wheels" / text, "code", text=text)
        return CodeWheel(path, code_key(path.read_bytes()), file_sha256(path), "1.0")

    def pin(self, signer: Signer, former: Signer | None = None) -> str:
        return pinning(signer, self.root, former)

    def unpacking(self, code: CodeWheel, signature: str) -> str:
        return unpack_release(code, ENVIRONMENT, signature=signature, root=str(self.root))

    def push(self, code: CodeWheel, signer: Signer) -> None:
        script = self.unpacking(code, signature_of(signer, code, ENVIRONMENT))
        run(script, code.path.read_bytes())

    def current(self, code: CodeWheel) -> str:
        return make_current(code.key, root=str(self.root))

    def unsign(self, code: CodeWheel) -> None:
        """Leave a release as an earlier version made it."""
        for name in (".statement", ".signature"):
            (self.root / "releases" / code.key / name).unlink()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def installing(
    wheelhouse: Wheelhouse, node: Node, signature: str, wheels: Path | None = None
) -> str:
    folder = wheels or wheelhouse.folder
    return install_environment(
        wheelhouse,
        str(folder),
        signature=signature,
        root=str(node.root),
        python=EXECUTABLE,
        signers=f"{node.root}/signers",
    )


def test_an_environment_is_installed_with_the_signature_of_the_pinned_signer(
    wheelhouse: Wheelhouse, node: Node
) -> None:
    signature = node.operator.sign(statement_of(wheelhouse))
    found, line = refusal(installing(wheelhouse, node, signature))
    assert found is Refusal.NOT_SIGNED
    assert "no signer is pinned" in line
    assert run(node.pin(node.operator)).changed
    assert run(installing(wheelhouse, node, signature)).changed


def refused(script: str, words: str, stdin: bytes = b"") -> None:
    found, line = refusal(script, stdin)
    assert found is Refusal.NOT_SIGNED
    assert words in line


def test_a_missing_foreign_or_borrowed_signature_installs_nothing(
    wheelhouse: Wheelhouse, node: Node
) -> None:
    run(node.pin(node.operator))
    statement = statement_of(wheelhouse)
    refused(installing(wheelhouse, node, ""), "is not signed")
    foreign = node.stranger.sign(statement)
    refused(installing(wheelhouse, node, foreign), "is not what the operator signed")
    other = node.operator.sign(statement.replace("pscluster", "another"))
    refused(installing(wheelhouse, node, other), "is not what the operator signed")
    refused(installing(wheelhouse, node, "not armoured"), "is not what the operator signed")
    of_mail = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-n", "email", "-f", node.operator.path],
        input=statement,
        capture_output=True,
        text=True,
        check=True,
    )
    refused(installing(wheelhouse, node, of_mail.stdout), "is not what the operator signed")
    assert names(node.root / "environments") == [ENVIRONMENT]


@pytest.mark.parametrize("resummed", [False, True])
def test_a_wheel_changed_after_the_signature_is_refused(
    wheelhouse: Wheelhouse, node: Node, tmp_path: Path, resummed: bool
) -> None:
    """Also where its list, and so the script, was changed with it: the signature is of the list."""
    run(node.pin(node.operator))
    signature = node.operator.sign(statement_of(wheelhouse))
    folder = Path(shutil.copytree(wheelhouse.folder, tmp_path / "changed"))
    (wheel,) = folder.glob("alpha-*.whl")
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    if resummed:
        sums = parse_sums(wheelhouse.sums()) | {wheel.name: file_sha256(wheel)}
        (folder / SUMS).write_text(sums_text(sums))
    changed = replace(wheelhouse, folder=folder)
    found, line = refusal(installing(changed, node, signature))
    if resummed:
        assert found is Refusal.NOT_SIGNED
    else:
        assert found is Refusal.HASH_MISMATCH
        assert wheel.name in line
    assert names(node.root / "environments") == [ENVIRONMENT]


def test_code_is_unpacked_with_its_signature_alone(node: Node) -> None:
    run(node.pin(node.operator))
    code = node.code("one")
    content = code.path.read_bytes()
    refused(node.unpacking(code, ""), "is not signed", content)
    signature = signature_of(node.operator, node.code("other"), ENVIRONMENT)
    refused(node.unpacking(code, signature), "is not what the operator signed", content)
    signature = signature_of(node.operator, code, "b" * 16)
    refused(node.unpacking(code, signature), "is not what the operator signed", content)
    assert not (node.root / "releases" / code.key).exists()
    node.push(code, node.operator)
    assert run(node.current(code)).changed


def test_a_switch_verifies_what_the_release_keeps(node: Node) -> None:
    run(node.pin(node.operator))
    one = node.code("one")
    two = node.code("two")
    for code in (one, two):
        node.push(code, node.operator)
    run(node.current(one))
    folder = node.root / "releases" / two.key
    statement = (folder / ".statement").read_text()
    for name in (".statement", ".signature"):
        shutil.copyfile(node.root / "releases" / one.key / name, folder / name)
    refused(node.current(two), f"release {two.key} with environment {ENVIRONMENT} is not what")
    (folder / ".statement").write_text(statement)
    refused(node.current(two), "is not what the operator signed")
    node.unsign(two)
    refused(node.current(two), "is not signed: `fab deploy start` from its checkout")
    statement = statement.strip()
    signature = node.operator.sign(statement)
    again = make_current(two.key, statement=statement, signature=signature, root=str(node.root))
    assert run(again).changed


def test_a_rollback_to_a_release_from_before_is_named(node: Node) -> None:
    """One that appears later without a signature is refused."""
    run(node.pin(node.operator))
    old = node.code("old")
    late = node.code("late")
    for code in (old, late):
        node.push(code, node.operator)
        node.unsign(code)
    shutil.move(node.root / "releases" / late.key, node.root / "late")
    (node.root / "signers").unlink()
    assert "unsigned" in run(node.current(old)).line
    run(node.pin(node.operator))
    shutil.move(node.root / "late", node.root / "releases" / late.key)
    new = node.code("new")
    node.push(new, node.operator)
    assert "unsigned" not in run(node.current(new)).line
    assert "unsigned" in run(node.current(old)).line
    refused(node.current(late), "is not signed")


def test_another_signer_is_pinned_where_the_former_hands_over(node: Node) -> None:
    assert "SHA256:" in run(node.pin(node.operator)).line
    code = node.code("one")
    node.push(code, node.operator)
    assert not run(node.pin(node.operator)).changed
    found, line = refusal(node.pin(node.stranger))
    assert found is Refusal.NOT_SIGNED
    assert line.count("SHA256:") == 2
    assert "deployment.former_signing_key" in line
    refused(node.pin(node.stranger, node.stranger), "the signer is not what the operator signed")
    assert run(node.pin(node.stranger, node.operator)).changed
    assert not run(node.pin(node.stranger)).changed
    refused(node.current(code), "is not what the operator signed")
    node.push(node.code("two"), node.stranger)
    assert run(node.current(node.code("two"))).changed


def test_the_account_s_own_key_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = Signer.of(Deployment())
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert first.path.parent.stat().st_mode & 0o777 == 0o700
    assert Signer.of(Deployment()).allowed() == first.allowed()


def test_a_key_of_the_inventory_signs_from_its_file_or_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    path = node.operator.path
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "a passphrase", "-f", path], check=True)
    deployment = Deployment(signing_key=str(path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(UsageError, match=r"cannot sign: .*passphrase.*ssh-add"):
        signatures_for(deployment, ["text"])
    with pytest.raises(UsageError, match=r"deployment.signing_key: .*no such file"):
        signatures_for(Deployment(signing_key=str(tmp_path / "none")), ["text"])
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as agent:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
            monkeypatch.setenv("SSH_ASKPASS", _answering(tmp_path))
            while not socket.exists():
                assert agent.poll() is None
            subprocess.run(["ssh-add", "-q", path], check=True, stdin=subprocess.DEVNULL)
            public = Deployment(signing_key=f"{path}.pub")
            for each in (deployment, public):
                assert signatures_for(each, ["text"]).of("text").startswith("-----BEGIN SSH")
        finally:
            agent.terminate()


def _answering(folder: Path) -> str:
    program = folder / "askpass"
    program.write_text("#!/bin/sh\necho a passphrase\n")
    program.chmod(0o755)
    return str(program)
