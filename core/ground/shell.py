"""What a person's shell says to other programs.

Some of it must not reach the processes of a cluster.
"""

from collections.abc import Iterable, Mapping, MutableMapping

NO_PROXY = ("no_proxy", "NO_PROXY", "no_grpc_proxy")
"""gRPC reads `no_grpc_proxy` instead of `no_proxy`; programs read one case or the other."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")

FOREIGN = (
    "TF_DETERMINISTIC_OPS",
    "TF_XLA_FLAGS",
    "TF_FUNCTION_JIT_COMPILE_DEFAULT",
    "TF_CONFIG",
    "TF_NUM_INTEROP_THREADS",
    "TF_USE_LEGACY_KERAS",
    "KERAS_NNX_ENABLED",
)
"""Variables that change what TensorFlow and Keras are in a whole process: the coordinator and each
role compute what the inventory and the app say, all of them the same."""


def without_foreign(environment: MutableMapping[str, str]) -> None:
    """Take out what would change TensorFlow or Keras in this process, and name Keras's backend.

    The person's `keras.json` may name another one.
    """
    for name in FOREIGN:
        environment.pop(name, None)
    environment["KERAS_BACKEND"] = "tensorflow"


def without_proxies(environment: MutableMapping[str, str]) -> None:
    """Take out all proxies: for a process that talks to its cluster alone."""
    for name in PROXIES:
        environment.pop(name, None)
        environment.pop(name.upper(), None)


def reached_directly(environment: Mapping[str, str], hosts: Iterable[str]) -> dict[str, str]:
    """Return the variables by which nothing asks a proxy for these hosts.

    It is empty where the environment names no proxy.

    Other hosts go through the proxy as before: data may come from there.
    """
    if not any(environment.get(name) or environment.get(name.upper()) for name in PROXIES):
        return {}
    direct_hosts = list(dict.fromkeys(hosts))
    exceptions = [environment.get(name, "") for name in NO_PROXY]
    names = [
        name
        for name, value in zip(NO_PROXY, exceptions, strict=True)
        if value or name != "no_grpc_proxy"
    ]
    either = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if "*" in map(str.strip, exceptions):  # means all hosts, but only alone, and not to gRPC
        names.append("no_grpc_proxy")
    variables = {}
    for name in dict.fromkeys(names):
        listed = [
            entry.strip() for entry in (environment.get(name) or either).split(",") if entry.strip()
        ]
        everything = listed == ["*"] and name != "no_grpc_proxy"
        if everything:
            variables[name] = "*"
        else:
            variables[name] = ",".join(
                [*listed, *(host for host in direct_hosts if host not in listed)]
            )
    return variables
