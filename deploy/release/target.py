"""The kinds of node there are: a Python version and a machine, with the markers and wheel tags that follow."""

from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags

PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("aarch64", "x86_64")
OLDEST_GLIBC_MINOR = 17
NEWEST_GLIBC_MINOR = 36
"""glibc 2.36 is Debian 12's and so the Raspberry Pi OS of the oldest supported Python, 3.11."""


@dataclass(frozen=True)
class Target:
    """A kind of node, by Python version `3.11` (or `3.11.2`) and machine `aarch64`."""

    python: str
    machine: str

    @property
    def short_python(self) -> str:
        """The version without its last figure: wheels and environments do not tell 3.11.2 from 3.11.9."""
        return ".".join(self.python.split(".")[:2])

    def environment(self) -> dict[str, str]:
        """Values of the marker variables on this target."""
        full = self.python if self.python.count(".") > 1 else f"{self.python}.0"
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "6.1",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": full,
            "python_version": self.short_python,
            "sys_platform": "linux",
        }

    def platforms(self) -> tuple[str, ...]:
        """Platform tags, the newest glibc first: an installer takes each one by name and derives no older ones."""
        minors = range(NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR - 1, -1)
        manylinux = tuple(f"manylinux_2_{minor}_{self.machine}" for minor in minors)
        older = ("2014", "2010", "1") if self.machine == "x86_64" else ("2014",)
        return (*manylinux, *(f"manylinux{year}_{self.machine}" for year in older), f"linux_{self.machine}")

    def tags(self) -> frozenset[Tag]:
        """Wheel tags that an installer accepts on this target."""
        major, minor = (int(part) for part in self.short_python.split("."))
        platforms = self.platforms()
        return frozenset(
            [
                *cpython_tags((major, minor), platforms=platforms),
                *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
            ]
        )
