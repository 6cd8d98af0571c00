"""Dataclasses that check themselves; files and modules from outside, imported once."""

import dataclasses
import math
import sys

import pytest

from convbert.common import plugins
from convbert.common.errors import InputError
from convbert.common.settings import at_least, check_fields, typed, within
from convbert.pretrain import objectives
from tests.finetune.kinds_support import rejects


@dataclasses.dataclass(frozen=True)
class Options:
    name: str
    count: int | None = dataclasses.field(default=None, metadata=at_least(1))
    share: float = dataclasses.field(default=0.5, metadata=within(0, 1))
    quiet: bool = False
    scale: float = dataclasses.field(default=1.0, metadata=at_least(0))

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", None), ("name", 1), ("count", 0), ("count", 1.5), ("count", True), ("count", "1"),
     ("share", 1.0), ("share", -0.1), ("share", None), ("quiet", 1), ("quiet", "false"),
     ("scale", math.inf), ("scale", math.nan), ("share", 10**400)],
)  # fmt: skip
def test_what_does_not_fit_is_named(field, value):
    with pytest.raises(InputError, match=f"`{field}`"):
        Options(**{"name": "a", field: value})


@pytest.mark.parametrize(
    ("value", "annotation", "place"),
    [
        ({"a": ["b", 3]}, dict[str, str | tuple[str, ...]], r"x\['a'\]\[1\]` should be str"),
        ([1, 2, 3], tuple[float, float], "x` should be a list of 2"),
        ("ab", tuple[str, ...] | None, "x` should be a list or null"),
        ([], dict[str, int], "x` should be a JSON object"),
    ],
)
def test_what_is_in_lists_and_objects(value, annotation, place):
    with pytest.raises(InputError, match=f"`{place}"):
        typed("x", value, annotation)
    assert typed("x", [1, 2.5], tuple[float, float]) == (1.0, 2.5)
    assert typed("x", {"a": ["b"]}, dict[str, tuple[str, ...]]) == {"a": ("b",)}
    assert typed("x", {1: 2, "b": 3}, dict[str, float]) == {"1": 2.0, "b": 3.0}  # as in JSON


def test_a_file_is_imported_once_and_its_dataclasses_have_types(tmp_path, monkeypatch):
    """A module is imported by its name."""
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
    (tmp_path / "outsider_module.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load(["outsider_module"])
    assert sys.modules["outsider_module"].VALUE == 3
    with pytest.raises(InputError):
        plugins.load(["no_such_module"])


@pytest.mark.parametrize(
    ("text", "error"),
    [(None, InputError), ("import no_such_library\n", InputError), ("1 / 0\n", ZeroDivisionError)],
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
    assert plugins.imported(str(path)).keys() == {str(path)}  # to serve a model
    assert plugins.recorded() == {}
