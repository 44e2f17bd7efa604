import signal
import sys

from core.server.session_threads import OBJECT
from core.server.tensorflow_server import find_tensorflow
from tests.core.server.processes import running

HEADER = "include/tensorflow/core/distributed_runtime/rpc/grpc_worker_service.h"
DECLARATIONS = (
    "std::unordered_map<int, int> queue_depth; int num_serving_threads = 8; };",
    "std::unique_ptr<tsl::AsyncServiceInterface> NewGrpcWorkerService( GrpcWorker* worker,"
    " ::grpc::ServerBuilder* builder, GrpcWorkerServiceOptions options",
)
WITH_ANOTHER = (
    "import sys; from core.server import role, session_threads;"
    " role.one_session_thread = lambda: session_threads.one_session_thread(sys.argv[1]);"
    " role.main('ps', sys.argv[5:])"
)
"""A role with the object of another machine, in the place of `python -m ps_node FLAGS`."""


def test_our_object_declares_what_the_installed_tensorflow_does() -> None:
    header = " ".join((find_tensorflow() / HEADER).read_text().split())
    for declaration in DECLARATIONS:
        assert declaration in header


def test_a_role_with_the_object_of_another_machine_starts_and_says_what_that_takes() -> None:
    (other,) = set(OBJECT.parent.glob("*.so")) - {OBJECT}
    with running("ps_node", prefix=(sys.executable, "-c", WITH_ANOTHER, str(other))) as role:
        role.process.send_signal(signal.SIGTERM)
        assert "eight threads for sessions, not one, take 33 MB more" in role.output()
