"""What a person wrote in an app that the cluster does not read: a line on each."""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from types import ModuleType

SETTINGS: Mapping[str, str] = {
    "callbacks": "jobs.train.early_stopping is a setting, and history.jsonl has each epoch",
    "optimizer": "jobs.train.optimizer decides, or the optimizer of compile()",
    "schedule": "jobs.train.schedule decides",
    "learning_rate": "jobs.train.optimizer.learning_rate decides",
    "epochs": "jobs.train.epochs decides",
    "batch_size": "jobs.train.batch_size decides",
    "class_weight": "jobs.train.class_weights decides",
    "sample_weight": "data() gives `weights`",
    "validation_data": "jobs.train.validation_subjects decides",
}
"""Names that other programs read of a module, with what decides here."""
NEAR = 0.8
"""The likeness of names from which a function is probably misspelt."""


def notes_on_unread(module: ModuleType, function_names: Collection[str]) -> Iterator[str]:
    """Yield a line on each setting, and on each function whose name is near `function_names`."""
    file = f"{module.__file__}".rpartition("/")[2]
    for name, decides in SETTINGS.items():
        if name in vars(module):
            yield f"{file}: {name} is not read: {decides}"
    missing = [name for name in function_names if name not in vars(module)]
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        near = get_close_matches(name, missing, 1, NEAR)
        if callable(value) and is_own and near:
            yield f"{file}: {name}() is called by your own code alone: is it meant as {near[0]}()?"
