"""The event log: which events have a line there, and its words."""

from core.status import events
from core.status.events import Event
from core.status.parts import written

WORKER_LINES = {
    "joined": "joined",
    "suspected": "does not answer in time: suspected",
    "answers": "answers again",
    "left": "left the cluster",
    "drained": "was drained",
}


def line_of(event: Event, seconds: float) -> tuple[str, str] | None:
    """Kind and words of the event's line in the event log; None where it has none."""
    match event:
        case events.Noted(kind, text):
            return kind, text
        case events.Opened():
            return "run", f"{event.job} begins: run {event.run}"
        case events.StageBegan(name, total, unit):
            return "stage", f"{name}: {total:,} {unit}" if total else name
        case events.EpochEnded(stage, epoch, loss, validation=held_out):
            if held_out is None:
                headline = ""
            else:
                headline = f", validation {held_out.headline()}"
            return "stage", f"{stage}: epoch {epoch}, loss {written(loss)}{headline}"
        case events.StoppedEarly(stage, epoch):
            return "stage", f"{stage}: stopped early after epoch {epoch}: {event.why()}"
        case events.CheckpointWritten(taken, size, updates):
            return (
                "checkpoint",
                f"checkpoint of {updates:,} updates, {size / 1e6:.1f} MB in {taken:.2f} s",
            )
        case events.Diverged(reason):
            return "warning", f"diverged: {reason}"
        case events.FaultInjected(fault, target):
            return "fault", f"{fault} on {target}"
        case events.Calibrated(speeds):
            fastest = max(speeds.values(), default=0.0)
            return (
                "stage",
                f"calibrated {len(speeds)} workers, up to {fastest / 1e6:.1f} M samples/s",
            )
        case events.WorkerChanged(task, change) if change in WORKER_LINES:
            return change, f"{task} {WORKER_LINES[change]}"
        case events.Resumed(last):
            return (
                "resumed",
                (
                    f"another coordinator continues, {seconds - last:.0f} s after the last sign of"
                    " life"
                ),
            )
        case events.Ended(state, reason):
            return state, state if reason is None else f"{state}: {reason}"
    return None
