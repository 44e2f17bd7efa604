"""Every benchmark that the documents name runs under that name."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from deploy.common.project import ROOT

DOCUMENTED = sorted(
    {
        name
        for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
        for name in re.findall(
            r"python -m ((?:benchmarks|experiments)\.\w+)", page.read_text(encoding="utf-8")
        )
    }
)


def test_a_documented_benchmark_has_a_program_of_that_name() -> None:
    assert {"benchmarks.kernel", "benchmarks.wire", "experiments.pis"} <= set(DOCUMENTED)
    for name in DOCUMENTED:
        found = find_spec(name)
        assert found is not None, name
        if found.submodule_search_locations is not None:
            found = find_spec(f"{name}.__main__")
        assert found is not None, name
        assert found.origin is not None, name
        last = ast.parse(Path(found.origin).read_text(encoding="utf-8")).body[-1]
        assert isinstance(last, ast.If), name
        assert ast.unparse(last.test) == "__name__ == '__main__'", name
