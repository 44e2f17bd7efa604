"""`systemctl start|stop pscluster-job@ID.service`, as far as jobs need it.

`play_systemctl.py FOLDER VERB UNIT`.

FOLDER/unit.json is the command, `%i` in it being the id; what it says before it opens its log goes
to FOLDER/systemd.journal. `list-units` names those whose process lives.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

folder, verb, *words = Path(sys.argv[1]), *sys.argv[2:]
unit = words[-1]
name = unit.removeprefix("pscluster-job@").removesuffix(".service")
pid_file = folder / f"{name}.pid"

if verb == "start":
    plan = json.loads((folder / "unit.json").read_text())
    address = str(folder / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify,
        contextlib.suppress(FileNotFoundError),
    ):
        Path(address).unlink(missing_ok=True)
        notify.bind(address)
        notify.settimeout(0.05)
        with (folder / "systemd.journal").open("ab") as output:
            process = subprocess.Popen(
                [word.replace("%i", name) for word in plan["command"]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "NOTIFY_SOCKET": address},
                start_new_session=True,
            )
        pid_file.write_text(str(process.pid))
        while True:
            try:
                if b"READY=1" in notify.recv(4096):
                    sys.exit(0)
            except TimeoutError:
                if process.poll() is not None:
                    sys.exit(
                        f"Job for {unit} failed because the control process exited with error code."
                    )
elif verb == "stop":
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGINT)
    state = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while state.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.02)
elif verb == "list-units":
    for path in folder.glob("*.pid"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (
                Path(f"/proc/{path.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
                != "Z"
            ):
                print(f"pscluster-job@{path.stem}.service loaded active running a job")
else:
    sys.exit(f"Unknown command verb {verb}.")
