"""systemd and the mounts of a played machine, and the files below its folder that keep their state.

The folder is the one that holds the folder of the command which runs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a deployment starts hundreds of these commands: what they import counts
    from collections.abc import Sequence
    from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
UNITS = f"{ROOT}/etc/systemd/system"


def read(path: str) -> str:
    try:
        with open(f"{ROOT}/{path}", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    with open(f"{ROOT}/{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{ROOT}/{path}.new", f"{ROOT}/{path}")


class State:
    """Units by name and installed packages."""

    def __init__(self) -> None:
        import json

        kept: dict[str, Any] = json.loads(read("state.json") or "{}")
        self.units: dict[str, dict[str, Any]] = kept.get("units", {})
        self.packages: dict[str, str] = kept.get("packages", {})
        self.next_pid: int = kept.get("next_pid", 1000)

    def keep(self) -> None:
        import json

        write("state.json", json.dumps(vars(self)))

    def unit(self, name: str) -> dict[str, Any] | None:
        """A unit that systemd knows.

        It reads the file of one that is named for the first time, and forgets one that does not
        run and has no file.
        """
        file_exists = os.path.exists(f"{UNITS}/{name}")
        known = self.units.get(name)
        if known is not None and known["read"] and not file_exists and not known.get("pid"):
            del self.units[name]
        if name not in self.units and file_exists:
            self.units[name] = {"active": "inactive", "enabled": "disabled", "read": of_files(name)}
        return self.units.get(name)

    def start(self, name: str) -> None:
        unit = self.unit(name)
        if unit is None or unit["enabled"] == "masked":
            sys.exit(f"Unit {name} not found or masked.")
        if unit["active"] == "active":
            return
        pid = self.next_pid
        self.next_pid += 1
        os.makedirs(f"{ROOT}/proc/{pid}")
        write(f"proc/{pid}/status", "RssAnon: 1000 kB\n")
        os.symlink(os.path.realpath(f"{ROOT}/opt/pscluster/current"), f"{ROOT}/proc/{pid}/cwd")
        unit |= {"active": "active", "pid": pid, "started": float(read("proc/uptime").split()[0])}

    def stop(self, name: str) -> None:
        unit = self.unit(name)
        if unit is not None:
            unit |= {"active": "inactive", "pid": 0}

    def running(self) -> list[tuple[str, int]]:
        return [(name, one["pid"]) for name, one in self.units.items() if one.get("pid")]


def of_files(name: str) -> str:
    """What a unit's file says now."""
    return read(f"etc/systemd/system/{name}")


def systemctl(words: Sequence[str]) -> int:
    if "--version" in words:
        print("systemd 252 (252.38-1~deb12u1)")
        return 0
    keys: list[str] = []
    plain: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-p":
            keys = rest.pop(0).split(",")
        elif not word.startswith("-"):
            plain.append(word)
    verb = plain[0]
    names = plain[1:]
    state = State()
    code = 0
    match verb:
        case "show":
            show(state, names, keys, values_only="--value" in words)
        case "list-unit-files":
            for name in sorted(os.listdir(UNITS)):
                if name.endswith(".service") and name.startswith(names[0].rstrip("*")):
                    print(name, "enabled")
        case "is-active":
            unit = state.unit(names[0])
            active = "inactive"
            if unit is not None:
                active = unit["active"]
            if "-q" not in words:
                print(active)
            code = 0 if active == "active" else 3
        case "daemon-reload":
            for name in list(state.units):
                if name.startswith("pscluster-") and not os.path.exists(f"{UNITS}/{name}"):
                    del state.units[name]
                else:
                    state.units[name] |= {"read": of_files(name)} | state.units[name].pop(
                        "links", {}
                    )
        case _:
            for name in names:
                offline = "--root=/" in words
                code = change_unit(state, verb, name, "--now" in words, offline) or code
    state.keep()
    return code


def change_unit(state: State, verb: str, name: str, now: bool, offline: bool) -> int:
    if name.endswith(("mount", ".timer")):
        return change_mount(verb, name)
    unit = state.unit(name)
    match verb:
        case "mask":
            state.units.setdefault(name, {"active": "inactive", "read": of_files(name)})
            state.units[name]["enabled"] = "masked"
        case "enable" if unit is not None and offline and unit["active"] != "inactive":
            unit["links"] = {"enabled": "enabled"}  # systemd holds the unit, and is not told
        case "enable" if unit is not None:
            unit["enabled"] = "enabled"
        case "disable" if unit is not None:
            unit["enabled"] = "disabled"
            if now:
                state.stop(name)
        case "start":
            state.start(name)
        case "restart":
            state.stop(name)
            state.start(name)
        case "try-restart" if unit is not None and unit["active"] == "active":
            state.stop(name)
            state.start(name)
        case "stop":
            state.stop(name)
        case "reload" | "reset-failed" | "try-restart":
            pass
        case _:
            print(f"Unit {name} does not exist", file=sys.stderr)
            return 1
    return 0


