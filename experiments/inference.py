"""One window at a time through exports of one run, in turn.

Milliseconds, memory, size, and how logits differ.

`python -m experiments.inference EXPORT... [--run RUN]` runs on any node. Each export answers in a
process of its own, in the runtime of its format; with `--run`, and where TensorFlow is installed,
TensorFlow's traced function of the same run answers beside them. `fab job inference` does the same
on every worker's node of a cluster.
"""

import sys
from pathlib import Path

from benchmarks.report import arguments, publish
from core.errors import UsageError
from core.exported.timed.turns import contestants, measured, summarize


def main() -> int:
    """Measure, and print the object."""
    parser = arguments("inference", "One window through exports of a run, in turn.")
    parser.add_argument(
        "exports", nargs="+", type=Path, metavar="EXPORT", help="folders that `fab export` wrote"
    )
    parser.add_argument(
        "--run", type=Path, help="their run's folder: TensorFlow's traced function beside them"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--windows", type=int, default=40, help="of one round")
    given = parser.parse_args()
    try:
        asked = contestants(
            [folder.absolute() for folder in given.exports], given.run, given.threads
        )
    except UsageError as problem:
        print(problem, file=sys.stderr)
        return int(problem.exit_code)
    rows = measured(asked, 3 if given.quick else given.rounds, given.windows)
    publish("inference", rows, {**summarize(rows), "threads": given.threads}, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
