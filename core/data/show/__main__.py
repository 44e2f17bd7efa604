"""`python -m core.data.show [SOURCE]`: what recordings hold, or what is wrong.

It finds the known format that they fit, or writes a draft of one. It shows readings, rates and
people of described recordings, and classes, people, channels and a few of the windows of all.

Windows are read as a training would, into the same cache. For `fab data show`, which does not know
this room.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.data.described.known_formats import BESIDE, described, open_questions
from core.data.described.members import Member, members_of
from core.data.described.session_rows import fits
from core.data.prepare import prepare
from core.data.publish import add_settings
from core.data.show import Facts, portrait_of, recording_sections, window_sections
from core.data.show.draft import Draft, draft_of
from core.data.show.recording import look_at_recordings, named_lines
from core.data.source import DESCRIBED, PROJECT_ROOT, SYNTHETIC, Source, find_source
from core.ground.errors import ClusterError, DataError, ExitCode
from core.ground.files import atomic_write, prepared_folder, user_cache
from core.logs import say, say_json
from core.logs.bars import bar
from core.web.sections import Section, aligned_lines, page_of, terminal_lines


@dataclass(frozen=True)
class ChosenSource:
    """What to show: recordings of a kind, or a draft for those that no reader knows.

    format: the name or file of the format; None where the kind needs none. is_labelled: whether
    the format's paths say who, and what was done.
    """

    source: Source | None
    format: str | None = None
    is_labelled: bool = True
    draft: Draft | None = None
    members: Sequence[Member] | None = None


def choose_format(
    source_argument: str | None, options: Mapping[str, Any], *, is_draft_asked: bool
) -> ChosenSource:
    """Find what recordings are. Raises DataError, also where a person has to choose a format."""
    named = options.get("format")
    problem: DataError | None = None
    try:
        source: Source | None = find_source(
            source_argument, os.environ, PROJECT_ROOT, user_cache(), named
        )
    except DataError as refused:
        source = None
        problem = refused
    path = Path(os.path.expanduser(source_argument or ""))
    is_made_up = source_argument in (None, "", SYNTHETIC)
    if is_made_up or not path.exists() or (source is not None and not is_draft_asked):
        if problem is not None:
            raise problem
        return ChosenSource(source, named)
    members = [member for member in members_of(path) if member.path.is_file()]
    if not is_draft_asked:
        formats = fits(path, members)
        if len(formats.by_name) == 1:
            name = formats.by_name[0]
            why = f"{path} (fits the format {name})"
            return ChosenSource(
                Source(DESCRIBED, path, why), name, formats.is_labelled, members=members
            )
        _refuse_several(path, formats.by_name, formats.by_shape)
    draft = draft_of(path.name, members)
    if draft is not None:
        return ChosenSource(None, draft=draft)
    if problem is not None:
        raise problem
    return ChosenSource(source)


def _refuse_several(path: Path, by_name: Sequence[str], by_shape: Sequence[str]) -> None:
    if by_name:
        raise DataError(
            f"{path}: fits the formats {' and '.join(by_name)}; choose one with --format, or write"
            " a description with --draft FILE"
        )
    if by_shape:
        raise DataError(
            f"{path}: has as many columns as {' or '.join(by_shape)}, but no names that say it;"
            f" give --format {by_shape[0]} if it is that, else write a description with --draft"
            " FILE"
        )


def write_draft(draft: Draft, path: Path, *, is_forced: bool) -> None:
    """Write a draft. Raises DataError where the file is there already, and ClusterError."""
    if path.exists() and not is_forced:
        raise DataError(
            f"{path}: is there already; use it with --format, name another file with --draft, or"
            " replace it with --force"
        )
    atomic_write(path, draft.text.encode(), "give another --draft")


def main(arguments: Sequence[str] | None = None) -> int:
    """Find, prepare, and show what was found."""
    command_line = _parser().parse_args(arguments)
    try:
        choice = choose_format(
            command_line.source, command_line.options, is_draft_asked=command_line.draft is not None
        )
        if choice.draft is not None:
            path = command_line.draft or Path(BESIDE)
            write_draft(choice.draft, path, is_forced=command_line.force)
            _say_draft(command_line, choice.draft, path)
            return ExitCode.DONE
        return _show(command_line, choice)
    except ClusterError as problem:
        _say_problem(problem)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        return ExitCode.CANCELLED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m core.data.show", description=__doc__)
    parser.add_argument(
        "source", nargs="?", help="a path or `synthetic`; the search order without it"
    )
    add_settings(parser)
    parser.add_argument(
        "--each",
        type=int,
        default=1,
        choices=range(10),
        metavar="N",
        help="windows of each class, 0-9",
    )
    parser.add_argument("--out", type=Path, help="write an HTML page to this file too")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--draft", type=Path, help="write a draft of a format to this file")
    parser.add_argument("--force", action="store_true", help="replace a draft that is there")
    return parser


def _show(command_line: argparse.Namespace, choice: ChosenSource) -> int:
    """Show recordings, and what is wrong with windows of them. Raises ClusterError."""
    recordings = _look(command_line, choice)
    windows = None
    problem = None
    try:
        windows = _portrait(command_line, choice)
    except DataError as refusal:
        if recordings is None:
            raise
        problem = refusal
    sections: list[Section] = []
    title = "recordings"
    facts: Facts = {}
    if windows is not None:
        facts |= windows
    if recordings is not None:
        facts |= {"format": choice.format, "recordings": recordings}
        sections += recording_sections(recordings)
        title = recordings["title"]
    if windows is not None:
        sections += window_sections(windows)
        title = windows["name"]
    if problem is not None:
        facts["problem"] = str(problem)
    if command_line.out is not None:
        atomic_write(command_line.out, page_of(title, sections).encode(), "give another --out")
    if command_line.json:
        say_json(facts)
    else:
        if choice.source is not None and recordings is not None:
            say(choice.source.why)
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
        for line in terminal_lines(sections, blocks=encoding.startswith("utf")):
            say(line)
        if windows is not None:
            say(f"\nprepared in {windows['folder']}")
        if command_line.out is not None:
            say(f"page: {command_line.out}")
    if problem is None:
        return ExitCode.DONE
    _say_problem(problem)
    return int(problem.exit_code)


def _look(command_line: argparse.Namespace, choice: ChosenSource) -> Facts | None:
    """Return what described recordings hold; None for others. Raises DataError."""
    source = choice.source
    if source is None or source.path is None or source.kind != DESCRIBED:
        return None
    form = described(choice.format, source.path)
    if command_line.options.get("sampling_hz") is not None:
        time = form.time.model_copy(update={"hertz": command_line.options["sampling_hz"]})
        form = form.model_copy(update={"time": time})
    return look_at_recordings(
        source.path, form, is_labelled=choice.is_labelled, members=choice.members
    )


def _portrait(command_line: argparse.Namespace, choice: ChosenSource) -> Facts | None:
    """Return what the windows hold; None where no path says whose they are. Raises DataError."""
    if not choice.is_labelled:
        return None
    assert choice.source is not None
    options = command_line.options
    if choice.source.kind == DESCRIBED:
        options = {**options, "format": choice.format}
    with bar() as report:
        dataset = prepare(
            choice.source,
            window_steps=command_line.window_steps,
            window_stride=command_line.window_stride,
            seed=command_line.seed,
            cache=prepared_folder(),
            options=options,
            progress=report,
        )
    return portrait_of(dataset, command_line.each)


def _say_draft(command_line: argparse.Namespace, draft: Draft, path: Path) -> None:
    questions = open_questions(draft.text)
    if command_line.json:
        numbered_questions = [f"line {line}: {question}" for line, question in questions]
        say_json({"draft": str(path), "questions": numbered_questions})
        return
    rows = [
        [column.name, ", ".join(column.samples), column.unit_of_time] for column in draft.columns
    ]
    for line in aligned_lines(["column", "values such as", "time in"], rows):
        say(line)
    say(
        f"\n{command_line.source} fits no known format; a draft of one is in {path}, with"
        f" {len(questions)} questions:"
    )
    for number, question in questions:
        say(f"  line {number}: {question}")
    say(f"next: answer them, then fab data show {command_line.source} --format {path}")


def _say_problem(problem: ClusterError) -> None:
    say(problem, error=True)
    for line in named_lines(str(problem)):
        say(line, error=True)


if __name__ == "__main__":
    sys.exit(main())
