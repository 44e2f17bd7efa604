"""The templates, with everything escaped that comes from a run, and the filters they use."""

from datetime import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cluster.pages import numbers
from cluster.pages.panels import traffic

STATIC = Path(__file__).with_name("static")


def environment() -> Environment:
    """One for a process: it keeps the compiled templates."""
    made = Environment(
        loader=PackageLoader("cluster.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        count=numbers.count,
        figure=numbers.figure,
        percent=numbers.percent,
        short=numbers.short,
        amount=numbers.amount,
        duration=numbers.duration,
        label=numbers.label,
        traffic=traffic,
        moment=moment,
    )
    made.globals["inline"] = inline
    return made


def moment(time: str) -> str:
    """An ISO time as people read it: `2026-11-21 23:35:36 UTC`."""
    try:
        return datetime.fromisoformat(time).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return time


def inline(name: str) -> Markup:
    """A file of `static/` as it may stand between <script> or <style> tags of a page that has no server."""
    text = (STATIC / name).read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return Markup("\n".join(kept).replace("</script", r"<\/script").replace("</style", r"<\/style"))
