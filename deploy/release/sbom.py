"""What a release ships to one kind of node, as a CycloneDX 1.5 document: names, hashes, licences.

A licence is what the package itself states, never a guess: one that states none is `unknown`. The
same release gives the same bytes, so the document has no time.
"""

import hashlib
import json
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from core.errors import ClusterError
from deploy.release.code_wheel import NAME, CodeWheel
from deploy.release.hashes import file_sha256, parse_sums
from deploy.release.wheelhouse import Wheelhouse

UNKNOWN = "unknown"
LARGEST_METADATA_BYTES = 4 << 20
LONGEST_LICENCE = 100
"""A longer `License:` field is the text of one, not its name."""
OUR_LICENCE = "Apache-2.0"
_KERNELS = "_kernels.so"


@dataclass(frozen=True)
class Part:
    """One thing that a node gets; `licences` are the words of the package itself."""

    kind: str
    name: str
    version: str
    sha256: str
    purl: str
    licences: tuple[str, ...]
    is_expression: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a component of CycloneDX."""
        licences: list[dict[str, Any]] = [{"license": {"name": one}} for one in self.licences]
        if self.is_expression:
            licences = [{"expression": one} for one in self.licences]
        return {
            "bom-ref": f"{self.purl}#{self.sha256}",
            "type": self.kind,
            "name": self.name,
            "version": self.version,
            "hashes": [{"alg": "SHA-256", "content": self.sha256}],
            "licenses": licences,
            "purl": self.purl,
        }


def parts_of(code: CodeWheel, wheelhouses: Iterable[Wheelhouse]) -> tuple[Part, ...]:
    """Return everything a node gets: the code, its native library, the packages, once each.

    Raises ClusterError for a wheel without readable metadata.
    """
    found = [_of_code(code), *_kernels(code)]
    for wheelhouse in wheelhouses:
        for name, sha256 in parse_sums(wheelhouse.sums()).items():
            if name.endswith(".whl"):
                found.append(_of_wheel(wheelhouse.folder / name, sha256))
    once = {(part.purl, part.sha256): part for part in found}
    return tuple(once[key] for key in sorted(once))


def document(code: CodeWheel, parts: Sequence[Part]) -> str:
    """Return the parts of a release as the text of a CycloneDX document."""
    components = [part.to_json() for part in parts]
    described = json.dumps([code.key, components])
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, described)}",
        "version": 1,
        "metadata": {
            "component": {
                "bom-ref": f"release-{code.key}",
                "type": "application",
                "name": f"{NAME} release {code.key}",
                "version": code.version,
            }
        },
        "components": components,
    }
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def by_licence(parts: Iterable[Part]) -> Mapping[str, Sequence[str]]:
    """Return the names of parts by licence, sorted; those that state none are under `unknown`."""
    found = defaultdict(set)
    for part in parts:
        for licence in part.licences:
            found[licence].add(part.name)
    return {licence: sorted(found[licence]) for licence in sorted(found)}


def _of_code(code: CodeWheel) -> Part:
    purl = f"pkg:generic/{NAME}@{quote(code.version)}?checksum=sha256:{code.sha256}"
    return Part("application", NAME, code.version, code.sha256, purl, (OUR_LICENCE,), True)


def _kernels(code: CodeWheel) -> Iterable[Part]:
    with zipfile.ZipFile(code.path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(f"/{_KERNELS}"):
                sha256 = hashlib.sha256(archive.read(name)).hexdigest()
                purl = f"pkg:generic/{NAME}@{quote(code.version)}?checksum=sha256:{sha256}#{name}"
                yield Part("library", name, code.version, sha256, purl, (OUR_LICENCE,), True)


def _of_wheel(wheel: Path, sha256: str) -> Part:
    if file_sha256(wheel) != sha256:
        raise ClusterError(f"{wheel}: not the file of its list: remove it and run it again")
    name, version, _build, _tags = parse_wheel_filename(wheel.name)
    purl = f"pkg:pypi/{name}@{quote(str(version))}"
    licences, is_expression = _licences(_metadata(wheel))
    return Part("library", name, str(version), sha256, purl, licences, is_expression)


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            is_metadata = entry.filename.endswith(".dist-info/METADATA")
            if is_metadata and entry.filename.count("/") == 1:
                if entry.file_size > LARGEST_METADATA_BYTES:
                    break
                return BytesParser().parsebytes(archive.read(entry), headersonly=True)
    raise ClusterError(f"{wheel}: expected its METADATA: remove it and run it again")


def _licences(metadata: Message) -> tuple[tuple[str, ...], bool]:
    """Return what the package states, and whether that is an expression of SPDX."""
    expression = metadata["License-Expression"]
    if expression:
        return (str(expression).strip(),), True
    stated = [
        str(line).rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier", [])
        if str(line).startswith("License :: ") and not str(line).endswith("OSI Approved")
    ]
    text = str(metadata["License"] or "").strip()
    if not stated and text and len(text) <= LONGEST_LICENCE and "\n" not in text:
        stated = [text]
    if not stated or stated == [UNKNOWN.upper()]:
        stated = [UNKNOWN]
    return tuple(sorted(set(stated))), False