def show(state: State, names: Sequence[str], keys: Sequence[str], *, values_only: bool) -> None:
    blocks = []
    for name in names:
        unit = state.unit(name)
        said = {"Id": name, "LoadState": "not-found", "ActiveState": "inactive", "MainPID": "0"}
        if unit is not None:
            load = "masked" if unit["enabled"] == "masked" else "loaded"
            sub = "running" if unit["active"] == "active" else "dead"
            started = int(1e6 * unit.get("started", 0.0))
            said |= {
                "LoadState": load,
                "ActiveState": unit["active"],
                "SubState": sub,
                "UnitFileState": unit["enabled"],
                "NeedDaemonReload": "no" if unit["read"] == of_files(name) else "yes",
                "Result": "success",
                "MainPID": str(unit.get("pid", 0)),
                "ExecMainStartTimestampMonotonic": str(started),
            }
        shown = [said.get(key, "") if values_only else f"{key}={said.get(key, '')}" for key in keys]
        blocks.append("\n".join(shown))
    print("\n\n".join(blocks))


def fstab_line(point: str) -> list[str]:
    for line in read("etc/fstab").replace(ROOT, "").splitlines():
        words = line.split()
        if len(words) > 3 and words[1] == point and not line.startswith("#"):
            return words
    sys.exit(f"{point}: not in fstab")


def mounts() -> list[list[str]]:
    """Device, root, point, options, kind and source of each mount."""
    found = []
    for line in read("proc/self/mountinfo").splitlines():
        here, _, there = line.partition(" - ")
        words = here.split()
        found.append([*words[2:6], *there.split()[:2]])
    return found


def keep_mounts(found: Sequence[Sequence[str]]) -> None:
    lines = [
        f"{number} 1 {device} {root} {point} {options} - {kind} {source} rw"
        for number, (device, root, point, options, kind, source) in enumerate(found, 20)
    ]
    write("proc/self/mountinfo", "".join(f"{line}\n" for line in lines))
    write("proc/mounts", "".join(f"{one[5]} {ROOT}{one[2]} {one[4]} rw\n" for one in found))


def change_mount(verb: str, name: str) -> int:
    escaped, _, kind = name.rpartition(".")
    point = escaped.replace("%", "/").removeprefix(ROOT)
    found = mounts()
    there = [one for one in found if one[2] == point]
    if verb == "is-active":
        return 0 if there else 3
    if verb == "stop" and kind == "automount" and there:
        unmount(point)
    if verb == "start" and not there:
        source, _, _, options, *_ = fstab_line(point)
        access = "ro" if "ro" in options.split(",") else "rw"
        if kind == "automount":
            found.append(["0:40", "/", point, access, "autofs", "systemd-1"])
            target = f"{ROOT}/exported/{source.rpartition('/')[2]}"
        else:
            below = [one for one in found if f"{source}/".startswith(f"{one[2].rstrip('/')}/")]
            disk = max(below, key=lambda one: len(one[2]))
            inside = os.path.normpath(f"{disk[1].rstrip('/')}/{os.path.relpath(source, disk[2])}")
            found.append([disk[0], inside, point, access, disk[4], disk[5]])
            target = f"{ROOT}{source}"
        os.rmdir(f"{ROOT}{point}")
        os.symlink(target, f"{ROOT}{point}")
        keep_mounts(found)
    return 0


def unmount(point: str) -> None:
    found = mounts()
    last = max(number for number, one in enumerate(found) if one[2] == point)
    del found[last]
    if os.path.islink(f"{ROOT}{point}"):
        os.unlink(f"{ROOT}{point}")
        os.mkdir(f"{ROOT}{point}")
    keep_mounts(found)


def mount(words: Sequence[str]) -> int:
    """Mount what waits at a point, as the first look there does."""
    point = words[0].removeprefix(ROOT)
    source, _, kind, options, *_ = fstab_line(point)
    access = "ro" if "ro" in options.split(",") else "rw"
    keep_mounts([*mounts(), ["0:50", "/", point, access, kind, source]])
    return 0


def umount(words: Sequence[str]) -> int:
    unmount(words[-1].removeprefix(ROOT))
    return 0
