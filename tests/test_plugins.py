"""Files and modules from outside are imported once; what fails names them."""

import sys

import pytest

from convbert.common import plugins
from convbert.common.errors import InputError
from convbert.pretrain import objectives
from tests.finetune.kinds_support import rejects


def test_a_file_is_imported_once_and_its_dataclasses_have_types(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "import dataclasses, typing\n"
        "@dataclasses.dataclass\n"
        "class Settings:\n"
        "    share: float = 0.5\n"
        "typing.get_type_hints(Settings)\n"
        "print('imported')\n"
    )
    plugins.load([str(path)])
    module = sys.modules[str(path)]
    plugins.load([str(path)])
    assert sys.modules[str(path)] is module
    assert module.Settings().share == 0.5


def test_a_module_is_imported_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "outsider_module.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load(["outsider_module"])
    assert sys.modules["outsider_module"].VALUE == 3
    with pytest.raises(InputError):
        plugins.load(["no_such_module"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, InputError),
        ("import no_such_library\n", InputError),
        ("x = (\n", SyntaxError),
        ("1 / 0\n", ZeroDivisionError),
    ],
)
def test_what_cannot_be_imported(tmp_path, text, error):
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error):
        plugins.load([str(path)])
    assert str(path) not in sys.modules


def test_names_of_a_registry(monkeypatch):
    """When a file is loaded again, the new class takes the old one's place."""
    registry = objectives.base._REGISTRY
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    before = registry.names()
    first, again, other = (type(name, (), {}) for name in ("Mine", "Mine", "Other"))
    registry.add("sum_of_words", first, first)
    registry.add("sum_of_words", again, again)
    assert registry.get("sum_of_words") is again
    assert registry.names() == (*before, "sum_of_words")
    with pytest.raises(InputError):
        registry.add("sum_of_words", other, other)
    for unknown, hint in (("sum_of_word", "`sum_of_words`"), (["span"], "span"), (None, "None")):
        with rejects(registry._field, hint):
            registry.get(unknown)


def test_code_of_plugins_is_told_from_other_code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("x = 1")
    plugins.load([str(path), "convbert.common.settings"])
    first = plugins.recorded()
    assert first["plugins"].keys() == {str(path), "convbert.common.settings"}
    path.write_text("x = 2")
    plugins.load([str(path), "convbert.common.settings"])
    assert plugins.recorded() == first  # it is imported once: the first still runs
    del sys.modules[str(path)]
    plugins.load([str(path), "convbert.common.settings"])
    second = plugins.recorded()["plugins"]
    assert {name for name in second if second[name] != first["plugins"][name]} == {str(path)}
    plugins.load([])
    assert plugins.recorded() == {}
