"""How updates meet: the modes an inventory can name, and the knobs of each."""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import Fraction, Section

ModeName = Literal["async", "ssp", "sync", "local", "allreduce", "single"]


class SspSettings(Section):
    """`mode: ssp`."""

    bound: int = Field(1, ge=0, le=1000, description="clocks that the fastest worker may be ahead of the slowest")


class SyncSettings(Section):
    """`mode: sync`."""

    quorum: int | None = Field(
        None, ge=1, le=64, description="micro-batches that make a step; null waits for all, which gives the same bits"
    )
    backup_workers: int = Field(1, ge=0, le=1024, description="workers that may repeat what others take too long over")


class LocalSettings(Section):
    """`mode: local`."""

    steps: int = Field(8, ge=1, le=1024, description="batches that a worker trains on between pull and push")
    outer_rate: float = Field(1.0, gt=0.0, le=10.0, description="share of the workers' mean change that is applied")
    outer_momentum: Fraction = Field(0.0, description="Nesterov momentum of the outer step; 0 is plain averaging")


class CheckpointSettings(Section):
    """What a run keeps to go on from."""

    every_seconds: float = Field(60.0, ge=0.0, le=86_400.0, description="time between two checkpoints, about")
    keep: int = Field(3, ge=1, le=1000, description="how many of the latest stay")
