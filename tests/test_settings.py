"""Dataclasses that check themselves by annotations and metadata."""

import dataclasses
import math

import pytest

from convbert.common.errors import InputError
from convbert.common.settings import at_least, check_fields, typed, within


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
