"""Plays a training of a sweep in no time: the member with arithmetic for TensorFlow.

Its steps follow from its arguments and the step before, so that a run which resumes ends with the
same figures.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

STEPS = 8
STEP_SECONDS = float(os.environ.get("PLAYED_STEP_SECONDS", "0.05"))


def figures_of(state: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": int(state["text"][:6], 16) / 16**6}


def main(words: list[str]) -> int:
    folder = Path(words[words.index("--folder") + 1]).resolve()
    settings = words[words.index("--") + 1 :]
    print(*settings)
    if "refused" in settings:
        print("settings: expected others")
        return 2
    run = next(iter(sorted(folder.glob("*-train"))), folder / "20260101T000000Z-train")
    checkpoints = run / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    (run / "coordinator.log").touch()
    # A node that dies leaves half a file. The product reads such a checkpoint as none, too.
    known = [path for path in sorted(checkpoints.glob("update-*.json")) if path.stat().st_size]
    if known:
        state: dict[str, Any] = json.loads(known[-1].read_text())
    else:
        state = {"step": 0, "text": "", "resumptions": -1}
    state["resumptions"] += 1

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        (run / "result.json").write_text('{"status": "cancelled"}')
        sys.exit(130)

    signal.signal(signal.SIGINT, interrupted)
    while state["step"] < STEPS:
        time.sleep(STEP_SECONDS)
        state["step"] += 1
        state["text"] = hashlib.sha256(f"{state['text']}{settings}".encode()).hexdigest()
        for said in (
            {"stage": "train", "done": state["step"], "total": STEPS},
            {"epoch": state["step"], "validation": figures_of(state)},
        ):
            print(json.dumps({"pscluster_run": said}), flush=True)
        partial = checkpoints / ".partial"
        partial.write_text(json.dumps(state))
        partial.rename(checkpoints / f"update-{state['step']:09d}.json")
    failed = "failing" in settings
    result = {"status": "done", "final": figures_of(state), "resumptions": state["resumptions"]}
    if failed:
        result |= {"status": "failed", "reason": "it diverged"}
    (run / "result.json").write_text(json.dumps(result))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
