"""Accuracy by person: each one's windows through a stored model, in this process."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import core.engine.runtime  # noqa: F401  (before tensorflow)
from cluster.jobs.train_result import load
from core.data import Dataset, find_source, prepare
from core.data.source import PROJECT_ROOT
from core.ground.files import user_cache

import tensorflow as tf  # isort: skip

BLOCK = 250


def recordings(named: str | None = None) -> Dataset:
    """What a job with the settings of the inventory's defaults trains on."""
    source = find_source(named, os.environ, PROJECT_ROOT, user_cache())
    return prepare(source, cache=user_cache() / "prepared")


def shares(right: NDArray[np.bool_], people: NDArray[np.int32]) -> dict[str, float]:
    """The share of right answers by person."""
    return {str(person): float(right[people == person].mean()) for person in np.unique(people)}


def by_person(model: Path, dataset: Dataset, rows: NDArray[np.integer]) -> dict[str, float]:
    """Accuracy on `rows` by person, of the model in a run's folder `model/`."""
    stored = load(model)
    named = stored.network.unpack(tf.constant(stored.vector))
    answers = [
        stored.network.apply(
            named, tf.constant(block), training=False, seed=tf.zeros([2], tf.int32)
        ).logits.numpy()
        for block in stored.standardization.blocks(dataset, rows)
    ]
    return shares(
        np.concatenate(answers).argmax(1) == dataset.classes()[rows], dataset.subjects()[rows]
    )
