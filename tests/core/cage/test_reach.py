"""No caged process reaches others by a call that neither Landlock, the filter nor a line holds."""

import json
from pathlib import Path

from core.cage.landlock import COVERS, FILES
from tests.habits import needs
from tests.ran import python
from tests.tables import table

CHILD = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, subprocess, sys
from functools import partial
from pathlib import Path
from core.cage import calls, landlock
from core.cage.calls import CALLS
from core.cage.landlock import MACHINES, libc
from core.cage.landlock import Coverage, Rights
from core.cage.profiles import calls_of
there, tries = Path(sys.argv[1]), json.loads(sys.argv[2])
column = list(MACHINES).index(os.uname().machine)
secret, own = there / "secret", there / "own/file"
own.parent.mkdir()
for file in (secret, own):
    file.write_text("words")
tcp, unix = partial(socket.socket, socket.AF_INET, socket.SOCK_STREAM), partial(socket.socket, 1)
streams, datagrams, abstract = unix(), unix(socket.SOCK_DGRAM), unix()
label = f"\\0reach-{os.getpid()}"
for each, place in (streams, "streams"), (datagrams, "datagrams"):
    each.bind(str(there / place))
abstract.bind(label)
for each in streams, abstract:
    each.listen()
server = socket.create_server(("127.0.0.1", 0))
listens = server.getsockname()
_, pair = socket.socketpair()
def call(name, *words):
    (number,) = (one.numbers[column] for one in CALLS if one.name == name)
    words = (ctypes.c_long(word) if isinstance(word, int) else word for word in words)
    if libc().syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), name)
def came():
    for name, words in tries.items():
        try:
            eval(words)
        except OSError as problem:
            if problem.errno in (errno.EPERM, errno.EACCES):
                continue
        yield name
def entered(rights, version):
    landlock.kernel_coverage = lambda: Coverage(version)  # an older kernel's is asked for less
    if rights.free:
        cage = calls.WholeCage(Rights(("/",), (own.parent,), ("/dev",)), rights)
        cage.enter()
        return cage.caged.line
    reads = "/usr", sys.base_prefix, own.parent, "/dev/urandom"
    return calls.enter_whole_cage(Rights(reads, bind=(), connect=()), rights).line
with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
    victim = process.pid
    held = os.pidfd_open(victim)
    found = {"nothing": ("", [*came()])}
    for kind in "role", "model", "export", "job":
        rights = calls_of(kind)
        for version in range(landlock.abi() + 1):
            read, write = os.pipe()
            if not os.fork():
                os.write(write, json.dumps((entered(rights, version), [*came()])).encode())
                os._exit(0)
            os.close(write)
            found[f"{kind} {version}"] = json.load(os.fdopen(read))
            os.wait()
print(json.dumps(found))
"""


def test_what_comes_through_is_said(tmp_path: Path) -> None:
    needs.cage(FILES)
    reach = table("core/cage/tables", "reach")
    tries = json.dumps({name: words for name, (words, *_) in reach.items()})
    found = json.loads(python("-c", CHILD, str(tmp_path), tries))
    assert found.pop("nothing")[1] == [*reach], "without a cage each does what it is for"
    for which, (line, came) in found.items():
        ways = {which.split()[0], *(subject for subject in COVERS.values() if subject in line)}
        assert [name for name in came if not ways & {*reach[name][1:]}] == [], f"{which}: {line}"
