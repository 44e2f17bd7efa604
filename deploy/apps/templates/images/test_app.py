"""Tests of the app alone, without a cluster: `pytest APP_NAME`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

app = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("app.py"))))
SHAPE = (app.SIZE, app.SIZE, 3)


def test_the_model_answers_with_a_number_for_each_class():
    assert app.model(SHAPE, 3)(np.zeros((2, *SHAPE), "uint8")).shape == (2, 3)


def test_training_lowers_the_loss():
    keras.utils.set_random_seed(0)
    x, y, labels = app.draw(48)
    model = app.model(SHAPE, len(labels))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = [model.train_on_batch(x, y) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_augmentation_mirrors_some_images_and_depends_on_the_seed_alone():
    x, y, _ = app.draw(16)
    first, again, other = (
        app.augment(tf.constant(x), y, seed)[0].numpy() for seed in ([1, 2], [1, 2], [1, 3])
    )
    assert (first == again).all()
    assert (first != other).any()
    unchanged_or_mirrored = [
        (image == before).all() or (image == before[:, ::-1]).all()
        for image, before in zip(first, x, strict=True)
    ]
    assert all(unchanged_or_mirrored)


def test_images_are_read_from_folders(tmp_path):
    for place in ("whole", "parts/Training", "parts/test"):
        for name, value in (("bright", 250), ("dark", 5)):
            (tmp_path / place / name).mkdir(parents=True)
            for k in range(3):
                image = np.full((40, 20, 3), value, "uint8")
                (tmp_path / place / name / f"{k}.png").write_bytes(tf.io.encode_png(image).numpy())
    for folder, counts in (("whole", (4, 2)), ("parts", (6, 6))):
        dataset = app.data(tmp_path / folder)
        assert dataset["labels"] == ["bright", "dark"]
        assert (len(dataset["y_train"]), len(dataset["y_test"])) == counts
        for part in ("train", "test"):
            assert (
                (dataset[f"x_{part}"].mean((1, 2, 3)) < 100) == (dataset[f"y_{part}"] == 1)
            ).all()
