"""aarch64 by emulation (`python -m tests.lab_kernel.emulated`), alone and beside x86_64.

The lock's own aarch64 wheels in an arm64 Debian 12, run by qemu-aarch64-static as a Cortex-A53. A
user namespace has a binfmt_misc of its own (Linux 6.7), so this machine's stays unchanged.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from deploy.common.project import ROOT
from deploy.release.code_wheel import build_code_wheel, uv_executable
from tests.lab.commands import APART, LabError, run
from tests.lab.environment import PYTHON
from tests.lab.image import SUITE, locked
from tests.lab.places import CGROUPS, cache_folder
from tests.lab_kernel.requirements import why_not_emulated
from tests.lab_kernel.seeded import wheelhouse

PACKAGES = (
    "base-files,base-passwd,bash,dash,coreutils,findutils,grep,sed,python3,libstdc++6,libgcc-s1,"
    "libc-bin,netbase"
)
ROLES = ("ps", "worker", "coordinator")
MEMORY_BYTES = 1 << 30
LIMIT_SECONDS = 7200


def main() -> int:
    """The exit code of `bits`, which runs in namespaces of its own."""
    if reason := why_not_emulated():
        print(f"no emulated cluster here, skipped: {reason}")
        return 0
    root = system()
    shutil.rmtree(root / "opt/pscluster/current", ignore_errors=True)
    code = build_code_wheel(root=ROOT, cache=ROOT / ".cache")
    with zipfile.ZipFile(code.path) as archive:
        archive.extractall(root / "opt/pscluster/current")
    groups = CGROUPS / "memory" / "pscluster-emulated"
    try:
        for role in ROLES:
            (groups / role).mkdir(parents=True, exist_ok=True)
            (groups / role / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
        code_of_run = subprocess.run(
            [
                *APART,
                "--net",
                "--mount-proc",
                sys.executable,
                "-m",
                "tests.lab_kernel.bits",
                str(root),
                str(groups),
            ],
            cwd=ROOT,
            check=False,
            timeout=LIMIT_SECONDS,
        ).returncode
        for role in ROLES:
            peak = int((groups / role / "memory.max_usage_in_bytes").read_text())
            print(
                f"{role}: peak {peak >> 20} MiB of {MEMORY_BYTES >> 20} MiB, with the"
                " emulator's own"
            )
        return code_of_run
    finally:
        for role in ROLES:
            (groups / role).rmdir()
        groups.rmdir()


def system() -> Path:
    """The arm64 system with the environment, cached."""
    wheels = wheelhouse("aarch64")
    folder = cache_folder() / f"emulated-{wheels.key}"
    with locked(folder):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            run("rm", "-rf", partial)
            # Only unpacked: none of its programs runs before the emulator is there.
            extract = ("mmdebstrap", "--quiet", "--variant=extract", "--arch=arm64")
            run(*extract, f"--include={PACKAGES}", SUITE, partial)
            packages = partial / "opt/pscluster/environment/lib" / f"python{PYTHON}/site-packages"
            locked_alone = f"""
                pip install --no-cache --target {packages} --python {sys.executable}
                --python-version {PYTHON} --python-platform aarch64-manylinux_2_36 --no-index
                --find-links {wheels.folder} --no-deps --require-hashes --only-binary :all:
                -r {wheels.folder / "requirements.txt"}
            """
            run(uv_executable(), *locked_alone.split())
            partial.rename(folder)
    return folder


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as problem:
        print(f"emulated: {problem}", file=sys.stderr)
        sys.exit(1)
