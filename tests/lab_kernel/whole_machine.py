"""A whole aarch64 machine (`python -m tests.lab_kernel.whole_machine`): its kernel holds the cages.

qemu-system-aarch64 emulates a Cortex-A53 with Debian's kernel. The system of `emulated` and this
checkout are in its memory. It trains to the bits of this machine, and the graphs of
`tests.core.server.graph_attacks` get at nothing outside of a role.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.common.project import ROOT
from tests.lab.commands import LabError, run
from tests.lab.environment import PYTHON
from tests.lab.image import SUITE
from tests.lab.places import cache_folder
from tests.lab_kernel.emulated import system
from tests.lab_kernel.inside_machine import DIGEST, trained
from tests.lab_kernel.requirements import why_no_whole_machine

KERNEL_SUITE = "trixie"
"""Linux 6.12: Landlock's ABI 6, the first that covers signals and abstract sockets."""
PROGRAMS = "util-linux,libcap-ng0,mount,iproute2,libcap2,libbpf1,libelf1,libmnl0"
PURE = ("pytest", "_pytest", "pluggy", "iniconfig", "pygments", "py.py")
"""Packages of this environment that the tests import."""
MEMORY = "7G"
LIMIT_SECONDS = 7200


def main() -> int:
    """Zero where the machine's own run ended well and with the bits of this machine."""
    if reason := why_no_whole_machine():
        print(f"no whole machine here, skipped: {reason}")
        return 0
    expected = trained("single")
    print(f"{DIGEST} {expected}, single, on this machine", flush=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        lines = booted(*built(Path(folder)))
    if "done" not in lines:
        raise LabError("the machine stopped before it was done")
    if f"{DIGEST} {expected}" not in lines:
        raise LabError(f"expected the bits {expected}")
    return 0


def built(folder: Path) -> tuple[Path, Path]:
    """The kernel, and a cpio archive of the whole system."""
    tree = folder / "tree"
    run("cp", "-a", system(), tree)
    extract = ("mmdebstrap", "--quiet", "--variant=extract", "--arch=arm64")
    run(*extract, f"--include={PROGRAMS}", SUITE, folder / "programs")
    run("cp", "-a", f"{folder / 'programs'}/.", tree)
    run(*extract, "--include=linux-image-arm64", KERNEL_SUITE, folder / "kernel")
    packages = tree / "opt/pscluster/environment/lib" / f"python{PYTHON}" / "site-packages"
    for name in PURE:
        run("cp", "-r", Path(sys.prefix, "lib", f"python{PYTHON}", "site-packages", name), packages)
    checkout = tree / "opt/pscluster/checkout"
    checkout.mkdir()
    run("sh", "-c", f"git -C '{ROOT}' archive HEAD | tar -x -C '{checkout}'")
    paths = tree / "usr/lib/python3/dist-packages/pscluster.pth"
    paths.write_text(f"/{packages.relative_to(tree)}\n/{checkout.relative_to(tree)}\n")
    shutil.copy(Path(__file__).with_name("emulated_files") / "init", tree / "init")
    archive = folder / "system.cpio"
    run("sh", "-c", f"cd '{tree}' && find . -print0 | cpio -0 -o -H newc --quiet >'{archive}'")
    shutil.rmtree(tree)
    (kernel,) = (folder / "kernel/boot").glob("vmlinuz-*")
    return kernel, archive


def booted(kernel: Path, archive: Path) -> list[str]:
    """What the machine printed, which is shown as it comes."""
    words = f"""\
        timeout {LIMIT_SECONDS} qemu-system-aarch64 -M virt -cpu cortex-a53 -smp 2 -m {MEMORY}
        -nographic -no-reboot -net none -kernel {kernel} -initrd {archive} -append
    """
    lines = []
    with subprocess.Popen(
        [*words.split(), "console=ttyAMA0 quiet rdinit=/init panic=1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as machine:
        assert machine.stdout is not None
        for line in machine.stdout:
            lines.append(line.strip())
            print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as problem:
        print(f"whole machine: {problem}", file=sys.stderr)
        sys.exit(1)
