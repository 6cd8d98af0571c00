"""What stands on a user's terminal is ours, not what TensorFlow's libraries note."""

import ast
import os
import subprocess
import sys

import pytest

from tests.command_support import ROOT

# Benchmarks set their own.
FOLDERS = (".", "analysis", "checkpoints", "examples/quickstart", "finetune", "serving")
COMMANDS = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_imports_it_first(path):
    imports = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and getattr(node, "module", None) != "__future__"
    ]
    assert isinstance(imports[0], ast.Import)
    assert [alias.name for alias in imports[0].names] == ["common.library_logs"]


@pytest.mark.parametrize(
    ("module", "keras"), [("common.library_logs", "tf_keras"), ("convbert", "keras")]
)
def test_keras_3_is_for_programs_that_may_use_it(module, keras):
    code = f"import sys, {module}; import tensorflow as tf; print('keras' in sys.modules)\n"
    code += "print(getattr(tf, 'keras').layers.Layer.__module__.split('.')[0])"
    environment = {n: v for n, v in os.environ.items() if n != "TF_USE_LEGACY_KERAS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(keras == "keras"), keras], done.stderr
