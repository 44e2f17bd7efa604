"""The gate before a TensorFlow port: connections of other accounts and of other machines are closed unread.

A TensorFlow server executes any graph from anyone who connects, as the account that runs it. Each connection to the
port is accepted here first (`accept_calls`), its account looked up (`peer_account`), and handed on to TensorFlow only
when it is our own account, root, or one of those named. TensorFlow never sees the others.
"""

import errno
import logging
import os
import socket
import threading
from collections.abc import Iterable

from cluster.metrics.sockets import borrowed, is_listening, is_tcp
from cluster.server.accept_calls import AcceptCall, answer_accepts
from cluster.server.accounts import account_name
from cluster.server.peer_account import own_accounts, peer_account

log = logging.getLogger("pscluster.gate")


class Gate:
    """Stands before one port of this process. `handed_on` counts connections that TensorFlow got."""

    def __init__(self, port: int, others: Iterable[int] = ()) -> None:
        """To be made by the thread that will start the server, before it does. `others` are let through as well.

        Raises OSError where this kernel grants no such gate.
        """
        self._port = port
        self._admitted = own_accounts() | frozenset(others)
        self._lock = threading.Lock()
        self._named: set[int | None] = set()
        self.handed_on = 0
        _try_a_look_up()
        answer_accepts(self._answer)

    def _answer(self, call: AcceptCall) -> int | None:
        with borrowed(call.listener) as listener:
            if not is_tcp(listener) or not is_listening(listener) or listener.getsockname()[1] != self._port:
                return None
            blocking = os.get_blocking(call.listener)
        if blocking:  # would stop the gate for all; gRPC never asks so
            raise OSError(errno.EOPNOTSUPP, "a blocking accept")
        while True:
            descriptor = call.make()
            try:
                uid = self._account(descriptor)
            except OSError:
                uid = None
            if uid in self._admitted:
                self.handed_on += 1
                return descriptor
            os.close(descriptor)
            self._tell(uid)

    def _account(self, descriptor: int) -> int | None:
        with borrowed(descriptor) as connection:
            return peer_account(connection)

    def _tell(self, uid: int | None) -> None:
        if uid in self._named:
            return
        self._named.add(uid)
        who = "another machine, or one that hung up at once" if uid is None else f"account {account_name(uid)}"
        log.warning("port %d: a connection of %s was closed unread, as further ones will be", self._port, who)


def _try_a_look_up() -> None:
    """Raises OSError unless the kernel tells whose a connection of our own is."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            if peer_account(accepted) != os.geteuid():
                raise OSError(errno.EOPNOTSUPP, "the kernel does not tell whose a connection is")
