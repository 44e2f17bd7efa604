"""Do the nearest tests of twelve drawn modules of the product notice small mistakes in them?

`python -m experiments.mutants --root TREE --result BEFORE.json` draws the modules and their mutants
and runs the tests of `TESTS`. After modules and tests moved, `--like BEFORE.json --moved MOVED.json
--tests TESTS.json` beside another `--result` runs the same mutants again.

MOVED.json maps a module or folder to its new place, such as {"cluster/data": "core/data"}; the
longest name that fits decides. TESTS.json maps a module's old name to its tests, paths below TREE.
The function, the operator, the code before and after, and the place among equals identify a
mutant; a mutant whose code no longer exists is `gone`. Each keeps its earlier verdict as `was`.

A run with an existing result continues it. Each test run has namespaces of its own: it sees the
mutant in an overlay, so the tree never changes; it writes to nothing that outlives it, reaches no
network and signals no process outside. This needs root, util-linux and iproute2.

The operators are our own: those of cosmic-ray delete no statement and return no None, and neither
it nor mutmut runs its mutants in such namespaces.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.mutant_tests import CORE, DRAWN, TESTS

SEED = 20261125
MOST_MUTANTS = 20
"""The mutants that run for one module."""
PACKAGES = ("cluster", "deploy", "recognise", "ps_node", "worker_node", "pscluster")
FEWEST_LINES, MOST_LINES = 60, 400


PYTEST = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long and not lab"]
PYTEST += ["-n", "0", "--hypothesis-seed=0"]
NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net"]
BOX = """
ip link set lo up
mount -o remount,bind,ro /
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
for place in "$HOME" "$ROOT"; do
    over=$(mktemp -d /tmp/.over.XXXXXX)
    mkdir "$over/new" "$over/work"
    options="lowerdir=$place,upperdir=$over/new,workdir=$over/work"
    mount -t overlay overlay -o "$options" "$place"
done
cd "$ROOT"
cat >"$MODULE"
set +e
"$@" </dev/null 2>&1
exit $?
"""
"""The shell of a run hides or overlays what could be written, and reads the module's text."""


Mutant = dict[str, Any]
"""One small change as JSON has it: what identifies it, its line, and how the tests ended."""


def identity(mutant: Mapping[str, Any]) -> tuple[Any, ...]:
    """What stays the same of a mutant when its module moves."""
    names = ("function", "operator", "before", "after", "occurrence")
    return tuple(mutant[name] for name in names)


Texts = dict[tuple[Any, ...], tuple[Mutant, str]]
"""Mutants by identity, each with the whole module's text."""


@dataclass(frozen=True)
class Place:
    """Where a node hangs in the tree: at `field` of `parent`, or at `index` of the list there."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str

    def put(self, node: ast.AST) -> None:
        """Makes `node` hang here."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


UNTOUCHED = {"annotation", "returns", "decorator_list", "format_spec", "type_params"}
"""Fields whose change has no meaning at run time, or seldom one."""


def places(node: ast.AST, function: str = "<module>") -> Iterator[Place]:
    """Every node below `node` that may change, with its function; not docstrings or type checks."""
    for field, value in ast.iter_fields(node):
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in () if field in UNTOUCHED else children:
            match child:
                case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name("TYPE_CHECKING")):
                    continue
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    inner = child.name if function == "<module>" else f"{function}.{child.name}"
                case ast.AST():
                    inner = function
                case _:
                    continue
            yield Place(child, node, field, index, function)
            yield from places(child, inner)


COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
"""The bound of an order moves by one; another comparison turns into its opposite."""
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
}


