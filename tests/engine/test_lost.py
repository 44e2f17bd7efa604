"""When a parameter server counts as lost."""

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.engine.lost import ParameterServerLost, raise_if_server_lost
from cluster.errors import ExitCode

SAID = (
    "InvalidArgumentError: {{function_node __inference_unpacked_1269}} Unable to find the relevant tensor "
    "remote_handle: Op ID: 16, Output num: 0. (from /job:{role}/replica:0/task:1/device:CPU:0)"
)
NO_SERVERS: Any = SimpleNamespace(peers=SimpleNamespace(parameter_servers=()))


def test_a_server_that_has_forgotten_a_parameter_is_lost() -> None:
    """It was killed while no worker was there, and answers again."""
    with pytest.raises(
        ParameterServerLost, match=r"^parameter server ps:1 has restarted without .*Op ID: 16"
    ) as raised:
        raise_if_server_lost(NO_SERVERS, SAID.replace("{role}", "ps"))
    assert raised.value.exit_code == ExitCode.SERVER_LOST


def test_what_a_worker_says_of_itself_ends_no_job() -> None:
    raise_if_server_lost(NO_SERVERS, SAID.replace("{role}", "worker"))
    raise_if_server_lost(NO_SERVERS, "UnavailableError: Socket closed (from /job:ps/replica:0/task:1)")
