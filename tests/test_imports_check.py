"""What the check of imports finds."""

import pytest

from tests import imports_check

GOOD = {
    "errors.py": "import os\n",
    "run_pretraining.py": "def main():\n    from pretrain import run\n",
    "model/__init__.py": "from model.encoder import x\n",
    "model/encoder.py": "import errors\ndef f():\n    import tensorflow\n",
    "pretrain/run.py": "from model.encoder import x\nimport data.shards\n",
    "data/shards.py": "if TYPE_CHECKING:\n    from model import encoder\n",
}


def found(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return imports_check.violations(folder)


def test_nothing_is_said_of_good_imports(tmp_path):
    assert found(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("data/shards.py", "import model.encoder\n", ["data/shards.py:1: imports model.encoder"]),
        ("errors.py", "\nfrom data import shards\n", ["errors.py:2: imports data.shards"]),
        (
            "model/encoder.py",
            "class A:\n    def f(self):\n        import errors\n",
            ["model/encoder.py:3: imports errors inside a function"],
        ),
        (
            "data/shards.py",
            "def f():\n    from data import build\n",
            ["a circle of imports: data.build, data.shards", "data/shards.py:2"],
        ),
        (
            "data/shards.py",
            "build = lazily('data.build:build')\n",
            ["a circle of imports: data.build, data.shards"],
        ),
        (
            "data/shards.py",
            "encoder = lazily('model.encoder:x')\n",
            ["data/shards.py:1: imports model.encoder"],
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, text, expected):
    wrong = found(tmp_path, {**GOOD, "data/build.py": "import data.shards\n", name: text})
    assert len(wrong) == len(expected)
    assert all(line.startswith(start) for line, start in zip(wrong, expected))
