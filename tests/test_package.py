"""The project installs as one package, `convbert`, with one command."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from convbert.__main__ import COMMANDS
from tests.command_support import ROOT

NOT_INSTALLED = ("tests", "runs", "build", "docs")
IGNORED = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__", "tests")


def test_every_folder_with_code_is_listed():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"(.+)"', re.search(r"\npackages = \[(.*?)\]", project, re.S).group(1))
    files = [
        file.relative_to(ROOT)
        for file in ROOT.glob("*/**/*.py")
        if not file.relative_to(ROOT).parts[0].startswith((".", *NOT_INSTALLED))
    ]
    folders = {".".join(("convbert", *file.parent.parts)) for file in files}
    assert sorted(listed) == sorted({"convbert", *folders})


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


@pytest.mark.parametrize("script", ["run_pretraining.py", "export_savedmodel.py"])
def test_a_script_says_what_to_install(script):
    line = [sys.executable, "-I", "-S", script]  # -S: no site-packages
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "requirements.txt" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def convbert(*arguments):
    line = [sys.executable, "-m", "convbert", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


def test_commands_are_listed():
    listed = convbert("--help").stdout
    assert all(f"  {name} " in listed for name in COMMANDS)


@pytest.mark.parametrize("line", ["pretain", "pretrain --model_name mine --data_dir nowhere"])
def test_an_unknown_command_and_the_flags_of_a_script(line):
    done = convbert(*line.split())
    assert done.returncode == 1
    assert line.split()[-1] in done.stderr
