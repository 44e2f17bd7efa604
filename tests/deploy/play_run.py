"""A coordinator that leaves a run.

`play_run.py JOURNAL HOW JOB --inventory FILE --set runs=FOLDER ...`.

HOW is an exit code, or `waits`: for a SIGINT, then it ends with 130; JOURNAL gets its arguments.
"""

import json
import os
import signal
import sys
from pathlib import Path

journal, how, job, *rest = sys.argv[1:]
Path(journal).write_text(json.dumps([job, *rest]))
runs = next(json.loads(word.removeprefix("runs=")) for word in rest if word.startswith("runs="))
folder = Path(runs) / f"20991121T223000Z-{job}"
(folder / "checkpoints").mkdir(parents=True, exist_ok=True)
(folder / "checkpoints" / "update-1.json").write_text("large")
(folder / "model").mkdir(exist_ok=True)
(folder / "model" / "model.json").write_text("{}")
Path(os.environ["PSCLUSTER_RUN_FILE"]).write_text(f"{folder}\n")


def end(code: int) -> None:
    status = {0: "done", 130: "cancelled"}.get(code, "failed")
    (folder / "result.json").write_text(json.dumps({"job": job, "status": status}))
    print(f"{job}: {status}", file=sys.stderr)
    print(f"result: {folder}/result.json", flush=True)
    sys.exit(code)


for epoch in range(3):
    print(f"epoch {epoch}", file=sys.stderr, flush=True)
if how == "waits":
    signal.signal(signal.SIGINT, lambda number, frame: end(130))
    Path(f"{journal}.waits").touch()
    while True:
        signal.pause()
end(int(how))
