"""Which devices --strategy names."""

import pytest

from errors import InputError
from training.distribution import create_strategy


@pytest.mark.parametrize(
    "name", ["mirrored:0", "mirrored:00", "mirrored:-1", "mirrored:two", "tpus"]
)
def test_a_strategy_that_does_not_exist_is_rejected_with_what_does(name, capsys):
    with pytest.raises(
        InputError, match=r"--strategy should be .*mirrored:N, where N is at least 1"
    ):
        create_strategy(name)
    assert not capsys.readouterr().err  # nothing about devices that are not made
