"""How commands end."""

import pytest
import tensorflow as tf

from convbert.common import stopping
from convbert.common.errors import InputError, main_with_clear_errors, reason


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (InputError("a.txt: should be UTF-8"), 1, "error: a.txt: should be UTF-8\n"),
        (OSError(28, "No space left", "b.txt"), 1, "error: b.txt: No space left\n"),
        (stopping.Stopped(), 130, "stopped by SIGINT; run the same command again\n"),
    ],
)
def test_a_sentence_and_a_status(raised, status, said, capsys):
    def main(argv):
        raise raised

    with pytest.raises(SystemExit) as ended:
        main_with_clear_errors(main)([])
    assert ended.value.code == status
    assert capsys.readouterr().err == said


def test_bugs_keep_their_traceback():
    def main(argv):
        raise KeyError("x")

    with pytest.raises(KeyError):
        main_with_clear_errors(main)([])


def test_of_several_errors_the_first_is_told():
    lines = ["2 root error(s) found.", "  (0) INVALID_ARGUMENT: ids are wrong", "\t [[{{node a}}]]"]
    error = tf.errors.InvalidArgumentError(None, None, "\n".join(lines))
    assert reason(error) == "ids are wrong"
    assert reason(AssertionError()) == "AssertionError"
