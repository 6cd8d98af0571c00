"""How a command ends and stops: statuses, what is finished first, what a second signal does."""

import os
import signal
import threading
import time

import pytest
import tensorflow as tf

from convbert.common import stopping
from convbert.common.errors import InputError, main_with_clear_errors, reason
from tests.command_support import Started

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
COMMAND = """
import os, pathlib, signal, subprocess, sys, time
from convbert.common import stopping, files, locks
from convbert.common.errors import InputError, main_with_clear_errors
folder = sys.argv[1]
say = lambda text: print(text, flush=True)
def main(argv):
{body}
    say("done")
main_with_clear_errors(main)([])
"""


def start(body, folder, **options):
    code = COMMAND.format(body="\n".join("    " + line for line in body.splitlines()))
    return Started(code, folder, **options)


UNFINISHED = """
with files.new_folder(folder + "/a/b") as new, files.replacing(folder + "/c") as temporary:
    pathlib.Path(new, "half").write_text("half")
    pathlib.Path(temporary).write_text("half")
    with locks.locked(folder):
        say("begun")
        time.sleep(30)
"""


TENSORFLOW = """
def works():
    print("begun", flush=True)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        time.sleep(0.01)
    print("returned", flush=True)
module = {"time": time, "__name__": "tensorflow.python.some_module"}
with files.new_folder(folder + "/a"):
    type(works)(works.__code__, module)()
"""


@SIGNALS
@pytest.mark.parametrize(("body", "said"), [(UNFINISHED, ""), (TENSORFLOW, "returned\n")])
def test_a_signal_ends_a_command_and_leaves_nothing(tmp_path, number, body, said):
    """TensorFlow's native code loses what is raised in the Python that it calls, or crashes."""
    status, out, err = start(body, tmp_path).until("begun").send(number).ended()
    assert (status, out) == (128 + number, said)
    assert number.name in err
    assert "run the same command again" in err
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == []


DEFERRED = """
try:
    with stopping.deferred("this piece") as stop_if_asked:
        for piece in range(3):
            say(piece)
            end = time.monotonic() + {seconds}
            while time.monotonic() < end:
                time.sleep(0.01)
            stop_if_asked()
except stopping.Stopped as stopped:
    say("saved")
    sys.exit(stopped.status)
"""


@SIGNALS
def test_a_piece_of_work_is_finished_and_saved(tmp_path, number):
    process = start(DEFERRED.format(seconds=0.3), tmp_path).until("0").send(number)
    status, out, err = process.ended()
    assert (status, out) == (128 + number, "saved\n")
    assert "stopping after this piece" in err


@pytest.mark.parametrize(("later", "seconds", "said"), [(1, 30, ""), (0.05, 0.4, "saved\n")])
def test_a_second_signal_ends_it_at_once(tmp_path, later, seconds, said):
    """But not one that comes just after the first, as `timeout` sends them."""
    process = start(DEFERRED.format(seconds=seconds), tmp_path).until("0")
    time.sleep(0.05)  # lest the system itself makes one of two
    process.send(signal.SIGTERM)
    time.sleep(later)
    status, out, _ = process.send(signal.SIGTERM).ended()
    assert (status, out) == (143, said)


def test_a_hangup_that_is_ignored_stays_so(tmp_path):
    """Under nohup."""

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = start("say('begun')\ntime.sleep(0.3)", tmp_path, before=ignore).until("begun")
    assert process.send(signal.SIGHUP).ended()[0] == 0


def test_handlers_are_given_back():
    before = {number: signal.getsignal(number) for number in stopping.SIGNALS}
    for _ in range(3):
        with stopping.deferred("this"), stopping.handling():
            assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in before} == before


def test_work_in_a_thread_goes_on_after_an_earlier_interruption():
    with pytest.raises(stopping.Stopped), stopping.deferred("this"):
        signal.raise_signal(signal.SIGTERM)
    done = []

    def work():
        with stopping.deferred("that") as stop_if_asked:
            stop_if_asked()
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


@pytest.fixture
def ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (InputError("a.txt: should be UTF-8"), 1, "error: a.txt: should be UTF-8\n"),
        (OSError(28, "No space left", "b.txt"), 1, "error: b.txt: No space left\n"),
        (stopping.Stopped(), 130, "stopped by SIGINT; run the same command again\n"),
    ],
)
def test_a_sentence_and_a_status(raised, status, said, capsys, ctrl_c):
    def main(argv):
        raise raised

    with pytest.raises(SystemExit) as ended:
        main_with_clear_errors(main)([])
    assert ended.value.code == status
    assert capsys.readouterr().err == said
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # no traceback while it ends


def test_bugs_keep_their_traceback(ctrl_c):
    with pytest.raises(ZeroDivisionError):
        main_with_clear_errors(lambda argv: 1 / 0)([])


def test_of_several_errors_the_first_is_told():
    lines = ["2 root error(s) found.", "  (0) INVALID_ARGUMENT: ids are wrong", "\t [[{{node a}}]]"]
    error = tf.errors.InvalidArgumentError(None, None, "\n".join(lines))
    assert reason(error) == "ids are wrong"
    assert reason(AssertionError()) == "AssertionError"
