"""What a node says of itself, read from answers of other machines."""

import base64
import tarfile
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.ground.errors import ClusterError
from deploy.converge.machine_facts import MachineFacts, MountFact, UnitFact
from deploy.converge.survey import SECTION, read_facts
from tests.deploy.converge.tables import TABLES, rows

SECTIONS = tuple(TABLES["answer"])
ROLE = "pscluster-worker-0.service"


def answer(**sections: str) -> str:
    """As a node prints it; the blank line before each section is the script's."""
    said = "".join(f"\n{SECTION}{name}\n{text}\n" for name, text in sections.items())
    return f"{said}\n{SECTION}end\n\n"


def facts_of(**changes: str) -> MachineFacts:
    whole = answer(**(TABLES["answer"] | changes))
    return read_facts(whole, 1_800_000_099.0, 1_800_000_100.0)


def test_a_pi_s_answer() -> None:
    facts = facts_of()
    assert {name: getattr(facts, name) for name in TABLES["facts"]} == TABLES["facts"]
    shared = MountFact("192.168.1.26:/srv/pscluster/shared", "nfs4", "0:50", "/", read_only=True)
    assert facts.mounts["/mnt/pscluster/shared"] == shared
    assert facts.mounts["/mnt/a b"] == MountFact("/dev/mmcblk0p2", "ext4", "179:2", "/a b")
    assert facts.place("/srv/pscluster/shared") == ("179:2", "/data/shared")
    assert facts.place("/mnt/a b/c") == ("179:2", "/a b/c")


def test_a_unit_with_its_process() -> None:
    facts = facts_of()
    assert facts.unit(ROLE) == UnitFact(
        *("loaded", "active", "running", "enabled", False, "success", 812, 2, "serves; a = b"),
        release="feedfacefeedface",
        started_seconds=1_800_000_060.0,
        anonymous_memory_bytes=90_000 * 1024,
        files=TABLES["unit_files"],
        identity="891:27",
    )
    assert facts.unit("nfs-server.service") is None
    assert facts.unit("nobody.service") is None


def test_a_process_that_ended_while_it_was_looked_at() -> None:
    unit = facts_of(processes="812  ").unit(ROLE)
    assert unit is not None
    assert unit.release is None


def test_facts_that_are_not_there_are_not_there() -> None:
    facts = read_facts(answer(**dict.fromkeys(SECTIONS, "")), 10.0, 12.0)
    assert {name: getattr(facts, name) for name in TABLES["no_facts"]} == TABLES["no_facts"]


@rows("other_answers")
def test_other_machines(row: Any) -> None:
    assert getattr(facts_of(**{row["section"]: row["text"]}), row["fact"]) == row["value"]


@rows("garbage")
def test_garbage_is_an_error_of_one_line(row: Any) -> None:
    with pytest.raises(ClusterError, match=r"^[^\n]*cannot be read[^\n]*$"):
        facts_of(**row)


def test_a_tar_whose_names_never_end_is_an_error() -> None:
    name = tarfile.TarInfo("n")
    name.type = tarfile.GNUTYPE_LONGNAME
    endless = base64.b64encode(name.tobuf() * 3000).decode()
    test_garbage_is_an_error_of_one_line({"files": endless})


def test_a_missing_section_is_an_error() -> None:
    sections = {name: text for name, text in TABLES["answer"].items() if name != "units"}
    with pytest.raises(ClusterError, match=r"lacks the part 'units'"):
        read_facts(answer(**sections), 0.0, 1.0)


def test_the_first_section_of_a_name_counts() -> None:
    whole = answer(**TABLES["answer"])
    forged = whole.replace(f"\n{SECTION}end", f"\n{SECTION}current\n/opt/x/else\n{SECTION}end")
    assert forged != whole
    assert read_facts(forged, 0.0, 1.0).current == read_facts(whole, 0.0, 1.0).current


def test_a_process_s_name_is_a_word_and_no_port() -> None:
    name = 'x",pid=1,fd=3))\nLISTEN 0 1 0.0.0.0:2222 0.0.0.0:* users:(("y'
    holders = f'{TABLES["answer"]["holders"]}\nLISTEN 0 1 *:9999 *:* users:(("{name}",pid=9,fd=3))'
    assert set(facts_of(holders=holders).listening) == set(facts_of().listening)


@given(end=st.integers(0, 10_000))
@example(end=0)
@settings(max_examples=30, deadline=None)
def test_an_answer_that_was_cut_off_is_no_answer(end: int) -> None:
    whole = answer(**TABLES["answer"])
    with pytest.raises(ClusterError, match="cut off"):
        read_facts(whole[: min(end, len(whole) - len(f"{SECTION}end\n\n"))], 0.0, 1.0)


@given(section=st.sampled_from(SECTIONS), text=st.text(max_size=60))
@settings(max_examples=80, deadline=None)
def test_whatever_a_command_prints_there_are_facts_or_one_error(section: str, text: str) -> None:
    try:
        told = repr(facts_of(**{section: text}))
    except ClusterError as error:
        told = str(error)
    assert told.startswith(("MachineFacts(", "the node's answer about itself"))
