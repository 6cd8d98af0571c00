"""The project installs as one package, `convbert`, with one command; what commands set up."""

import os
import platform
import re
import shutil
import subprocess
import sys

import pytest

from convbert.__main__ import COMMANDS
from tests.command_support import ROOT, Command, python
from tests.command_support import run as run_command
from tests.model_support import slow_but

NOT_INSTALLED = ("tests", "runs", "build", "docs")
IGNORED = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__", "tests")


def test_every_folder_with_code_is_listed():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"(.+)"', re.search(r"\npackages = \[(.*?)\]", project, re.S).group(1))
    folders = (file.relative_to(ROOT).parent.parts for file in ROOT.glob("*/**/*.py"))
    own = [parts for parts in folders if not parts[0].startswith((".", *NOT_INSTALLED))]
    assert sorted(listed) == sorted({"convbert", *(".".join(("convbert", *p)) for p in own)})


@pytest.mark.slow  # needs a quarter of a minute: it is installed and imported
def test_the_names_of_a_users_own_modules_do_not_matter(tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    installed = folder / "site"
    shutil.copytree(ROOT, folder / "source", ignore=IGNORED)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    line = [*pip, "--target", str(installed), str(folder / "source")]
    subprocess.run(line, check=True, capture_output=True)
    for name in ("data.py", "settings.py", "model/__init__.py", "common/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise ImportError('the wrong one')\n")
    code = "from convbert.common.settings import read_json_object\n"
    code += "assert read_json_object('configs/convbert_small.json')['model_size']\n"
    code += "import convbert; model = convbert.load('tiny'); print(convbert.__file__)\n"
    code += "print(model.embed(['The weather is fine.', 'It rains.']).shape)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where, shape = done.stdout.splitlines()
    assert where == str(installed / "convbert" / "__init__.py")
    assert shape == "(2, 128)"


def test_commands_are_listed_and_others_named():
    """Also what is wrong with the flags of a script."""
    listed = python("-m", "convbert", "--help").stdout
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert "--last" in run_command("-m", "convbert", "average", "--help").stdout  # status 0
    for line in ("pretain", "pretrain --model_name mine --data_dir nowhere"):
        done = python("-m", "convbert", *line.split())
        assert done.returncode == 1
        assert line.split()[-1] in done.stderr


@pytest.mark.parametrize("name", slow_but(["average", "view"], COMMANDS))
def test_an_unknown_flag_is_one_error(name):
    done = Command("-m", "convbert", name, "--nonsense").finish()
    # argparse, whose status is 2, names missing flags first.
    named = done.returncode == 2 and "required" in done.stderr
    assert done.returncode in (1, 2)
    assert named or "--nonsense" in done.stderr.replace("flag '", "flag '--")
    assert "Traceback" not in done.stderr


def test_numbers_of_one_recipe():
    said = run_command("-m", "convbert", "flops", "--hparams=configs/convbert_small.json").stdout
    assert {"13,143,768", "1.26e+18"} <= {*said.split()}


# Benchmarks set their own.
FOLDERS = (".", "analysis", "checkpoints", "examples/quickstart", "finetune", "serving")
SCRIPTS = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text() and path != ROOT / "__main__.py"
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
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
    done = python("-c", code, env=environment)
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
    found, ours = [], ("MALLOC", "GLIBC", "LD_PRELOAD")
    for own in ({}, {"MALLOC_ARENA_TEST": "8"}):
        environment = {n: v for n, v in os.environ.items() if not n.startswith(ours)} | own
        found.append(int(python("-c", code, env=environment).stdout))
    assert found[0] < 20 < found[1]  # also with huge pages, of 2 MB
