"""A job from its start to its end, with the coordinators that it takes: the effects around `JobRestartPolicy`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError, ExitCode
from deploy.common.command_line import quoted
from deploy.common.hints import command
from deploy.jobs.foreground_job import interruptible, run_in_foreground, tell
from deploy.jobs.job_restart import JobRestartPolicy

RUN_FILE_VARIABLE = "PSCLUSTER_RUN_FILE"
"""Names the file into which a coordinator writes the absolute path of its run folder."""


@dataclass(frozen=True)
class JobPlan:
    """What to start: the job's command line and environment, its name and the inventory as messages are to name them.

    `run_file` is where the coordinator names its run folder, None where nobody wants to know. A job that `goes_on` is
    started again in that folder, another one anew. `shown` turns the folder into what a person is to type for it.
    """

    name: str
    inventory: Path
    words: tuple[str, ...]
    environment: Mapping[str, str]
    run_file: Path | None = None
    goes_on: bool = True
    shown: Callable[[str], str] = str


def run_to_its_end(plan: JobPlan, bring_roles_back: Callable[[], None], policy: JobRestartPolicy) -> int:
    """Run the job in the foreground until it is done, interrupted, or not to be restarted; its exit code.

    `bring_roles_back` is called before each restart: what a dead coordinator has left on the servers goes with them.
    What an earlier job left in the run file is removed first. Raises what `bring_roles_back` raises. Main thread only.
    """
    restarts: list[float] = []
    if plan.run_file is not None:
        plan.run_file.unlink(missing_ok=True)
    try:
        with interruptible():
            while True:
                # A second --resume, after one that the person gave, is the one that counts.
                ending = run_in_foreground((*plan.words, *_resume(plan)), _environment(plan))
                decision = policy.decide(ending, restarts, time.monotonic())
                if decision.reason:
                    tell(f"{plan.name}: {decision.reason}")
                if not decision.restart:
                    if decision.reason:
                        _tell_how_to_go_on(plan)
                    return ending.exit_code
                time.sleep(decision.delay_seconds)
                bring_roles_back()
                restarts.append(time.monotonic())
                folder = _run_to_go_on_with(plan)
                tell(f"{plan.name}: started again{f', going on in {plan.shown(folder)}' if folder else ''}")
    except KeyboardInterrupt:
        tell(f"{plan.name}: interrupted before it was started again")
        _tell_how_to_go_on(plan)
        return ExitCode.CANCELLED
    except ClusterError:
        _tell_how_to_go_on(plan)
        raise


def _environment(plan: JobPlan) -> dict[str, str]:
    named = {} if plan.run_file is None else {RUN_FILE_VARIABLE: str(plan.run_file)}
    return {**plan.environment, **named}


def _resume(plan: JobPlan) -> Sequence[str]:
    folder = _run_to_go_on_with(plan)
    return ("--resume", folder) if folder else ()


def _run_to_go_on_with(plan: JobPlan) -> str:
    """The folder that the coordinator named; empty where it did not get so far, or the job begins anew."""
    try:
        return "" if plan.run_file is None or not plan.goes_on else plan.run_file.read_text().strip()
    except FileNotFoundError:
        return ""


def _tell_how_to_go_on(plan: JobPlan) -> None:
    folder = _run_to_go_on_with(plan)
    if folder:
        words = command(f"job {plan.name} --resume --run {quoted(plan.shown(folder))}", plan.inventory)
        tell(f"`{words}` goes on with it")
