"""Checks the imports between this project's modules; `make lint` runs it.

    python -m tests.imports_check

No circle: imports inside functions count, and so do strings "module:attribute", which
`plugins.lazily` imports when they are called; what is for type checking alone does not. `ARROWS`:
which room may import which. No import of a module of this project inside a function, but in the
commands. import-linter does not tell imports inside functions from others.
"""

import ast
import graphlib
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
_LAZY = re.compile(r"[a-z_0-9.]+:\w+")
# Room -> the rooms that it may import, besides itself and common.
ARROWS: dict[str, tuple[str, ...]] = {
    "common": (),
    "model": (),
    "data": (),
    "training": ("data",),
    "pretrain": ("data", "model", "training"),
    # Fine-tuning begins from what pre-training wrote.
    "finetune": ("data", "model", "pretrain", "training"),
    "checkpoints": ("data", "finetune", "model", "pretrain", "training"),
    "serving": ("data", "finetune", "model", "pretrain", "training"),
}
ARROWS["analysis"] = tuple(ARROWS)
ARROWS["benchmarks"] = ARROWS["examples"] = tuple(ARROWS)
ARROWS["experiments"] = (*ARROWS["benchmarks"], "benchmarks")
# Modules that are commands: flags are checked before TensorFlow is imported.
COMMANDS = ("build_pretraining_data", "export_savedmodel", "run_experiment", "run_finetuning")
COMMANDS += ("run_pretraining", "benchmarks.tpu_compile", "checkpoints.convert")
COMMANDS += ("serving.evaluate", "serving.predict", "serving.retrieval")
COMMANDS += ("serving.scoring.perplexity", "serving.scoring.rescore")


class Import(NamedTuple):
    importer: str
    imported: str
    line: int
    inside: bool  # a function

    def __str__(self) -> str:
        return f"{self.importer.replace('.', '/')}.py:{self.line}: imports {self.imported}"


def imports_of(name: str, file: pathlib.Path, modules: dict[str, pathlib.Path]) -> Iterator[Import]:
    """The imports of one module; a package is meant where none of its modules is named."""

    def visit(node: ast.AST, inside: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
            known = {f"convbert.{module}" for module in modules}
            names = [d if d in known else node.module for d in dotted]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value.partition(":")[0]] if _LAZY.fullmatch(node.value) else []
        late = inside and not isinstance(node, ast.Constant)
        for imported in dict.fromkeys(name.removeprefix("convbert.") for name in names):
            if imported in modules and imported != name:
                yield Import(name, imported, node.lineno, late)
        function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside or function)

    yield from visit(ast.parse(file.read_text(encoding="utf-8")), False)


def violations(root: pathlib.Path) -> list[str]:
    files = [*root.glob("*.py"), *(f for room in ARROWS for f in root.glob(f"{room}/**/*.py"))]
    names = (file.relative_to(root).with_suffix("").parts for file in files)
    modules = {".".join(n[:-1] if n[-1] == "__init__" else n): f for n, f in zip(names, files)}
    found = [one for name, file in modules.items() for one in imports_of(name, file, modules)]
    wrong, graph = [], graphlib.TopologicalSorter()
    for one in found:
        graph.add(one.importer, one.imported)
    try:
        graph.prepare()
    except graphlib.CycleError as error:  # from the imported to the importer
        wrong.append(f"a circle of imports: {', '.join(reversed(error.args[1]))}")
    for one in found:
        room, other = one.importer.split(".")[0], one.imported.split(".")[0]
        allowed = (room, "common", *ARROWS.get(room, ARROWS))  # a command may import everything
        if other not in allowed:
            wrong.append(f"{one}, which {room} may not")
        if one.inside and one.importer not in COMMANDS:
            wrong.append(f"{one} inside a function")
    return wrong


if __name__ == "__main__":
    wrong = violations(ROOT)
    print("\n".join(wrong) or "imports are as they should be")
    sys.exit(bool(wrong))
