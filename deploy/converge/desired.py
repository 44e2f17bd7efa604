"""What the machines of a cluster have to be, phase by phase: the inventory as resources. Its decisions are pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Self

from cluster.errors import ClusterError
from cluster.logs import terminal
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local
from deploy.cluster.places import (
    ACCOUNT_HOME,
    CONFIGURATION,
    CURRENT,
    DEPLOY_STATE,
    ENVIRONMENTS,
    RELEASES,
    ROOT,
    SERVICE_USER,
    STATE,
    UNIT_FOLDER,
    SharedFolders,
    shared_folders,
)
from deploy.cluster.selection import kept_tasks
from deploy.common.command_line import quoted
from deploy.converge.accounts import ServiceUser
from deploy.converge.change import Resource, Shell
from deploy.converge.check import Finding, data_of
from deploy.converge.code import Current, Environment, ReleaseChoice, UnpackedRelease, prune, prune_wheels
from deploy.converge.deployment import Desired, Order, Say
from deploy.converge.firewall import Firewall
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import of_inventory
from deploy.converge.packages import PLANNED, Packages
from deploy.converge.preflight import examine
from deploy.converge.publication import LocalData, Publication, Published, of_wheelhouse, publisher, room_needed
from deploy.converge.resources import (
    MONITOR_HINT,
    MONITOR_READ_MARK,
    Absent,
    Exports,
    File,
    Folder,
    FstabLines,
    Masked,
    MonitorFiles,
    Mounted,
    NotedFolders,
    Running,
    UnitFiles,
)
from deploy.converge.serving import running_service
from deploy.converge.subject import NodeWish
from deploy.converge.subjects import SUBJECTS
from deploy.converge.survey import Survey, machine_facts, survey
from deploy.monitor.files import prometheus_files
from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse
from deploy.render import firewall, storage, units

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task

ADDRESSES_PATH = f"{UNIT_FOLDER}/pscluster-.service.d/10-addresses.conf"
SLICE_PATH = f"{UNIT_FOLDER}/pscluster.slice"
FIREWALL_UNIT_PATH = f"{UNIT_FOLDER}/{firewall.UNIT}"
NODE_EXPORTER = "prometheus-node-exporter"
NFS_SERVER_UNIT = "nfs-server.service"
JOBS = f"{STATE}/jobs"
HOME = f"{STATE}/{ACCOUNT_HOME}"


@dataclass(frozen=True)
class Machines(Desired):
    """`Desired` for machines over SSH. `publications` are for the node that can write them.

    It refuses nothing: systemd stops what the inventory does not have, so that every start makes sense.
    """

    inventory: "Inventory"
    release: ReleaseChoice
    publications: tuple[Publication, ...] = ()
    wheelhouses: Mapping[str, Wheelhouse] = field(default_factory=dict)
    """By the key of the environment, where a node lacks one."""

    @property
    def folders(self) -> SharedFolders:
        """The shared folders."""
        return shared_folders(self.inventory)

    @property
    def publisher(self) -> str:
        """The node through which folders are published."""
        return publisher(self.inventory)

    def tasks(self, node: str) -> "tuple[Task, ...]":
        """The parameter servers and workers of a node."""
        return tuple(task for task in kept_tasks(self.inventory) if task.node == node)

    def ask(self, node: Connector) -> MachineFacts:
        """See `Desired`."""
        return machine_facts(node, self.questions(node.name))

    def asked(self, names: Sequence[str], phases: Sequence[str]) -> tuple[str, ...]:
        """See `Desired`. The storage server has to know a new node before that can mount it."""
        return tuple(dict.fromkeys((*names, self.publisher))) if "mounts" in phases else tuple(names)

    def findings(self, seen: Survey[MachineFacts]) -> tuple[Finding, ...]:
        """See `Desired`."""
        memory = of_inventory(self.inventory, {name: facts.cores for name, facts in seen.facts.items()})
        found: dict[str, tuple[Finding, ...]] = {}
        for name, failure in seen.lost.items():
            found[name] = (Finding("problem", f"{name} connection", failure.last_lines[0], name),)
        needed: set[str] = set()
        # The publisher last: it has to take what the fit nodes will install.
        for name, facts in sorted(seen.facts.items(), key=lambda one: one[0] == self.publisher):
            environment = self._environment(name, facts)
            lacks = set() if environment is None or environment in facts.environments else {environment}
            publishes_bytes = 0
            if name == self.publisher:
                publishes_bytes = room_needed(self.publications, needed | lacks, facts.published, self.folders)
            one = NodeWish(self.inventory, name, memory, environment, publishes_bytes)
            found[name] = examine(one, facts)
            if not any(finding.level == "problem" for finding in found[name]):
                needed |= lacks
        return tuple(finding for node in self.inventory.nodes for finding in found.get(node.name, ()))

    def check(self, fleet: Fleet) -> tuple[Finding, ...]:
        """See `Desired`: the nodes, and the recordings on this machine."""
        found = self.findings(survey(fleet, self.ask))
        if not any(job in ("train", "cv", "evaluate") for job in self.inventory.jobs.order):
            return found
        data = data_of(self.inventory, Local("this machine"))
        return (*found, Finding("ok" if data.holds else "problem", "data", data.line))

    def supplied(self, fit: Mapping[str, MachineFacts], order: Order, update: Say) -> Self:
        """See `Desired`: wheels that a node needs and the cache lacks are downloaded, recordings prepared."""
        publications: list[Publication] = []
        wheelhouses: dict[str, Wheelhouse] = {}
        if fit and {"publish", "code"} & {*order.phases}:
            missing = {
                (facts.python_version or "", facts.machine, self.release.packages_for(facts, serves=self._serves(name)))
                for name, facts in fit.items()
                if self._environment(name, facts) not in facts.environments
            }
            for python, machine, packages in sorted(missing):
                update(f"packages for Python {python} on {machine}: downloading what the cache lacks")
                wheelhouse = make_wheelhouse(packages, python, machine, say=lambda line: terminal.say(line, error=True))
                wheelhouses[wheelhouse.key] = wheelhouse
                publications.append(of_wheelhouse(wheelhouse))
        if order.publications is not None:
            update("preparing the recordings, if they are not yet")
            publications += order.publications()
        return replace(self, publications=tuple(publications), wheelhouses=wheelhouses)

    def tidy(self, fleet: Fleet, seen: Survey[MachineFacts], names: Sequence[str]) -> list[str]:
        """See `Desired`: old releases, environments and wheels."""
        done = prune(fleet, names, self.inventory.deployment.keep_releases)
        problems = [str(result) for result in done.values() if isinstance(result, ClusterError)]
        if {*names} != {node.name for node in self.inventory.nodes}:  # the others' needs are unknown
            return problems
        needed = {key for facts in seen.facts.values() for key in facts.environments}
        named = {self._environment(name, facts) for name, facts in seen.facts.items()}
        needed |= {key for key in named if key is not None}
        try:
            prune_wheels(fleet.nodes[self.publisher], self.folders, needed)
        except ClusterError as error:
            problems.append(str(error))
        return problems

    def questions(self, node: str) -> Questions:
        """What to ask of a node."""
        folders = self.folders
        named = [units.unit_name(task) for task in self.tasks(node)]
        watches = node == self.inventory.monitor_node
        # Only there: elsewhere, and with an external export, the same path may lie below the mount.
        serves = node == folders.server
        exported = tuple(f"{folders.export}/{part}" for part in ("shared", "data", "runs"))
        published = tuple(f"{folders.publish_folder}/{kind}" for kind in ("wheels", "prepared"))
        if watches:
            named += [units.MONITOR_UNIT, units.MONITOR_PACKAGE_UNIT]
        if self._serves(node):
            named.append(units.SERVICE_UNIT)
        certificate = self.inventory.service.certificate
        return Questions(
            files=(
                *(ROOT, ENVIRONMENTS, RELEASES, CURRENT, STATE, HOME, JOBS, CONFIGURATION),
                *(DEPLOY_STATE, f"{DEPLOY_STATE}/folders", PLANNED),
                *(storage.EXPORTS_PATH, storage.SETTINGS_PATH, ADDRESSES_PATH),
                *((folders.export, *exported) if serves else ()),
                units.SERVICE_DATA,
                *((certificate,) if certificate and self._serves(node) else ()),
                *((units.MONITOR_DATA, *dict(self._monitor_files()), MONITOR_READ_MARK) if watches else ()),
            ),
            units=(*named, firewall.UNIT, NFS_SERVER_UNIT, f"{NODE_EXPORTER}.service", *storage.OLD_NFS_UNITS),
            packages=("nfs-common", "nfs-kernel-server", "nftables", NODE_EXPORTER, units.MONITOR_PACKAGE),
            service_uid=self.inventory.deployment.service_uid,
            published=published if node == self.publisher else (),
            bound=exported if serves else (),
            space=(ENVIRONMENTS, *((folders.export,) if serves else ())),
            unfinished=published if serves else (),
        )

    def phase(self, phase: str, node: str, facts: MachineFacts) -> Sequence[Resource]:
        """The resources of one phase on one node, in order."""
        of_phase = {
            "prepare": self._prepare,
            "storage": self._storage,
            "mounts": self._mounts,
            "publish": self._publish,
            "code": self._code,
            "firewall": self._firewall,
            "services": self._services,
            "monitor": self._monitor,
            "service": self._service,
        }
        of_subjects = [subject for subject in SUBJECTS if subject.phase == phase]
        more = (resource for one in of_subjects for resource in one.resources(self.inventory, node, facts))
        return (*of_phase[phase](node, facts), *more)

    def _prepare(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        deployment = self.inventory.deployment
        serves = node == self.folders.server
        watches = node == self.inventory.monitor_node
        settings = storage.server_settings(self.inventory)
        packages = [
            "nfs-kernel-server" if serves else "nfs-common",
            *(["nftables"] if deployment.firewall else []),
            *([NODE_EXPORTER] if deployment.node_exporter else []),
            *([units.MONITOR_PACKAGE] if watches else []),
        ]
        return (
            NotedFolders(self._made_folders(serves)),
            # Before the package: it starts the server, which should come up as it is to stay.
            *([File(storage.SETTINGS_PATH, settings.encode(), then=(_nfsd_settings(settings),))] if serves else []),
            *([Masked(storage.OLD_NFS_UNITS)] if serves else []),
            *([Masked((units.MONITOR_PACKAGE_UNIT,), "the cluster runs it from a unit of its own")] if watches else []),
            Packages(tuple(packages)),
            ServiceUser(deployment.service_uid),
            *(Folder(path) for path in (ROOT, ENVIRONMENTS, RELEASES, CONFIGURATION)),
            Folder(DEPLOY_STATE, mode=0o700),
            # Root's, with folders of the account below: the account cannot put anything in the place of one.
            Folder(STATE),
            Folder(HOME, mode=0o750, owner=SERVICE_USER),
            *([Folder(JOBS)] if self._runs_jobs(node) else []),
        )

    def _made_folders(self, serves: bool) -> tuple[str, ...]:
        folders = self.folders
        ends = [f"{folders.mount}/shared", *([f"{folders.export}/shared"] if serves else [])]
        made = [str(parent) for end in ends for parent in PurePosixPath(end).parents]
        of_server = ["/etc/exports.d", "/etc/nfs.conf.d"] if serves else []
        return (*dict.fromkeys(path for path in made if path != "/"), *of_server)

    def _storage(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        folders = self.folders
        if node != folders.server:
            return ()
        return (
            Folder(folders.export),
            Folder(f"{folders.export}/shared"),
            Folder(f"{folders.export}/data", mode=0o755, owner=SERVICE_USER),
            Folder(f"{folders.export}/runs", mode=0o755, owner=SERVICE_USER),
            Running(NFS_SERVER_UNIT),
            Exports(storage.EXPORTS_PATH, storage.exports(self.inventory, folders)),
        )

    def _mounts(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        lines = storage.fstab_lines(self.inventory, node, self.folders)
        return (FstabLines(lines), *(Mounted.of(line) for line in lines))

    def _publish(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        if node != self.publisher:
            return ()
        return tuple(Published(publication, self.folders) for publication in self.publications)

    def _code(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        environment = self._environment(node, facts)
        if environment is None:
            return ()
        data = [publication for publication in self.publications if publication.kind == "prepared"]
        wheels = self.folders.seen("wheels", environment)
        return (
            Environment(environment, self.wheelhouses.get(environment), wheels),
            UnpackedRelease(self.release.code, environment),
            Current(self.release.code.key),
            *(LocalData(one, self.folders.seen("prepared", one.key)) for one in data),
        )

    def _firewall(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        if not self.inventory.deployment.firewall:
            off = Shell("take the firewall down", f"systemctl disable --now {firewall.UNIT} 2>/dev/null || :")
            gone = Shell("drop its table", f"nft delete table inet {firewall.TABLE} 2>/dev/null || :")
            return (Absent(FIREWALL_UNIT_PATH, before=(off, gone)), Absent(firewall.PATH))
        return (
            Firewall(firewall.ruleset(self.inventory)),
            UnitFiles(((FIREWALL_UNIT_PATH, firewall.unit()),)),
            Running(firewall.UNIT),
        )

    def _services(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        tasks = self.tasks(node)
        texts = {
            units.unit_path(units.unit_name(task)): units.role_unit(self.inventory, task, facts.systemd)
            for task in tasks
        }
        files = {
            **texts,
            SLICE_PATH: units.slice_unit("memory" in facts.controllers),
            ADDRESSES_PATH: units.addresses_drop_in(self.inventory),
        }
        if self._runs_jobs(node):
            unit = units.job_unit(self.inventory, coordinates=self._coordinates(node))
            files[units.unit_path(units.JOB_UNIT)] = unit
        return (
            *stale_units(facts, {*files, FIREWALL_UNIT_PATH, *self._monitor_unit(node), *self._service_unit(node)}),
            UnitFiles(tuple(files.items())),
            *(self._role(task, texts) for task in tasks),
            *([Running(f"{NODE_EXPORTER}.service")] if self.inventory.deployment.node_exporter else []),
        )

    def _monitor(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        if node != self.inventory.monitor_node:
            return (Absent(units.MONITOR_FOLDER),)  # its unit goes with all units that are not wanted any more
        path = units.unit_path(units.MONITOR_UNIT)
        unit = units.monitor_unit(self.inventory, "memory" in facts.controllers)
        seconds = units.MONITOR_START_SECONDS + 30.0
        return (
            Folder(units.MONITOR_FOLDER),
            Folder(units.MONITOR_DATA, mode=0o750, owner=SERVICE_USER),
            MonitorFiles(self._monitor_files()),
            UnitFiles(((path, unit),)),
            Running(units.MONITOR_UNIT, path, unit, deadline_seconds=seconds, hint=MONITOR_HINT),
        )

    def _monitor_files(self) -> tuple[tuple[str, str], ...]:
        """Path and text of what Prometheus reads, `prometheus.yml` last."""
        texts = prometheus_files(self.inventory)
        return tuple((f"{units.MONITOR_FOLDER}/{name}", text) for name, text in texts.items())

    def _monitor_unit(self, node: str) -> tuple[str, ...]:
        return (units.unit_path(units.MONITOR_UNIT),) if node == self.inventory.monitor_node else ()

    def _service(self, node: str, facts: MachineFacts) -> Sequence[Resource]:
        """Its unit goes with all units that are not wanted any more; its versions stay until `reset`."""
        if not self._serves(node):
            return ()
        path = units.unit_path(units.SERVICE_UNIT)
        unit = units.service_unit(self.inventory, node, "memory" in facts.controllers)
        return (
            Folder(units.SERVICE_DATA, mode=0o700, owner=SERVICE_USER),
            UnitFiles(((path, unit),)),
            running_service(self.inventory, node, path, unit, self.release.code.key),
        )

    def _service_unit(self, node: str) -> tuple[str, ...]:
        return (units.unit_path(units.SERVICE_UNIT),) if self._serves(node) else ()

    def _role(self, task: "Task", texts: Mapping[str, str]) -> Running:
        name = units.unit_name(task)
        path = units.unit_path(name)
        hint = f"`journalctl -u {name}` there, or `fab deploy logs --node {task.node}`, says more"
        return Running(name, path, texts[path], self.release.code.key, hint=hint)

    def _serves(self, node: str) -> bool:
        return node in self.inventory.service_nodes

    def _environment(self, node: str, facts: MachineFacts) -> str | None:
        return self.release.environment_for(facts, serves=self._serves(node))

    def _runs_jobs(self, node: str) -> bool:
        """Whether jobs run there: those of the coordinator, or the part of a person's program beside a worker."""
        return self._coordinates(node) or any(task.node == node for task in self.inventory.of_role("worker"))

    def _coordinates(self, node: str) -> bool:
        return any(task.node == node for task in self.inventory.of_role("coordinator"))


def stale_units(facts: MachineFacts, wanted: set[str]) -> tuple[Absent, ...]:
    """Units of ours on the node that the inventory does not have: stopped, then removed."""
    made = []
    for path, file in facts.files.items():
        name = path.rpartition("/")[2]
        if file.kind != "file" or path in wanted or not path.startswith(f"{UNIT_FOLDER}/pscluster"):
            continue
        stop = Shell(f"stop {name}", f"systemctl disable --now {quoted(name)} 2>/dev/null || :", 60.0)
        made.append(Absent(path, before=(stop,), then=(Shell("reload systemd", "systemctl daemon-reload"),)))
    return tuple(made)


def _nfsd_settings(settings: str) -> Shell:
    threads = settings.partition("threads=")[2].split()[0]
    # A restart stalls writers for the grace period: only where nothing is exported yet.
    script = (
        "systemctl -q is-active nfs-server.service || exit 0; "
        f'if [ -z "$(exportfs -s)" ]; then systemctl restart nfs-server.service; else rpc.nfsd {quoted(threads)}; fi'
    )
    return Shell("apply the NFS server's settings", script, 120.0)
