"""A service by number of live sessions, its requests beside a plain loop and Triton.

`python -m experiments.service --model EXPORT` starts one service process. Each session sends a
message of ten readings five times a second, as a phone does, at a moment of its own. Its latency is
the client's: from the message with the last reading of a window to the label. It does so on the
bare host, in a container, and with 10 % of a core (cgroup v1, about a Pi 3); the clients have the
rest of the machine. A request of `infer` is one window as a binary tensor, on a connection that
stays open, by 1, 4 and 16 clients; 1, 2 and 4 services share them. The loop calls the same model in
the same runtime, without a service. `--triton PYTHON` names an interpreter with `nvidia-pytriton`
and `onnxruntime`: Triton's Python backend then answers the same requests. All requests are asked in
turn, round by round. The interpreter is one of the system: Triton loads its libpython, and that of
another build with the same name fails.

Needs root for the cgroup and the container, and `make image` before the latter; `--places host`
needs none.
"""

import math
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import arguments, publish
from experiments.service import requests
from experiments.service.places import PLACES, why_not
from experiments.service.sessions import live

SESSIONS = (1, 10, 20, 30, 50, 100)
QUICK_SESSIONS = (1, 20)
SECONDS = 30.0
QUICK_SECONDS = 8.0
REQUESTS = 400
QUICK_REQUESTS = 80
ROUNDS = 5
QUICK_ROUNDS = 1


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By place: the p99 by number of sessions, and the most with it below 100 ms.

    Windows a second over Triton's.
    """
    found: dict[str, Any] = {}
    for place in dict.fromkeys(row["place"] for row in rows if row["what"] == "sessions"):
        of_place = [row for row in rows if row["what"] == "sessions" and row["place"] == place]
        p99 = {row["sessions"]: row.get("p99_ms", math.inf) for row in of_place}
        below = [count for count, value in p99.items() if value < 100.0]
        found[place] = {
            "p99_ms": {str(count): value for count, value in p99.items() if value < math.inf},
            "below_100_ms": max(below, default=0),
        }
    rates = {
        (row["server"], row["clients"]): row["round_windows_per_second"]
        for row in rows
        if row["what"] == "infer" and (row["place"], row["processes"]) == ("host", 1)
    }
    for (server, clients), theirs in rates.items():
        if server == "triton":
            over = [one / other for one, other in zip(rates["ours", clients], theirs, strict=True)]
            found.setdefault("over_triton", {})[str(clients)] = round(statistics.median(over), 2)
    return found


def main() -> int:
    """Measure, and print the object."""
    parser = arguments("service", (__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="EXPORT",
        help="a folder that `fab export` wrote",
    )
    parser.add_argument("--sessions", nargs="+", type=int, help=f"default {SESSIONS}")
    parser.add_argument(
        "--seconds", type=float, help=f"of each number of sessions; default {SECONDS:g}"
    )
    parser.add_argument("--places", nargs="+", choices=PLACES, default=PLACES)
    parser.add_argument(
        "--triton", type=Path, metavar="PYTHON", help="an interpreter with nvidia-pytriton"
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--no-sessions", action="store_true", help="requests alone")
    parts.add_argument("--no-requests", action="store_true", help="sessions alone")
    given = parser.parse_args()
    counts = given.sessions or (QUICK_SESSIONS if given.quick else SESSIONS)
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    model = given.model.absolute()
    places = []
    for place in given.places:
        if reason := why_not(place):
            print(f"{place} is left out: {reason}", file=sys.stderr)
        else:
            places.append(place)
    if given.no_sessions:
        rows = []
    else:
        rows = [live(model, place, count, seconds) for place in places for count in counts]
    if given.quick:
        count, rounds = (QUICK_REQUESTS, QUICK_ROUNDS)
    else:
        count, rounds = (REQUESTS, ROUNDS)
    if not given.no_requests:
        rows += requests.rows(model, places, given.triton, count, rounds)
    publish("service", rows, summarize(rows), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
