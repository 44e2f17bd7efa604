"""`fab data`: published recordings from where they are published, and what recordings hold.

Both work in a process of the data's own room: `fab` reads no recordings.
"""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.commands.action import run_module, takes
from deploy.commands.flags import ActionFlags, JsonFlags, as_words, number, path, switch, text, word
from deploy.commands.opening import open_inventory
from deploy.commands.values import format_or_file, from_here

if TYPE_CHECKING:
    from core.inventory import TrainJob

MOST_DRAWN = 9


class FetchFlags(ActionFlags):
    """The flags of `data fetch`."""

    name: str = word("the set: hapt, uci-har or hhar", choices=("hapt", "uci-har", "hhar"))
    out: str | None = path("folder for the recordings; else the cache", read=from_here)
    sha256: str | None = text("the hash that the fetched file must have instead of the pinned one")
    quiet: bool = switch("no progress")


class ShowFlags(JsonFlags):
    """The flags of `data show`."""

    name: str = word("recordings: a path, or synthetic", is_path=True)
    format: str | None = text(
        "how they are written: a known format, or a YAML file", read=format_or_file
    )
    each: int = number("how many windows of each class are drawn, 0 to 9; 1", 0, MOST_DRAWN, 1)
    out: str | None = path("HTML page to write; else text is printed", read=from_here)
    draft: str | None = path("write a draft of their format to this file", read=from_here)
    force: bool = switch("replace a draft that is there")


@takes(FetchFlags)
def fetch(flags: FetchFlags) -> None:
    """Fetch a published set into the cache, where a training finds it: hapt, uci-har or hhar."""
    run_module("core.data.fetch", flags.name, *as_words(flags, "out", "sha256", "quiet"))


@takes(ShowFlags)
def show(flags: ShowFlags) -> None:
    """Show recordings: classes, people, channels, a few windows; or draft their format."""
    job = _job(flags)
    options = job.data.options()
    if flags.format is not None:
        options["format"] = flags.format
    arguments = [
        flags.name,
        f"--window-steps={job.data.window_steps}",
        f"--window-stride={job.data.window_stride}",
        f"--seed={job.seed}",
        f"--options={json.dumps(options)}",
        *as_words(flags, "each", "out", "draft", "force", "json_"),
    ]
    run_module("core.data.show", *arguments)


def _job(flags: ShowFlags) -> "TrainJob":
    """Return the settings of `jobs.train` of --inventory or the defaults, with --set."""
    if flags.inventory:
        return open_inventory(flags, as_written=True).jobs.train
    from core.inventory import load
    from core.inventory.templates import local_inventory

    with tempfile.TemporaryDirectory(prefix="pscluster-data-") as folder:
        file = Path(folder, "defaults.yaml")
        file.write_text(local_inventory(1, 1), encoding="utf-8")
        return load(file, flags.set_, check_interfaces=False).jobs.train
