"""How far the running job is, from what its coordinator exports. Pure, but for `of_coordinator`."""

from collections.abc import Mapping

from cluster.control.client import NoAnswerError, ask, program
from cluster.metrics.scrapes import UNCOUNTED

ANSWER_SECONDS = 2.0
_P = "pscluster_"
_MAIN = f"""\
import sys
sys.stdout.write(ask(sys.argv[1], "GET", "{UNCOUNTED}", deadline_seconds={ANSWER_SECONDS}).text)
"""


def of_coordinator(metrics_address: str) -> str:
    """What the coordinator at `host:port` exports now; empty where none answers, because no job runs."""
    try:
        return ask(metrics_address, "GET", UNCOUNTED, deadline_seconds=ANSWER_SECONDS).text
    except NoAnswerError:
        return ""


def asked_on_node(metrics_address: str) -> tuple[list[str], bytes]:
    """A command for the coordinator's node, and its standard input: it prints the same.

    The firewall keeps others away.
    """
    return ["python3", "-", metrics_address], program(_MAIN)


def progress_line(exported: str) -> str:
    """`train: epoch 3 of 12, 1,234 windows/s, loss 0.4312, 2 min 05 s left`; empty where no job says anything."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    run = ""
    try:
        for family in text_string_to_metric_families(exported):
            for sample in family.samples:
                if sample.name == f"{_P}job_info":
                    run = sample.labels.get("run", "")
                key = sample.name + (f":{sample.labels['split']}" if "split" in sample.labels else "")
                found[key.removeprefix(_P)] = sample.value
    except ValueError:
        return ""
    words = _words(found)
    return f"{words} (run {run})" if words and run else words


def _words(found: Mapping[str, float]) -> str:
    from deploy.terminal.console import duration

    if found.get("train_planned_epochs"):
        parts = [f"train: epoch {found.get('train_epoch', 0):.0f} of {found['train_planned_epochs']:.0f}"]
        if found.get("train_windows_per_second"):
            parts.append(f"{found['train_windows_per_second']:,.0f} windows/s")
        if "train_loss:train" in found:
            parts.append(f"loss {found['train_loss:train']:.4f}")
        left = found.get("job_remaining_seconds", found.get("train_remaining_seconds"))
    elif found.get("pi_planned_samples"):
        done = found.get("pi_samples_total", 0.0) / found["pi_planned_samples"]
        parts = [f"pi: {done:.0%} of {found['pi_planned_samples']:,.0f} samples"]
        left = found.get("job_remaining_seconds")
    elif found:
        return "a job is starting, or evaluates a model"
    else:
        return ""
    return ", ".join([*parts, *([f"{duration(left)} left"] if left and left == left and left < 1e9 else [])])
