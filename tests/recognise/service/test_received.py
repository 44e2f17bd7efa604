"""An export through a pipe: what is taken, and what is refused before it is written."""

import io
import tarfile
from pathlib import Path

import pytest

from core.exported.description import read_description
from core.ground.errors import UsageError
from core.inventory.sections import Service
from deploy.commands.service import command_on_node, packed_export
from recognise.service import manage as module
from recognise.service.manage import received
from tests.recognise.service.exports import export


def tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in members:
            one = tarfile.TarInfo(name)
            one.size = len(content)
            one.type = kind
            one.linkname = "/etc/passwd"
            archive.addfile(one, io.BytesIO(content))
    made.seek(0)
    return made


def test_what_is_sent_is_the_export(tmp_path: Path) -> None:
    described = export(tmp_path / "export")
    (tmp_path / "export" / "notes.txt").write_text("stays here")
    (tmp_path / "new").mkdir()
    with packed_export(tmp_path / "export") as archive:
        archive.seek(0)
        assert read_description(received(archive, tmp_path / "new")) == described
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "export.json",
        "model.onnx",
    ]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (tar(("../x", b"")), "expected export.json, model.onnx, model.tflite, got '../x'"),
        (tar(("/etc/shadow", b"")), "got '/etc/shadow'"),
        (tar(("export.json", b""), kind=tarfile.SYMTYPE), "got 'export.json'"),
        (tar(("export.json", b"{}"), ("export.json", b"{}")), "got 'export.json'"),
        (tar(("export.json", b"{}")), "expected export.json and one model, got export.json"),
        (tar(("model.onnx", b"{}"), ("model.tflite", b"{}")), "expected export.json and one model"),
        (tar(), "got no file"),
        (io.BytesIO(b""), "expected a whole tar of an export"),
        (io.BytesIO(b"x" * 4096), "expected a whole tar of an export"),
        (
            io.BytesIO(tar(("export.json", b"x" * 2000)).getvalue()[:1024]),
            "expected a whole tar of an export",
        ),
    ],
)
def test_another_archive_is_refused(tmp_path: Path, stream: io.BytesIO, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        received(stream, tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_large_file_is_refused_by_its_size_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", 10)
    with pytest.raises(UsageError, match=r"model\.onnx: expected at most 10 bytes, got 11"):
        received(tar(("model.onnx", b"x" * 11)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_export_is_refused_here(tmp_path: Path) -> None:
    export(tmp_path / "export")
    (tmp_path / "export" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(UsageError):
        packed_export(tmp_path / "export")


def test_the_words_on_a_node_name_the_account_s_folder() -> None:
    words = command_on_node(Service(), "promote", "--model", "-")
    assert words[words.index("-m") :] == [
        *("-m", "recognise.service.manage", "promote", "--state", "/var/lib/pscluster/service"),
        *("--name", "har", "--memory-megabytes", "384", "--model", "-"),
    ]
