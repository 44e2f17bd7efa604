"""A process gives up what it does not need: files, ports and signals (Landlock), calls (seccomp).

Neither needs a privilege, both hold for the thread that enters and for all that it starts, and
nothing takes them back. What a caged Python reads is here too: the system, its libraries, packages.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder around our packages: site-packages, or a checkout, which holds secrets and runs."""
SYSTEM = ("/usr", "/lib", "/lib64", "/proc", "/sys")
SETTINGS = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime"),
    *("hosts", "host.conf", "resolv.conf", "nsswitch.conf", "gai.conf", "services", "protocols"),
    *("passwd", "group", "os-release", "machine-id", "nvidia", "nv_tegra_release"),
)
"""Files in /etc that the loader, the C library and drivers read."""
RESOLVER_FOLDERS = ("/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/nscd")
"""Folders where /etc/resolv.conf may point."""
USUAL_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def system_paths() -> tuple[str, ...]:
    """Return what every program reads; a machine may lack some of it."""
    return (*SYSTEM, *(f"/etc/{name}" for name in SETTINGS))


def python_folders(package_names: Iterable[str]) -> Iterator[str]:
    """Yield the folders of Python, of the installed packages and of these of our own."""
    for name in package_names:
        yield str(ROOT / name)
    yield from {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(sys.executable)}
    tensorflow = find_spec("tensorflow")
    if tensorflow is not None and tensorflow.origin is not None:
        yield os.path.dirname(tensorflow.origin)
    for folder in sys.path:
        if os.path.basename(folder) in ("site-packages", "dist-packages"):
            yield folder
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if os.path.isabs(folder):
            yield folder
