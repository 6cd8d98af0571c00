"""Which devices --strategy names."""

import pytest

from errors import InputError
from training.distribution import create_strategy


@pytest.mark.parametrize(
    "name", ["mirrored:0", "mirrored:00", "mirrored:-1", "mirrored:two", "tpus", "tpu"]
)
def test_a_strategy_that_does_not_exist_is_rejected(name, capsys, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(InputError):
        create_strategy(name)
    assert not capsys.readouterr().err  # nothing about devices that are not made
