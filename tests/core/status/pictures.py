"""What a picture shows, compared as far as a test names it."""

from typing import Any

from core.status.view import RunView, described
from tests.shown import part


def picture(view: RunView) -> dict[str, Any]:
    """The picture as JSON; besides `roles` and `story` by task, the `log` by kind, and the samples
    of a `gap` in which none worked."""
    found = described(view)
    roles = [role for node in found["nodes"] for role in node["roles"]]
    story: dict[str, list[Any]] = {}
    for span in view.spans:
        times = [span.state, span.begin_seconds, span.end_seconds]
        story.setdefault(span.task, []).append(times)
    log: dict[str, list[str]] = {}
    for event in view.events:
        log.setdefault(event.kind, []).append(event.text)
    gap = [sample for sample in found["samples"] if not sample["live"]]
    found |= {"gap": gap, "story": story, "log": log}
    return {**found, "roles": {role["task"]: role for role in roles}}


def shows(view: RunView, **expected: Any) -> None:
    """Fails unless the picture has these values, of mappings these keys."""
    assert part(picture(view), expected) == expected
