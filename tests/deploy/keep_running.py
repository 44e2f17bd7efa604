"""`keep_running.py INVENTORY ROLE:TASK...`: keeps real roles running as systemd would.

Prints a line `NAME PID` for each process it starts.
"""

import subprocess
import sys
import threading

from core.children import dies_with_parent


def keep(inventory: str, name: str) -> None:
    role, task = name.split(":")
    words = ["--inventory", inventory, "--task", task, "--coordinator", "127.0.0.1"]
    while True:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{role}_node", *words],
            stderr=subprocess.DEVNULL,
            preexec_fn=dies_with_parent(),
        )
        print(name, process.pid, flush=True)
        process.wait()


threads = [threading.Thread(target=keep, args=(sys.argv[1], name)) for name in sys.argv[2:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
