"""Examples from a table: which columns are inputs, target, group and test, and what their values become.

The file is read twice, a chunk at a time: first the words, the classes and the groups, then the rows. Between the two
stand 9 bytes a row: its class, its group and whether it is for the test.
"""

import difflib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.batch import MOST_CLASSES, Batch, Examples
from cluster.data.class_folders import held_out
from cluster.data.dataset import CLASSIFICATION, MULTILABEL, REGRESSION
from cluster.data.given import Batches
from cluster.data.recordings import NO_SUBJECT, ColumnMap, Report
from cluster.data.table import LARGEST_INTEGER
from cluster.data.table_file import Chunk, TableFile
from cluster.errors import DataError

USUAL_TARGETS = ("target", "label", "class", "y")
MOST_WORDS = 256
"""Different words of one input: each becomes a column of its own."""
MOST_WHOLE_NUMBERS = 1000
"""Different whole numbers that are taken for classes without `columns.task`."""
KEY = "jobs.train.data.columns"
_TEST = {"test": True, "1": True, "true": True, "train": False, "0": False, "false": False}


class _Numbered:
    """Words in the order in which they first come, and the number of each."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, values: Iterable[Any]) -> list[int]:
        """Numbers of these words; new ones get the next."""
        numbers = self.numbers
        return [numbers.setdefault(value, len(numbers)) for value in values]

    def sorted(self) -> tuple[list[Any], NDArray[np.int32]]:
        """The words in their order, and the place in it by number."""
        words = sorted(self.numbers)
        places = np.empty(len(words), np.int32)
        for place, word in enumerate(words):
            places[self.numbers[word]] = place
        return words, places


@dataclass
class _FirstLook:
    """What the first reading found."""

    words: dict[str, _Numbered] = field(default_factory=dict)
    """Of each input that holds words."""
    classes: _Numbered = field(default_factory=_Numbered)
    class_of: "array[int]" = field(default_factory=lambda: array("i"))
    groups: _Numbered = field(default_factory=_Numbered)
    group_of: "array[int]" = field(default_factory=lambda: array("i"))
    test: "array[int]" = field(default_factory=lambda: array("b"))
    rows: int = 0
    whole: bool = True
    """Whether every value of the target was a whole number."""
    zero_or_one: bool = True


def examples_of(table: TableFile, columns: ColumnMap, report: Report) -> Examples:
    """The rows of a table: float32 (inputs,), numbers as they are and one column of 0 and 1 for each word.

    Raises DataError naming row or column, also while the batches are drawn.
    """
    mapped = _Mapping(table, columns)
    look = mapped.first_look(report)
    return mapped.examples(look)


class _Mapping:
    """The columns of one table by what they are for."""

    def __init__(self, table: TableFile, columns: ColumnMap) -> None:
        self._table, self._given = table, columns
        named = {
            "target": columns.target, "inputs": columns.inputs, "categories": columns.categories,
            "group": (columns.group,) if columns.group else (), "test": (columns.test,) if columns.test else (),
        }  # fmt: skip
        for key, names in named.items():
            for name in names:
                self._refuse_unknown(key, name)
        self.target = columns.target or self._usual_target()
        self.aside = tuple(name for name in (columns.group, columns.test) if name is not None)
        taken = {*self.target, *self.aside}
        self.inputs = columns.inputs or tuple(name for name in table.names if name not in taken)
        for name in self.inputs:
            if name in taken or self.inputs.count(name) > 1:
                raise DataError(f"{table.where}: {KEY}.inputs: {name!r:.60} is named twice; a column is one thing")
        if not self.inputs:
            raise DataError(f"{table.where}: expected a column to predict from, got none; add some")
        self._words = (table.words | set(columns.categories)) & set(self.inputs)
        self._classes_are_words = len(self.target) == 1 and self.target[0] in table.words
        if not self._classes_are_words and (wordy := [name for name in self.target if name in table.words]):
            raise DataError(
                f"{table.where}: {wordy[0]}: expected numbers in each of several targets, got words; take one"
            )

    def _refuse_unknown(self, key: str, name: str) -> None:
        names = self._table.names
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"it has {', '.join(names[:20])}"
            raise DataError(f"{self._table.where}: {KEY}.{key}: no column {name!r:.60}: {remedy}")

    def _usual_target(self) -> tuple[str, ...]:
        for name in USUAL_TARGETS:
            if name in self._table.names:
                return (name,)
        raise DataError(
            f"{self._table.where}: no column is named {', '.join(USUAL_TARGETS)}: set {KEY}.target to one of "
            f"{', '.join(self._table.names[:20])}"
        )

    def first_look(self, report: Report) -> _FirstLook:
        """The words, classes and groups of all rows."""
        look = _FirstLook(words={name: _Numbered() for name in self.inputs if name in self._words})
        for chunk in self._table.chunks((*look.words, *self.target, *self.aside), report):
            look.rows += len(chunk.places)
            for name, numbered in look.words.items():
                numbered.of(self._table.texts(chunk, name))
                if len(numbered.numbers) > MOST_WORDS:
                    raise DataError(
                        f"{self._table.where}: {name}: expected at most {MOST_WORDS} different words, got more; leave "
                        f"the column out of {KEY}.inputs"
                    )
            self._look_at_targets(chunk, look)
            if self._given.group is not None:
                look.group_of.extend(look.groups.of(self._table.texts(chunk, self._given.group)))
            if self._given.test is not None:
                look.test.extend(self._tests(chunk, self._given.test))
        if not look.rows:
            raise DataError(f"{self._table.where}: expected at least one row, got none; export it again")
        return look

    def _look_at_targets(self, chunk: Chunk, look: _FirstLook) -> None:
        if self._classes_are_words:
            look.class_of.extend(look.classes.of(self._table.texts(chunk, self.target[0])))
            return
        for name in self.target:
            values = self._table.numbers(chunk, name)
            look.whole = look.whole and bool((values == np.floor(values)).all())
            look.zero_or_one = look.zero_or_one and bool(((values == 0) | (values == 1)).all())
            if len(self.target) == 1 and look.whole and len(look.classes.numbers) <= MOST_CLASSES:
                look.class_of.extend(look.classes.of(int(value) for value in values.tolist()))

    def _tests(self, chunk: Chunk, name: str) -> list[bool]:
        found = []
        for row, word in enumerate(self._table.texts(chunk, name)):
            if word.lower() not in _TEST:
                place = self._table.place(chunk.places[row])
                raise DataError(f"{place}: {name}: expected train or test, or 0 or 1, got {word!r:.60}; correct it")
            found.append(_TEST[word.lower()])
        return found

    def _task(self, look: _FirstLook) -> str:
        asked, several = self._given.task, len(self.target) > 1
        if asked is None:
            if several:
                return MULTILABEL if look.zero_or_one else REGRESSION
            if not self._classes_are_words and look.whole and len(look.classes.numbers) > MOST_WHOLE_NUMBERS:
                raise DataError(
                    f"{self._table.where}: {self.target[0]}: more than {MOST_WHOLE_NUMBERS} different whole numbers: "
                    f"set {KEY}.task to regression, or to classification if these are classes"
                )
            return CLASSIFICATION if self._classes_are_words or look.whole else REGRESSION
        fits = {
            CLASSIFICATION: not several and (self._classes_are_words or look.whole),
            MULTILABEL: not self._classes_are_words and look.zero_or_one,
            REGRESSION: not self._classes_are_words,
        }
        if not fits[asked]:
            what = {CLASSIFICATION: "one column of words or whole numbers", MULTILABEL: "columns of 0 and 1",
                    REGRESSION: "columns of numbers"}[asked]  # fmt: skip
            got = ", ".join(self.target)[:80]
            raise DataError(
                f"{self._table.where}: {KEY}.task: {asked} needs {what}, got {got}; take another task or target"
            )
        return asked

    def examples(self, look: _FirstLook) -> Examples:
        """The second reading."""
        task = self._task(look)
        labels: tuple[str, ...] = self.target if task == MULTILABEL or len(self.target) > 1 else ()
        classes = np.zeros(look.rows, np.int32)
        if task == CLASSIFICATION:
            words, places = look.classes.sorted()
            if len(words) > MOST_CLASSES:
                raise DataError(
                    f"{self._table.where}: {self.target[0]}: more than {MOST_CLASSES} classes; take another"
                )
            labels, classes = tuple(map(str, words)), places[np.frombuffer(look.class_of, np.int32)]
        groups = self._groups(look)
        test = self._test_rows(look, classes, groups)
        self._refuse_untrained(labels if task == CLASSIFICATION else (), classes[~test])
        batches = Batches(self._batches(task, look, classes, groups, test), look.rows)
        return Examples(batches, task, labels, standardized=True)

    def _groups(self, look: _FirstLook) -> NDArray[np.int32]:
        if self._given.group is None:
            return np.full(look.rows, NO_SUBJECT, np.int32)
        words, places = look.groups.sorted()
        if all(word.isdecimal() and int(word) <= LARGEST_INTEGER for word in words):
            by_number = np.array([int(word) for word in look.groups.numbers], np.int32)
        else:
            by_number = places
        found: NDArray[np.int32] = by_number[np.frombuffer(look.group_of, np.int32)]
        return found

    def _test_rows(self, look: _FirstLook, classes: NDArray[np.int32], groups: NDArray[np.int32]) -> NDArray[np.bool_]:
        if self._given.test is not None:
            return np.frombuffer(look.test, np.int8).astype(np.bool_)
        test = np.zeros(look.rows, np.bool_)
        if self._given.group is not None:
            known = np.unique(groups)
            if len(known) < 2:
                raise DataError(
                    f"{self._table.where}: {self._given.group}: expected at least 2 groups, so that one can be held "
                    f"out for the test, got one; name a column in {KEY}.test, or leave {KEY}.group out"
                )
            return np.isin(groups, known[held_out(len(known), 0)])
        for label in np.unique(classes):
            members = np.flatnonzero(classes == label)
            test[members[held_out(len(members), int(label))]] = True
        return test

    def _refuse_untrained(self, labels: Sequence[str], trained: NDArray[np.int32]) -> None:
        absent = np.flatnonzero(np.bincount(trained, minlength=len(labels)) == 0) if labels else np.empty(0, int)
        if absent.size:
            raise DataError(
                f"{self._table.where}: {self.target[0]}: class {labels[int(absent[0])]!r:.60} has no training row; add "
                f"some, or remove the class"
            )

    def _batches(
        self, task: str, look: _FirstLook, classes: NDArray[np.int32], groups: NDArray[np.int32],
        test: NDArray[np.bool_],
    ) -> Iterator[Batch]:  # fmt: skip
        words = {name: {word: place for place, word in enumerate(sorted(numbered.numbers))}
                 for name, numbered in look.words.items()}  # fmt: skip
        first = 0
        for chunk in self._table.chunks((*self.inputs, *self.target)):
            rows = slice(first, first + len(chunk.places))
            first = rows.stop
            if first > look.rows:
                raise DataError(f"{self._table.where}: changed while it was read; run it again")
            x = np.concatenate([self._input(chunk, name, words.get(name)) for name in self.inputs], axis=1)
            y: NDArray[Any] = classes[rows]
            if task != CLASSIFICATION:
                y = np.stack([self._table.numbers(chunk, name) for name in self.target], axis=1).astype(np.float32)
            for is_test in (False, True):
                chosen = test[rows] == is_test
                if chosen.any():
                    yield Batch(x[chosen], y[chosen], groups[rows][chosen], test=is_test)

    def _input(self, chunk: Chunk, name: str, words: dict[str, int] | None) -> NDArray[np.float32]:
        if words is None:
            return self._table.numbers(chunk, name).astype(np.float32)[:, None]
        found = self._table.texts(chunk, name)
        one_hot = np.zeros((len(found), len(words)), np.float32)
        try:
            one_hot[np.arange(len(found)), [words[word] for word in found]] = 1.0
        except KeyError:
            raise DataError(f"{self._table.where}: changed while it was read; run it again") from None
        return one_hot
