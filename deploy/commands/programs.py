"""`fab job run`: any TensorFlow program on a running cluster."""

from cluster.programs.program import MOST_RESTARTS, PLACES, ProgramRequest, program_file
from core.ground.errors import UsageError
from deploy.commands.action import takes
from deploy.commands.flags import (
    JobFlags,
    Names,
    behind_dashes,
    number,
    path,
    text,
    with_overrides,
    word,
)
from deploy.commands.jobs import run_job


class RunFlags(JobFlags):
    """The flags of `job run`."""

    program: str | None = word("the program's file", needed=False, is_path=True)
    requirements: str | None = path("file of further packages for the program, as pip reads it")
    on: str = text(
        "where the program runs: chief (once, beside the coordinator) or workers (once for each)",
        "chief",
        choices=PLACES,
    )
    restarts: int = number(
        "how often the program is started again when it is killed or a server is lost",
        0,
        MOST_RESTARTS,
        5,
    )
    arguments: Names = behind_dashes("the program's arguments")


@takes(RunFlags)
def run_(flags: RunFlags) -> None:
    """Run any TensorFlow program: `fab job run PROGRAM.py -- ARGUMENTS`."""
    if flags.program is None:
        raise UsageError("job run: expected a program, e.g. `fab job run train.py -- --epochs 3`")
    on = next((place for place in PLACES if place == flags.on), None)
    if on is None:
        raise UsageError(f"--on: expected {' or '.join(PLACES)}, got {flags.on!r}")
    program = program_file(flags.program)
    request = ProgramRequest(
        str(program),
        flags.arguments,
        on,
        flags.restarts,
        requirements=flags.requirements or "",
    ).checked()
    run_job("run", with_overrides(flags), request=request)
