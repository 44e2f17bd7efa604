"""A RunState as records, one JSON object each, and back. Pure.

| record | what |
|---|---|
| `begin` | the run, its cluster and nodes: the first record, and again from each coordinator |
| `event`, `sample`, `span`, `epoch`, `pi` | the views of these names; spans once they have ended |
| `figures` | of one split, with its confusion matrix |
| `facts` | all that is only a number now: counters, progress, spans that last; the latest counts |
| `resumed`, `end` | another coordinator goes on; the job has ended |
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from math import isfinite
from typing import Any

from cluster.status.events import iso
from cluster.status.state import RunState
from cluster.status.training import Training
from cluster.status.view import (
    SCHEMA,
    ConfusionView,
    EpochView,
    EventView,
    NodeView,
    PiPoint,
    ProgressView,
    RoleView,
    SampleView,
    SpanView,
)

Record = dict[str, Any]
NOT_OURS = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What a record of another version, or a damaged one, may raise."""


def begin(state: RunState) -> Record:
    """The record that comes first."""
    return {
        "record": "begin",
        "schema": SCHEMA,
        "cluster": state.cluster,
        "run": state.run,
        "job": state.job,
        "started": iso(state.started),
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "tasks": [task for task, place in state.places.items() if place == node.name],
            }
            for node in state.nodes
        ],
        "train": state.training.facts() if state.training is not None else None,
        "planned_samples": state.planned_samples,
    }


def facts(state: RunState, seconds: float) -> Record:
    """The record of all that is only a number now."""
    return {
        "record": "facts",
        "seconds": seconds,
        "interval_seconds": state.samples.interval_seconds,
        "progress": asdict(state.progress) if state.progress is not None else None,
        "roles": {
            role.task: {
                "windows": role.windows,
                "departures": role.departures,
                "step_seconds": role.view().step_seconds,
                "memory_bytes": role.memory_bytes,
            }
            for role in state.roles.values()
        },
        "processors": {node.name: node.processor for node in state.nodes},
        "spans": [asdict(span) for span in state.spans.lasting()],
        "train": state.training.facts() if state.training is not None else None,
        "pi": asdict(state.estimates.latest) if state.estimates.latest is not None else None,
    }


def everything(state: RunState, seconds: float) -> list[Record]:
    """Records that come to the same state, without what was thinned out."""
    confusion = state.confusion
    found: list[Record] = [begin(state)]
    found += [{"record": "event", **asdict(event)} for event in state.log.kept]
    found += [{"record": "sample", **asdict(sample)} for sample in state.samples.kept]
    found += [{"record": "span", **asdict(span)} for span in state.spans.closed()]
    found += [{"record": "epoch", **asdict(epoch)} for epoch in (state.training.epochs if state.training else ())]
    found += [{"record": "pi", **asdict(point)} for point in state.estimates.kept]
    for split, figures in state.figures.items():
        shown = asdict(confusion) if confusion is not None and confusion.split == split else None
        found.append({"record": "figures", "split": split, "confusion": shown, "figures": figures})
    found.append(facts(state, seconds))
    if state.ended_seconds is not None:
        found.append({"record": "end", "state": state.state, "reason": state.reason, "seconds": state.ended_seconds})
    return found


def state_of(records: Iterable[Record]) -> tuple[RunState, float] | None:
    """The state that the records tell of, and the latest second that they know; None without a beginning."""
    kept = list(records)
    beginnings = [record for record in kept if record.get("record") == "begin"]
    try:
        first, last = beginnings[0], beginnings[-1]
        nodes = [
            NodeView(node["name"], node["address"], tuple(RoleView(task, "unknown") for task in node["tasks"]))
            for node in last["nodes"]
        ]
        training = Training(last["train"]["mode"], last["train"]["model"]) if last["train"] else None
        if training is not None:
            training.take(last["train"])
        state = RunState(
            last["cluster"], last["job"], nodes, datetime.fromisoformat(first["started"]), training,
            last["planned_samples"],
        )  # fmt: skip
        state.run, state.state = str(last["run"]), "running"
    except NOT_OURS:
        return None
    return state, take(state, kept)


def take(state: RunState, records: Iterable[Record]) -> float:
    """Apply what the records tell to a state in which nothing has happened; the latest second that they know.

    A record that cannot be understood is left out.
    """
    latest = 0.0
    for record in records:
        try:
            latest = max(latest, _apply(state, dict(record)))
        except NOT_OURS:
            continue
    state.records.clear()
    return latest


def _apply(state: RunState, record: Record) -> float:
    match record.pop("record"):
        case "event":
            event = EventView(**record)
            state.log.add(event)
            return float(event.seconds)
        case "sample":
            sample = SampleView(**record)
            state.samples.add(sample)
            return float(sample.seconds)
        case "span":
            span = SpanView(**record)
            state.spans.forget(span.task)
            state.spans.add(span)
            return float(span.end_seconds or 0.0)
        case "epoch":
            epoch = EpochView(**record)
            if state.training is not None:
                state.training.add_epoch(epoch)
            state.figures["train"] = {"loss": epoch.loss, "accuracy": epoch.accuracy}
            return float(epoch.seconds)
        case "pi":
            point = PiPoint(**record)
            state.estimates.add(point)
            return float(point.seconds)
        case "figures":
            state.figures[str(record["split"])] = {str(key): float(value) for key, value in record["figures"].items()}
            if record["confusion"] is not None:
                state.confusion = _confusion(record["confusion"])
        case "facts":
            return _take_facts(state, record)
        case "resumed":
            state.state, state.reason, state.ended_seconds = "running", None, None
            return float(record["seconds"])
        case "end":
            state.close(record["state"], record["reason"], float(record["seconds"]))
            return float(record["seconds"])
    return 0.0


def _confusion(facts: Mapping[str, Any]) -> ConfusionView:
    rows = tuple(tuple(int(count) for count in row) for row in facts["rows"])
    return ConfusionView(str(facts["split"]), tuple(facts["labels"]), rows, facts["epoch"])


def _take_facts(state: RunState, record: Mapping[str, Any]) -> float:
    state.samples.interval_seconds = max(state.samples.interval_seconds, float(record["interval_seconds"]))
    state.progress = ProgressView(**record["progress"]) if record["progress"] else None
    for task, known in record["roles"].items():
        role = state.roles.get(task)
        if role is None:
            continue
        role.windows = role.sampled_windows = int(known["windows"])
        role.departures, role.memory_bytes = int(known["departures"]), known["memory_bytes"]
        role.step_seconds.clear()
        if known["step_seconds"] is not None:
            role.step_seconds.append(float(known["step_seconds"]))
    processors = record.get("processors", {})
    state.nodes = tuple(replace(node, processor=processors.get(node.name)) for node in state.nodes)
    state.spans.forget(*state.tasks())
    for span in record["spans"]:
        state.spans.open(SpanView(**span))
    if state.training is not None and record["train"]:
        state.training.take(record["train"])
    if record["pi"]:
        state.estimates.add(PiPoint(**record["pi"]))
    return float(record["seconds"])


def finite(value: Any) -> Any:
    """The value with null for every number that JSON has no word for."""
    match value:
        case dict():
            return {str(key): finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [finite(inner) for inner in value]
        case float() if not isfinite(value):
            return None
        case _:
            return value
