"""A signer for tests: a real key, pinned on a played node or used to seed one."""

from pathlib import Path

from deploy.converge.code import statement_of_release
from deploy.release.code_wheel import CodeWheel
from deploy.release.extras import Lock
from deploy.release.scripts import install_environment, pin_signer, statement_of
from deploy.release.signing import Signer, _ssh_keygen
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.release.wheels import EXECUTABLE, run


def new_signer(folder: Path, name: str = "signer") -> Signer:
    """Make a key without a passphrase, once a folder and name."""
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = _ssh_keygen(["-q", "-t", "ed25519", "-N", "", "-f", str(path)])
        assert made.returncode == 0, made.stderr
    return Signer(path)


def pinning(signer: Signer, root: Path | str, former: Signer | None = None) -> str:
    """Return the script that pins a signer on the node whose disk is `root`."""
    signatures = signer.signatures((), former)
    return pin_signer(signatures.allowed, signatures.handover, root=str(root))


def signature_of(signer: Signer, code: CodeWheel, environment: str) -> str:
    """Sign a release."""
    return signer.sign(statement_of_release(code, environment))


def pinned(root: Path | str, keys: Path) -> Signer:
    """Pin a new signer on the node whose disk is `root`, and return it."""
    signer = new_signer(keys)
    run(pinning(signer, root))
    return signer


def installing(
    wheelhouse: Wheelhouse,
    wheels: Path | str,
    root: Path | str,
    python: str = EXECUTABLE,
    lock: Lock | None = None,
) -> str:
    """Return the script that installs an environment; the key that signs lies beside its wheels."""
    signer = new_signer(wheelhouse.folder.parent / "keys")
    signers = signer.path.with_name("signers")
    signers.write_text(f"{signer.allowed()}\n")
    return install_environment(
        wheelhouse,
        str(wheels),
        signature=signer.sign(statement_of(wheelhouse, lock)),
        root=str(root),
        python=python,
        lock=lock,
        signers=str(signers),
    )


def seeding(wheelhouse: Wheelhouse, wheels: str, work: Path) -> str:
    """Return the script that installs an environment and leaves no signer pinned."""
    signer = new_signer(work)
    install = install_environment(
        wheelhouse, wheels, signature=signer.sign(statement_of(wheelhouse))
    )
    pin = pinning(signer, "/opt/pscluster")
    unpin = "rm /opt/pscluster/signers /opt/pscluster/unsigned"
    # In shells of their own: each closes its stdin, from which this text may come.
    return f"set -e\n({pin}\n)\n({install}\n)\n{unpin}\n"
