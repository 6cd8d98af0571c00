"""Which devices --strategy names."""

import pytest

from errors import InputError
from training.distribution import create_strategy


@pytest.mark.parametrize(
    "name", ["mirrored:0", "mirrored:00", "mirrored:-1", "mirrored:two", "tpus"]
)
def test_a_strategy_that_does_not_exist_is_rejected_with_what_does(name, capsys):
    with pytest.raises(InputError):
        create_strategy(name)
    assert not capsys.readouterr().err  # nothing about devices that are not made


def test_a_tpu_that_is_not_there(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(InputError):
        create_strategy("tpu")
