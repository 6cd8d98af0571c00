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


def _parse(text):
    return tf.io.parse_example(text, {"a": tf.io.FixedLenFeature([3], tf.int64)})


@pytest.mark.parametrize("in_graph", [True, False])
@pytest.mark.parametrize(
    ("function", "argument", "said"),
    [
        (lambda i: tf.gather([1, 2], i), 7, "= 7 is not in [0, 2)"),
        (tf.io.read_file, "/nowhere/x", "/nowhere/x; No such file or directory"),
        (_parse, b"zz", "Feature: a (data type: int64) is required but could not be found."),
    ],
    ids=["gather", "read_file", "parse_example"],
)
def test_what_tensorflow_says_is_told_without_the_graph(function, argument, said, in_graph):
    """The first line that TensorFlow writes of a failed graph is "Graph execution error:"."""
    function = tf.function(function) if in_graph else function
    with pytest.raises(tf.errors.OpError) as raised:
        function(tf.constant(argument))
    told = reason(raised.value)
    assert told.endswith(said)
    assert "\n" not in told
    assert "node" not in told
    assert "[Op:" not in told


def test_of_several_errors_the_first_is_told():
    lines = ["2 root error(s) found.", "  (0) INVALID_ARGUMENT: ids are wrong", "\t [[{{node a}}]]"]
    error = tf.errors.InvalidArgumentError(None, None, "\n".join(lines))
    assert reason(error) == "ids are wrong"
    assert reason(AssertionError()) == "AssertionError"