def of_expression(place: Place) -> Iterator[tuple[str, ast.AST]]:
    """Operators, and what an expression becomes by each."""
    node, negatable = place.node, True
    match node:
        case ast.Compare():
            negatable = len(node.ops) > 1 or isinstance(node.ops[0], ORDERS)
            for index, kind in enumerate(node.ops):
                ops = [*node.ops[:index], COMPARISONS[type(kind)](), *node.ops[index + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)
        case ast.BinOp() if other := ARITHMETIC.get(type(node.op)):
            yield "arithmetic", ast.BinOp(node.left, other(), node.right)
        case ast.UnaryOp(op=ast.USub()):
            yield "arithmetic", node.operand
        case ast.BoolOp():
            op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "boolean", ast.BoolOp(op, node.values)
        case ast.UnaryOp(op=ast.Not()):
            negatable = False
            yield "not", node.operand
        case ast.Constant() if not isinstance(place.parent, ast.JoinedStr):
            yield from _of_constant(node)
    is_condition = isinstance(place.parent, ast.If | ast.While | ast.IfExp)
    if is_condition and place.field == "test" and isinstance(node, ast.expr) and negatable:
        yield "not", ast.UnaryOp(ast.Not(), node)


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    """A number grows by one, a boolean flips and a word gets a letter. Text with blanks stays."""
    match node.value:
        case bool(value):
            yield "constant", ast.Constant(not value)
        case int(value) | float(value):
            yield "constant", ast.Constant(value + 1)
        case str(value) if value and not any(letter.isspace() for letter in value):
            yield "constant", ast.Constant(f"{value}X")


def of_statement(place: Place) -> Iterator[tuple[str, ast.AST]]:
    """Operators, and what a statement becomes by each.

    One that sets or deletes a plain name stays: it would be missed at once, or is idle.
    """
    node = place.node
    match node:
        case ast.AugAssign() if other := ARITHMETIC.get(type(node.op)):
            yield "arithmetic", ast.AugAssign(node.target, other(), node.value)
        case ast.Return(value=None | ast.Constant(value=None)):
            pass
        case ast.Return():
            yield "return None", ast.Return(ast.Constant(None))
        case ast.Break():
            yield "break/continue", ast.Continue()
        case ast.Continue():
            yield "break/continue", ast.Break()
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    has_part = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    if has_part or isinstance(node, ast.Expr | ast.AugAssign | ast.Raise):
        yield "statement deletion", ast.Pass()


def mutants_of(source: str) -> Texts:
    """Every mutant of a module by its identity, with the whole module's text."""
    tree = ast.parse(source)
    original = ast.unparse(tree)
    found: Texts = {}
    for place in list(places(tree)):
        for operator, changed in [*of_expression(place), *of_statement(place)]:
            before = ast.unparse(place.node)
            place.put(changed)
            text, after = ast.unparse(tree), ast.unparse(changed)
            place.put(place.node)
            mutant: Mutant = {"function": place.function, "operator": operator}
            mutant |= {"before": before, "after": after, "occurrence": 0}
            while identity(mutant) in found:
                mutant["occurrence"] += 1
            mutant["line"] = getattr(place.node, "lineno", 0)
            if text != original:
                found[identity(mutant)] = (mutant, text)
    return found


def floor_of(module: Path) -> str:
    """The floor that a module is drawn for."""
    package, room = module.with_suffix("").parts[:2]
    if package == "cluster":
        return "core" if room in CORE else "cluster"
    return package if package in DRAWN else "roles"


def drawn(root: Path) -> list[str]:
    """The modules: one Random serves all floors in turn, and names are sorted before each draw."""
    candidates: dict[str, list[str]] = {floor: [] for floor in DRAWN}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if path.stem not in ("__init__", "__main__") and FEWEST_LINES <= lines <= MOST_LINES:
                module = path.relative_to(root)
                candidates[floor_of(module)].append(module.as_posix())
    generator = random.Random(SEED)
    draws = [generator.sample(sorted(candidates[floor]), count) for floor, count in DRAWN.items()]
    return [module for draw in draws for module in draw]


def moved(module: str, moves: Mapping[str, str]) -> str:
    """Where a module is now."""
    fitting = [old for old in moves if module == old or module.startswith(f"{old}/")]
    longest = max(fitting, key=len, default=None)
    return module if longest is None else moves[longest] + module.removeprefix(longest)


def renamed(code: str, moves: Mapping[str, str]) -> str:
    """A mutant's code with the new names of modules."""
    for old in sorted(moves, key=len, reverse=True):
        before, now = (name.removesuffix(".py").replace("/", ".") for name in (old, moves[old]))
        code = code.replace(before, now)
    return code


def tested(root: Path, module: str, text: str, tests: Sequence[str], deadline: float) -> Mutant:
    """How the tests end on the tree with `text` as the module; `said` names what failed first."""
    command = ["nice", "-n", "19", "unshare", *NAMESPACES, "sh", "-ec", BOX, "box"]
    command += [sys.executable, *PYTEST, *tests]
    own = {"ROOT": str(root), "MODULE": module, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/tmp"}
    own = os.environ | own
    given, begin = text.encode(), time.monotonic()
    try:  # at the deadline `unshare` is killed, and its namespace ends with it
        done = subprocess.run(command, input=given, env=own, timeout=deadline, capture_output=True)
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "seconds": round(time.monotonic() - begin, 1), "said": ""}
    output = (done.stdout + done.stderr).decode(errors="replace").splitlines()
    lines = [line for line in output if line.strip()] or [""]
    said = next((line for line in lines if line.startswith(("FAILED ", "ERROR "))), lines[-1])
    status = "killed" if done.returncode else "survived"
    seconds = round(time.monotonic() - begin, 1)
    return {"status": status, "seconds": seconds, "said": said[:300]}


def write(path: Path, modules: Mapping[str, dict[str, Any]]) -> None:
    """Writes the result: all modules with their counts and survivors."""
    total: Counter[str] = Counter()
    for entry in modules.values():
        entry["counts"] = Counter(one["status"] for one in entry["mutants"])
        total += entry["counts"]
        survivors = [one for one in entry["mutants"] if one["status"] == "survived"]
        form = "{line}: {operator}: {before} -> {after}"
        entry["survivors"] = [form.format(**one) for one in survivors]
    partial = path.with_suffix(".partial")
    content = {"seed": SEED, "total": total, "modules": [*modules.values()]}
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(path)


def sampled(module: str, made: Iterable[Mutant]) -> list[Mutant]:
    """Mutants to run. They are in no order, so that those of a stopped run are a sample too."""
    every = list(made)
    few = random.Random(f"{SEED} {module}").sample(every, min(MOST_MUTANTS, len(every)))
    return [{**one, "status": "not run"} for one in few]


def again(old: Iterable[Mutant], made: Iterable[Mutant], moves: Mapping[str, str]) -> list[Mutant]:
    """The mutants of an earlier result, as far as their code still exists."""
    present = {identity(one): one for one in made}
    found = []
    for one in old:
        code = {name: renamed(one[name], moves) for name in ("before", "after")}
        now = present.get(identity({**one, **code}))
        status = "gone" if now is None else "not run"
        found.append({**(now or one), "status": status, "was": one["status"]})
    return found


def run_module(root: Path, entry: dict[str, Any], texts: Texts) -> Iterator[None]:
    """Judges the mutants of one module that are not judged yet, and pauses after each."""
    module, tests = entry["now"], entry["tests"]
    waiting = [one for one in entry["mutants"] if one["status"] == "not run"]
    if not waiting:
        return
    # Like a mutant's, the text of the calm run is without comments and layout.
    untouched = ast.unparse(ast.parse((root / module).read_text(encoding="utf-8")))
    calm = entry["calm"] = tested(root, module, untouched, tests, 600)
    print(f"{module}: {len(waiting)} mutants to run; without one: {calm}", flush=True)
    yield
    for one in waiting if calm["status"] == "survived" else ():
        one |= tested(root, module, texts[identity(one)][1], tests, 4 * calm["seconds"] + 10)
        print(f"  {one['status']}, {one['seconds']} s: {one['line']} {one['operator']}", flush=True)
        yield


def loaded(path: Path | None) -> Any:
    """The JSON of a file; an empty object without one."""
    return {} if path is None else json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    """Runs the mutants of each module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the tree of modules")
    parser.add_argument("--result", type=Path, required=True, help="JSON; continued if it exists")
    parser.add_argument("--like", type=Path, help="the result whose mutants run again")
    parser.add_argument("--moved", type=Path, help="JSON: old module or folder to the new one")
    parser.add_argument("--tests", type=Path, help="JSON: old module to its tests")
    given = parser.parse_args()
    root = given.root.resolve()
    if os.geteuid() != 0 or root.is_relative_to("/tmp"):
        sys.exit("expected root, for namespaces, and a tree outside /tmp, which each run hides")
    moves: dict[str, str] = loaded(given.moved)
    tests: dict[str, Sequence[str]] = {**TESTS, **loaded(given.tests)}
    earlier = {one["module"]: one for one in loaded(given.like).get("modules", [])}
    before = loaded(given.result if given.result.exists() else None).get("modules", [])
    modules: dict[str, dict[str, Any]] = {entry["module"]: entry for entry in before}
    for module in earlier or drawn(root):
        now = moved(module, moves)
        texts = mutants_of((root / now).read_text(encoding="utf-8"))
        if module not in modules:
            made = [mutant for mutant, _ in texts.values()]
            old = earlier.get(module)
            mutants = sampled(module, made) if old is None else again(old["mutants"], made, moves)
            entry = {"module": module, "now": now, "made": len(made), "mutants": mutants}
            modules[module] = entry
        modules[module]["tests"] = list(tests[module])
        for _ in run_module(root, modules[module], texts):
            write(given.result, modules)


if __name__ == "__main__":
    main()
