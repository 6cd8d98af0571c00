"""Which files a reader passes through from a command to a file: recorded from the stack."""

import json
import pathlib

from tests import command_support

# A plug-in that records the files on the stack where the file is reached, in their order.
_RECORDER = """
import json, pathlib, sys

ROOT, COMMAND, REACHED, paths = pathlib.Path({root!r}), {command!r}, {reached!r}, []

def record(frame, event, _):
    if event != "call" or not frame.f_code.co_filename.endswith(REACHED):
        return
    files = []
    while frame is not None:
        file = pathlib.Path(frame.f_code.co_filename).resolve()
        if file.exists() and file.is_relative_to(ROOT):
            files.insert(0, str(file.relative_to(ROOT)))
        frame = frame.f_back
    files = [name for name in files if not name.startswith(("tests/", ".venv/"))]
    if COMMAND in files:  # from its `main` on, which errors.py wraps
        files = files[len(files) - 1 - files[::-1].index(COMMAND) :]
    if files.count(REACHED) == 1 and (files := list(dict.fromkeys(files))) not in paths:
        paths.append(files)
        pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(paths))

sys.setprofile(record)
"""


def longest_path(folder, command, reached, arguments, through):
    """The files from a command to the one that is reached, on the longest way `through` a third.

    `arguments` are those of the command; `--plugins` is added.
    """
    plugin = folder / "recorder.py"
    root = str(command_support.ROOT)
    plugin.write_text(_RECORDER.format(root=root, command=command, reached=reached))
    done = command_support.run(command, *arguments, f"--plugins={plugin}")
    assert done.returncode == 0, done.stderr
    paths = json.loads(pathlib.Path(plugin).with_suffix(".json").read_text())
    longest = max((path for path in paths if through in path), key=len)
    print("\n".join(longest))
    assert (longest[0], longest[-1]) == (command, reached)
    return longest
