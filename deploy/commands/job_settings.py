"""The job flags as overrides of the inventory: one way in for every setting, validated in one place. Pure.

The few that are no settings of a job, but of one run of it, are flags of the coordinator too.
"""

import json
from collections.abc import Mapping

from cluster.errors import UsageError
from deploy.commands.flags import whole_number

LARGEST = 10**15

Flag = str | bool | None


def settings(keys: Mapping[str, Flag]) -> list[str]:
    """`key=value` for every flag that was given, text quoted as YAML reads it."""
    given = {key: value for key, value in keys.items() if value not in (None, False)}
    return [f"{key}={json.dumps(value)}" for key, value in given.items()]


def data_settings(data: str | None) -> list[str]:
    """The override that `--data` stands for."""
    return settings({"jobs.train.data.source": data})


def log_settings(log_format: str | None, log_level: str | None) -> list[str]:
    """The overrides that `--log-format` and `--log-level` stand for."""
    return settings({"logging.format": log_format, "logging.level": log_level})


def number_settings(keys: Mapping[str, tuple[str, str | None]]) -> list[str]:
    """`key=number` for every (flag, text) that was given. Raises UsageError for what is no whole number."""
    return [f"{key}={whole_number(flag, text, 0, LARGEST)}" for key, (flag, text) in keys.items() if text is not None]


def run_flags(resume: bool, run: str | None, chaos: str | None) -> list[str]:
    """`--resume [RUN]` and `--chaos TEXT` for the coordinator. Raises UsageError for a run without --resume."""
    if run is not None and not resume:
        raise UsageError("--run: names the training run for --resume; give both, or neither")
    resumed = [] if not resume else ["--resume"] if run is None else ["--resume", run]
    return [*resumed, *([] if chaos is None else ["--chaos", chaos])]
