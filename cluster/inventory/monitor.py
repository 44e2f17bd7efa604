"""How the cluster is watched: the Prometheus of the node with the role `monitor`, or of this machine."""

from pydantic import Field

from cluster.inventory.fields import Port, Section


class Monitor(Section):
    """The cluster's own Prometheus, as `fab deploy monitor` makes it."""

    port: Port = Field(9090, description="of its page and its queries")
    scrape_seconds: int = Field(
        5, ge=1, le=15, description="time between two looks at every process; the rules look at a minute and more"
    )
    retention_days: int = Field(7, ge=1, le=3650, description="how long figures are kept")
    retention_megabytes: int = Field(
        1024, ge=64, le=1_000_000, description="the disk they may take; the oldest go first"
    )
    memory_megabytes: int = Field(
        256,
        ge=64,
        le=65_536,
        description="the memory it may take on the monitor's node, counted by `check` with that of the roles",
    )
