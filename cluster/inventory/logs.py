"""How every process of the cluster writes its log."""

from pydantic import Field

from cluster.inventory.fields import Section
from cluster.logs.lines import LogFormat, LogLevel


class Logs(Section):
    """How every process of the cluster writes its log; docs/logs.md says what stands in a line."""

    format: LogFormat = Field("text", description="`text` for people; `json` is one JSON object a line, for programs")
    level: LogLevel = Field("info", description="the least that is logged: `info` leaves `debug` out")
