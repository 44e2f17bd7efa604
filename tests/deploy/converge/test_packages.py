"""`reset` knows what an installation added, however that ended; with a real dpkg in a folder."""

import pytest

from deploy.converge.debian import PLANNED, keep_packages
from deploy.converge.subject import Shell
from deploy.converge.subjects import reset_script
from tests.deploy.converge.examined import roots
from tests.deploy.converge.pi import thesis, untouched
from tests.deploy.converge.played_node import PlayedNode, about_package

ADDED = "/var/lib/pscluster-deploy/packages"
BOTH = {"libnft", "nftables"}
KILLED = "kill -KILL $PPID; exit 1"
RESET = reset_script(thesis(), "rpi01", data=False)


def script(*present: str, cut_off: bool = False) -> str:
    """What a deployment runs where nftables is wanted and others are there."""
    files = {PLANNED: roots("nftables\n")} if cut_off else {}
    facts = untouched(packages=dict.fromkeys(present, "1"), files=files)
    (change,) = keep_packages(facts, ["nftables"])
    (step,) = change.steps
    assert isinstance(step, Shell)
    return step.script


def installing(node: PlayedNode, last: str = "installed", then: str = "exit 0") -> None:
    """`apt-get install` brings libnft, and nftables in state `last`, and goes on with `then`."""
    library = about_package("libnft", "", "installed")
    node.write("/brought", library + about_package("nftables", "libnft", last))
    planned = (
        "Inst libnft (1 Debian)\nInst base-files [1] (2 Debian)\nInst nftables:all (1 Debian)\n"
    )
    node.write("/planned", planned)
    node.packages(
        {"base-files": ""},
        before_apt=f'case "$*" in *" -s "*install*) cat {node.root}/planned; exit ;;'
        f" *install*) cat {node.root}/brought >>{node.root}/var/lib/dpkg/status; {then} ;; esac",
    )
    for name in BOTH:
        node.write(f"/var/lib/dpkg/info/{name}.list", "")


def remembered(node: PlayedNode) -> set[str]:
    return set(node.at(ADDED).read_text().split())


def test_what_an_installation_adds_is_remembered(node: PlayedNode) -> None:
    installing(node)
    node.does(script())
    assert remembered(node) == BOTH
    assert not node.at(PLANNED).exists()


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_an_installation_that_was_killed_is_gone_on_with_and_remembered(
    node: PlayedNode, signal: str
) -> None:
    installing(node, "unpacked", then=f"kill -{signal} $PPID; exit 1")
    assert node.run(script()).returncode != 0
    assert node.at(PLANNED).exists() == (signal == "KILL")
    assert node.installed() == {"base-files", "libnft"}

    node.apt("exit 0")
    node.does(script())
    assert node.installed() == {"base-files", *BOTH}  # dpkg went on with it
    assert remembered(node) == BOTH


def test_a_reset_after_an_installation_that_was_killed_removes_what_it_added(
    node: PlayedNode,
) -> None:
    """What a person installs after it is theirs."""
    installing(node, "unpacked", then=KILLED)
    node.run(script())
    with node.at("/var/lib/dpkg/status").open("a") as status:
        status.write(about_package("postgresql"))
    node.write("/var/lib/dpkg/info/postgresql.list", "")
    node.apt("")
    node.does(RESET)
    assert node.installed() == {"base-files", "postgresql"}
    assert not node.at("/var/lib/pscluster-deploy").exists()


def test_what_was_installed_before_somebody_could_note_it_is_noted_alone(node: PlayedNode) -> None:
    installing(node, then=KILLED)
    node.run(script())
    node.does(script("nftables", cut_off=True))
    assert remembered(node) == BOTH
    assert not node.at(PLANNED).exists()


def test_packages_that_are_there_are_not_asked_for() -> None:
    names = ("nftables", "nfs-common")
    assert [*keep_packages(untouched(packages=dict.fromkeys(names, "1")), names)] == []
    (change,) = keep_packages(untouched(packages={"nftables": "1"}), names)
    assert change.subject == "nfs-common"


LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 81 (apt-get)"
UNKNOWN = "E: Unable to locate package nftables"


def with_empty_lists(node: PlayedNode, update: str) -> None:
    """A fresh card: apt knows nftables once `update`, lines of shell, has brought the lists."""
    installing(node)
    lists = f"{node.root}/lists"
    asked = node.at("commands/apt-get").read_text()
    before = asked.partition("\n")[2].partition("case ")[2].partition("\n")[0]
    unknown = f"*install*) [ -e {lists} ] || {{ echo '{UNKNOWN}' >&2; exit 100; }} ;;"
    node.apt(f'lists={lists}\ncase "$*" in *update*) {update} ;; {unknown} esac\ncase {before}')
    node.command("sleep", f'echo "sleep $*" >>{node.root}/done')


def test_another_apt_that_holds_the_lists_is_waited_for(node: PlayedNode) -> None:
    german = "E: Sperre /var/lib/apt/lists/lock konnte nicht bekommen werden."
    said = f"[ \"$LC_ALL\" = C ] && echo '{LOCKED}' >&2 || echo '{german}' >&2"
    held = f"[ -e $lists.asked ] || {{ touch $lists.asked; {said}; exit 100; }}"
    with_empty_lists(node, f"{held}; touch $lists; exit 0")
    node.does(script())
    assert node.done.count("sleep 2") == 1
    assert remembered(node) == BOTH


@pytest.mark.parametrize(
    ("update", "said", "remedy", "waits"),
    [
        (f"echo '{LOCKED}' >&2; exit 100", LOCKED, "start again when it has ended", 60),
        ("exit 0", UNKNOWN, "look into `apt-get update` there", 0),
    ],
    ids=["an apt that does not end", "no source with the package"],
)
def test_who_is_to_blame_is_named(
    node: PlayedNode, update: str, said: str, remedy: str, waits: int
) -> None:
    with_empty_lists(node, update)
    done = node.run(script())
    assert done.returncode == 100
    assert said in done.stderr
    assert remedy in done.stderr.splitlines()[-1]
    assert node.done.count("sleep 2") == waits  # for two minutes


def test_a_source_of_the_owner_that_is_broken_stops_no_installation(node: PlayedNode) -> None:
    unsigned = "E: The repository http://old Release is not signed"
    with_empty_lists(node, f"touch $lists; echo '{unsigned}' >&2; exit 100")
    assert node.run(script()).returncode == 0
    assert node.installed() >= BOTH


def test_a_package_of_the_owner_that_cannot_be_configured_stops_no_installation(
    node: PlayedNode,
) -> None:
    """apt then ends with 100, whatever became of ours."""
    failed = "E: Sub-process dpkg returned an error code"
    installing(node, then=f"echo '{failed}' >&2; exit 100")
    assert node.run(script()).returncode == 0
    assert remembered(node) == BOTH
