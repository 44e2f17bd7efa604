"""Whom the samples of a process speak of."""

from dataclasses import dataclass

from cluster.metrics.instruments import Family, family


@dataclass(frozen=True)
class Identity:
    """Which task of the cluster a process is; makes samples of the catalogue's metrics for collectors."""

    role: str
    task: int

    @property
    def values(self) -> list[str]:
        """Values of the labels `role` and `task`."""
        return [self.role, str(self.task)]

    def gauge(self, short: str, value: float) -> Family:
        """`pscluster_{short}`, a gauge without further labels."""
        return self._one(family(short), value)

    def counter(self, short: str, value: float) -> Family:
        """`pscluster_{short}`, a counter without further labels."""
        return self._one(family(short), value)

    def info(self, short: str, *values: str) -> Family:
        """`pscluster_{short}`, a gauge that is always 1 and says everything in its labels."""
        made = family(short)
        made.add_metric([*self.values, *values], 1)
        return made

    def _one(self, made: Family, value: float) -> Family:
        made.add_metric(self.values, value)
        return made
