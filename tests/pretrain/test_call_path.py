"""How many files a reader passes through from the command to the convolution."""

import json
import pathlib

from tests import command_support
from tests.pretraining_support import arguments, build_data

MOST_FILES = 7
KERNEL = "model/kernels/convolution.py"
# A plug-in that records the files on the stack where the kernel's file is reached, in their order.
RECORDER = f"""
import json, pathlib, sys

ROOT, KERNEL, paths = {str(command_support.ROOT)!r}, {KERNEL!r}, []

def record(frame, event, _):
    if event != "call" or not frame.f_code.co_filename.endswith({KERNEL!r}):
        return
    files = []
    while frame is not None:
        file = pathlib.Path(frame.f_code.co_filename).resolve()
        if file.exists() and file.is_relative_to(ROOT):
            files.insert(0, str(file.relative_to(ROOT)))
        frame = frame.f_back
    files = [name for name in files if not name.startswith(("tests/", ".venv/"))]
    if "run_pretraining.py" in files:  # from its `main` on, which errors.py wraps
        files = files[len(files) - 1 - files[::-1].index("run_pretraining.py") :]
    if files.count(KERNEL) == 1 and (files := list(dict.fromkeys(files))) not in paths:
        paths.append(files)
        pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(paths))

sys.setprofile(record)
"""


def test_few_files_lead_from_the_command_to_the_convolution(tmp_path):
    data_dir = build_data(tmp_path, count=20)
    plugin = tmp_path / "recorder.py"
    plugin.write_text(RECORDER)
    changes = {"num_train_steps": 1, "num_warmup_steps": 0, "generator_layers": 1.0}
    line = arguments(data_dir, tmp_path / "m", changes, plugins=str(plugin))
    done = command_support.run("run_pretraining.py", *line)
    assert done.returncode == 0, done.stderr
    paths = json.loads(pathlib.Path(plugin).with_suffix(".json").read_text())
    of_steps = [path for path in paths if "training/loop.py" in path]
    assert of_steps
    longest = max(of_steps, key=len)
    print("\n".join(longest))
    assert (longest[0], longest[-1]) == ("run_pretraining.py", KERNEL)
    assert len(longest) <= MOST_FILES
