"""How commands end."""

import pytest

from errors import InputError, main_with_clear_errors


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (InputError("a.txt: should be UTF-8"), 1, "error: a.txt: should be UTF-8\n"),
        (OSError(28, "No space left", "b.txt"), 1, "error: b.txt: No space left\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
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
