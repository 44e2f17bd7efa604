"""Examples from a table: which columns are what, and what their values become.

A column is an input, the target, the group or says which rows are the test.

The file is read twice, a chunk at a time: first the words, the classes and the groups, then the
rows. Between the two stand 9 bytes a row: its class, its group and whether it is for the test.
"""

import difflib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.alike import refuse_alike
from core.data.batch import Batch, Examples
from core.data.class_folders import held_out
from core.data.column_kinds import KEY, ColumnKinds
from core.data.dataset import CLASSIFICATION, MULTILABEL, REGRESSION, HeldOut, some_of
from core.data.given import Batches
from core.data.recordings import NO_SUBJECT, ColumnMap, Report
from core.data.stored_values import MOST_CLASSES
from core.data.table import LARGEST_INTEGER
from core.data.table_file import Chunk, TableFile, as_numbers
from core.errors import DataError

USUAL_TARGETS = ("target", "label", "class", "y")
MOST_WHOLE_NUMBERS = 1000
"""Different whole numbers that are taken for classes without `columns.task`."""
_TEST = {"test": True, "1": True, "true": True, "train": False, "0": False, "false": False}


class _Numbered:
    """Words in the order in which they first come, and the number of each."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, values: Iterable[Any]) -> list[int]:
        """Numbers of these words; new ones get the next."""
        numbers = self.numbers
        return [numbers.setdefault(value, len(numbers)) for value in values]

    def sorted(self, meaning: Callable[[Any], Any] = str) -> tuple[list[Any], NDArray[np.int32]]:
        """What the words mean, in its order and each once, and the place in it by number."""
        found = {word: meaning(word) for word in self.numbers}
        means = sorted(set(found.values()))
        place_of = {each: place for place, each in enumerate(means)}
        places = np.empty(len(found), np.int32)
        for word, number in self.numbers.items():
            places[number] = place_of[found[word]]
        return means, places


@dataclass
class _FirstLook:
    """What the first reading found."""

    words: dict[str, list[str]] = field(default_factory=dict)
    """The words of each input that holds some, in alphabetical order."""
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
    """The rows of a table as float32 (inputs,).

    Numbers stay as they are; each word has a column of 0 and 1.

    Raises DataError naming row or column, also while the batches are drawn.
    """
    mapped = _Mapping(table, columns)
    look = mapped.first_look(report)
    return mapped.examples(look)


class _Mapping:
    """The columns of one table by what they are for."""

    def __init__(self, table: TableFile, columns: ColumnMap) -> None:
        self._table = table
        self._given = columns
        named = {
            "target": columns.target,
            "inputs": columns.inputs,
            "categories": columns.categories,
            "group": (columns.group,) if columns.group else (),
            "test": (columns.test,) if columns.test else (),
        }
        for key, names in named.items():
            for name in names:
                self._refuse_unknown(key, name)
        self.target = columns.target or self._usual_target()
        self.aside = tuple(name for name in (columns.group, columns.test) if name is not None)
        taken = {*self.target, *self.aside}
        self.inputs = columns.inputs or tuple(
            name for name in table.names if name not in taken | table.index
        )
        for name in self.inputs:
            if name in taken or self.inputs.count(name) > 1:
                raise DataError(
                    f"{table.where}: {KEY}.inputs: {name!r:.60} is named twice; a column is one"
                    " thing"
                )
        if not self.inputs:
            raise DataError(f"{table.where}: expected a column to predict from, got none; add some")
        self._classes_are_words = False

    def _refuse_unknown(self, key: str, name: str) -> None:
        names = self._table.names
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            if near:
                remedy = f"did you mean {near[0]}?"
            else:
                remedy = f"it has {', '.join(names[:20])}"
            raise DataError(f"{self._table.where}: {KEY}.{key}: no column {name!r:.60}: {remedy}")

    def _usual_target(self) -> tuple[str, ...]:
        names = self._table.names
        axes = {"x", "z"} <= {name.lower() for name in names}
        for name in USUAL_TARGETS:
            if name in names and not (axes and name == "y"):
                return (name,)
        if axes and "y" in names:
            beside = ", and y beside x and z is an axis"
        else:
            beside = ""
        raise DataError(
            f"{self._table.where}: no column is named {', '.join(USUAL_TARGETS)}{beside}: set"
            f" {KEY}.target to one of {', '.join(names[:20])}"
        )

    def first_look(self, report: Report) -> _FirstLook:
        """The words, classes and groups of all rows."""
        look = _FirstLook()
        kinds = ColumnKinds(self._table, (*self.inputs, *self.target), self._given.categories)
        for chunk in self._table.chunks((*self.inputs, *self.target, *self.aside), report):
            look.rows += len(chunk.places)
            kinds.take(chunk)
            self._look_at_targets(chunk, look)
            if self._given.group is not None:
                look.group_of.extend(look.groups.of(self._table.texts(chunk, self._given.group)))
            if self._given.test is not None:
                look.test.extend(self._tests(chunk, self._given.test))
        if not look.rows:
            raise DataError(
                f"{self._table.where}: expected at least one row, got none; export it again"
            )
        holding_words = kinds.words()
        self._classes_are_words = len(self.target) == 1 and self.target[0] in holding_words
        wordy = [name for name in self.target if name in holding_words]
        if wordy and not self._classes_are_words:
            raise DataError(
                f"{self._table.where}: {wordy[0]}: expected numbers in each of several targets, got"
                " words; take one"
            )
        kinds.refuse_fine(set(self.inputs) - holding_words)
        look.words = {name: kinds.different(name) for name in self.inputs if name in holding_words}
        return look

    def _look_at_targets(self, chunk: Chunk, look: _FirstLook) -> None:
        for name in self.target:
            given: Any = chunk.columns[name]
            values = as_numbers(given)
            look.whole = (
                look.whole and values is not None and bool((values == np.floor(values)).all())
            )
            look.zero_or_one = (
                look.zero_or_one
                and values is not None
                and bool(((values == 0) | (values == 1)).all())
            )
        if len(self.target) == 1 and len(look.classes.numbers) <= MOST_CLASSES:
            if isinstance(given, np.ndarray):
                keys = given.tolist()
            else:
                keys = [value.strip() for value in given]
            look.class_of.extend(look.classes.of(keys))

    def _tests(self, chunk: Chunk, name: str) -> list[bool]:
        found = []
        for row, word in enumerate(self._table.texts(chunk, name)):
            if word.lower() not in _TEST:
                place = self._table.place(chunk.places[row])
                raise DataError(
                    f"{place}: {name}: expected train or test, or 0 or 1, got {word!r:.60};"
                    " correct it"
                )
            found.append(_TEST[word.lower()])
        return found

    def _task(self, look: _FirstLook) -> str:
        asked = self._given.task
        several = len(self.target) > 1
        if asked is None:
            if several:
                if look.zero_or_one:
                    return MULTILABEL
                return REGRESSION
            if (
                not self._classes_are_words
                and look.whole
                and len(look.classes.numbers) > MOST_WHOLE_NUMBERS
            ):
                raise DataError(
                    f"{self._table.where}: {self.target[0]}: more than {MOST_WHOLE_NUMBERS}"
                    f" different whole numbers: set {KEY}.task to regression, or to classification"
                    " if these are classes"
                )
            if self._classes_are_words or look.whole:
                return CLASSIFICATION
            return REGRESSION
        fits = {
            CLASSIFICATION: not several and (self._classes_are_words or look.whole),
            MULTILABEL: not self._classes_are_words and look.zero_or_one,
            REGRESSION: not self._classes_are_words,
        }
        if not fits[asked]:
            what = {
                CLASSIFICATION: "one column of words or whole numbers",
                MULTILABEL: "columns of 0 and 1",
                REGRESSION: "columns of numbers",
            }[asked]
            got = ", ".join(self.target)[:80]
            raise DataError(
                f"{self._table.where}: {KEY}.task: {asked} needs {what}, got {got}; take another"
                " task or target"
            )
        return asked

    def examples(self, look: _FirstLook) -> Examples:
        """The second reading."""
        task = self._task(look)
        if task == MULTILABEL or len(self.target) > 1:
            labels: tuple[str, ...] = self.target
        else:
            labels = ()
        classes = np.zeros(look.rows, np.int32)
        if task == CLASSIFICATION:
            if len(look.classes.numbers) > MOST_CLASSES:
                raise DataError(
                    f"{self._table.where}: {self.target[0]}: more than {MOST_CLASSES} classes; take"
                    " another"
                )
            words, places = look.classes.sorted(str if self._classes_are_words else _whole)
            labels = tuple(map(str, words))
            if self._classes_are_words:
                refuse_alike(self._table.where, f"{self.target[0]}: labels", labels)
            classes = places[np.frombuffer(look.class_of, np.int32)]
        groups = self._groups(look)
        test = self._test_rows(look, classes, groups)
        self._refuse_untrained(labels if task == CLASSIFICATION else (), classes[~test])
        batches = Batches(self._batches(task, look, classes, groups, test), look.rows)
        return Examples(
            batches, task, labels, standardized=True, held_out=HeldOut(note=self._note(look))
        )

    def _note(self, look: _FirstLook) -> str:
        """Which inputs became several, and which columns are none."""
        counts = [f"{name} ({len(words)})" for name, words in look.words.items()]
        lines = []
        if counts:
            columns = "column" if len(counts) == 1 else "columns"
            lines.append(f"{len(counts)} {columns} of words: {some_of(counts)}")
        passed = [
            name
            for name in self._table.index
            if name not in (*self.inputs, *self.target, *self.aside)
        ]
        if passed:
            lines.append(
                f"no input is {', '.join(passed)}, the index of the rows: name it in {KEY}.inputs"
                " to use it"
            )
        return "; ".join(lines)

    def _groups(self, look: _FirstLook) -> NDArray[np.int32]:
        if self._given.group is None:
            return np.full(look.rows, NO_SUBJECT, np.int32)
        words, places = look.groups.sorted()
        if all(word.isdecimal() and int(word) <= LARGEST_INTEGER for word in words):
            by_number = np.array([int(word) for word in look.groups.numbers], np.int32)
        else:
            refuse_alike(self._table.where, f"{self._given.group}: groups", words)
            by_number = places
        found: NDArray[np.int32] = by_number[np.frombuffer(look.group_of, np.int32)]
        return found

    def _test_rows(
        self, look: _FirstLook, classes: NDArray[np.int32], groups: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        if self._given.test is not None:
            return np.frombuffer(look.test, np.int8).astype(np.bool_)
        test = np.zeros(look.rows, np.bool_)
        if self._given.group is not None:
            known = np.unique(groups)
            if len(known) < 2:
                raise DataError(
                    f"{self._table.where}: {self._given.group}: expected at least 2 groups, so that"
                    f" one can be held out for the test, got one; name a column in {KEY}.test, or"
                    f" leave {KEY}.group out"
                )
            return np.isin(groups, known[held_out(len(known), 0)])
        for label in np.unique(classes):
            members = np.flatnonzero(classes == label)
            test[members[held_out(len(members), int(label))]] = True
        return test

    def _refuse_untrained(self, labels: Sequence[str], trained: NDArray[np.int32]) -> None:
        if labels:
            absent = np.flatnonzero(np.bincount(trained, minlength=len(labels)) == 0)
        else:
            absent = np.empty(0, int)
        if absent.size:
            raise DataError(
                f"{self._table.where}: {self.target[0]}: class {labels[int(absent[0])]!r:.60} has"
                " no training row; add some, or remove the class"
            )

    def _batches(
        self,
        task: str,
        look: _FirstLook,
        classes: NDArray[np.int32],
        groups: NDArray[np.int32],
        test: NDArray[np.bool_],
    ) -> Iterator[Batch]:
        words = {
            name: {word: place for place, word in enumerate(found)}
            for name, found in look.words.items()
        }
        first = 0
        for chunk in self._table.chunks((*self.inputs, *self.target)):
            rows = slice(first, first + len(chunk.places))
            first = rows.stop
            if first > look.rows:
                raise DataError(f"{self._table.where}: changed while it was read; run it again")
            x = np.concatenate(
                [self._input(chunk, name, words.get(name)) for name in self.inputs], axis=1
            )
            y: NDArray[Any] = classes[rows]
            if task != CLASSIFICATION:
                y = np.stack(
                    [self._table.numbers(chunk, name) for name in self.target], axis=1
                ).astype(np.float32)
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
            raise DataError(
                f"{self._table.where}: changed while it was read; run it again"
            ) from None
        return one_hot


def _whole(word: Any) -> int:
    """The whole number that a target is, as text or float."""
    if isinstance(word, str) and word.removeprefix("-").isdecimal():
        return int(word)
    return int(float(word))
