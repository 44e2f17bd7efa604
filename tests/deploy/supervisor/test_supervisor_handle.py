"""How long a supervisor's answer is waited for."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.inventory import load
from deploy.common.state_folder import StateFolder
from deploy.supervisor import services
from deploy.supervisor.services import Supervised, answer_seconds


def supervised(folder: Path, workers: int) -> Supervised:
    """The cluster `c` of this folder with so many workers and a parameter server."""
    ports = [f"worker: {{port: {3000 + 2 * k}, metrics_port: {3001 + 2 * k}}}" for k in range(workers)]
    node = f"{{name: here, address: 127.0.0.1, roles: [{', '.join(['ps', *ports, 'coordinator'])}]}}"
    path = folder / "c.yaml"
    path.write_text(f"schema: 1\ncluster: c\nconnection: local\nnodes: [{node}]\n")
    return Supervised(load(path), ())


def test_the_deadline_grows_with_the_roles_it_is_busy_starting() -> None:
    assert answer_seconds(1) < answer_seconds(17) < answer_seconds(65)
    assert answer_seconds(65) > 2 * 13.6, "what 65 took, and `start` gave up"


def test_an_answer_that_is_late_for_few_roles_is_in_time_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "answer_seconds", lambda roles: 0.2 + 0.2 * roles)
    folder = StateFolder.beside(tmp_path / "c.yaml", "c")
    folder.create()
    late = b'{"ok": true, "cluster": "c", "state": "running"}\n'
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.control_socket))
        listener.listen()

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    threading.Event().wait(1.0)
                    with suppress(BrokenPipeError):  # the first one has hung up
                        connection.send(late)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ClusterError, match="did not answer 'status' within"):
            supervised(tmp_path, 1).client().ask("status")
        assert supervised(tmp_path, 60).client().ask("status")["cluster"] == "c"
        thread.join()
