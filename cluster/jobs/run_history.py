"""A thread that keeps the history of a run in its folder: the job never waits for the disk."""

import threading
from pathlib import Path

from cluster.jobs.status_observer import StatusObserver
from cluster.status.history_file import HistoryFile
from cluster.status.records import Record, everything, facts

EVERY_SECONDS = 1.0
FACTS_SECONDS = 10.0
"""How old the numbers may be that a killed coordinator leaves behind."""
PATIENCE_SECONDS = 30.0
"""After the disk took nothing."""
LAST_SECONDS = 5.0
CHANGES = {"span", "epoch", "figures", "end", "resumed"}
"""Records after which the numbers are kept too."""


class RunHistory:
    """Writes until it is closed."""

    def __init__(self, observer: StatusObserver, folder: Path) -> None:
        self._observer = observer
        self._file = HistoryFile(folder, self._everything)
        self._kept_facts = float("-inf")
        self._writing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the rest. Does not wait for ever: the folder may lie on a server that is gone."""
        self._end.set()
        self._thread.join(LAST_SECONDS)

    def keep(self) -> bool:
        """Write what there is; whether the disk took it. From any thread."""
        with self._writing:
            now = self._observer.clock()
            with self._observer.state() as state:
                records, state.records = state.records, []
                age = max(FACTS_SECONDS, state.samples.interval_seconds)
                if now - self._kept_facts >= age or any(record["record"] in CHANGES for record in records):
                    records.append(facts(state, now))
                    self._kept_facts = now
            return self._file.write(records)

    def _everything(self) -> list[Record]:
        now = self._observer.clock()
        with self._observer.state() as state:
            state.records.clear()
            return everything(state, now)

    def _run(self) -> None:
        while not self._end.wait(EVERY_SECONDS if self.keep() else PATIENCE_SECONDS):
            pass
        self.keep()
