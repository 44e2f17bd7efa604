"""`fab job run`: any TensorFlow program on a running cluster."""

from cluster.errors import UsageError
from cluster.programs.wish import MOST_RESTARTS, PLACES, ProgramWish, program_file
from deploy.commands.edge import takes
from deploy.commands.flags import Flags, whole_number
from deploy.commands.jobs import OF_LOGS, run_job, with_overrides
from deploy.commands.typed import after_dashes


@takes("inventory set_ program requirements on restarts json_ quiet log_format log_level", rest=True)
def run_(flags: Flags) -> None:
    """Run any TensorFlow program: `fab job run PROGRAM.py -- ARGUMENTS`."""
    if flags.program is None:
        raise UsageError("job run: expected a program, e.g. `fab job run train.py -- --epochs 3`")
    restarts = whole_number("--restarts", flags.restarts, 0, MOST_RESTARTS)
    on = next((place for place in PLACES if place == flags.on), None)
    if on is None:
        raise UsageError(f"--on: expected {' or '.join(PLACES)}, got {flags.on!r}")
    program = program_file(flags.program)
    wish = ProgramWish(str(program), after_dashes(), on, restarts, requirements=flags.requirements or "").checked()
    run_job("run", with_overrides(flags, OF_LOGS), wish=wish)
