"""Environment variables that commands and package set before TensorFlow is imported."""

import os
import platform
import re
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
    if 'if __name__ == "__main__":' in path.read_text() and path != ROOT / "__main__.py"
)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_starts_with_the_settings_of_the_process(path):
    modules = re.findall(r"^ *(?:import|from) (\S+)", path.read_text(), re.MULTILINE)
    assert modules[:2] == ["__future__", "convbert.common.startup"]


@pytest.mark.slow  # two interpreters import TensorFlow
@pytest.mark.parametrize(
    ("module", "keras"),
    [("convbert.common.startup", "tf_keras"), ("convbert.serving.model", "keras")],
)
def test_keras_3_is_for_programs_that_may_use_it(module, keras):
    code = f"import sys, {module}; import tensorflow as tf; print('keras' in sys.modules)\n"
    code += "print(getattr(tf, 'keras').layers.Layer.__module__.split('.')[0])"
    environment = {n: v for n, v in os.environ.items() if n != "TF_USE_LEGACY_KERAS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(keras == "keras"), keras], done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_freed_memory_is_kept_unless_the_environment_says_otherwise():
    """Pages that are new to the process, of ten times 40 MB one after the other."""
    code = (
        "import resource, convbert.common.startup as startup\n"
        "startup.keep_memory()\n"
        "pages = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "x, found = b'x', []\n"
        "for _ in range(11): len(x * 40_000_000), found.append(pages())\n"
        "print(found[-1] - found[0])\n"
    )
    found, command = [], [sys.executable, "-c", code]
    ours = ("MALLOC", "GLIBC", "LD_PRELOAD")
    for own in ({}, {"MALLOC_ARENA_TEST": "8"}):
        environment = {n: v for n, v in os.environ.items() if not n.startswith(ours)} | own
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        found.append(int(done.stdout))
    assert found[0] < 20 < found[1]  # also with huge pages, of 2 MB
