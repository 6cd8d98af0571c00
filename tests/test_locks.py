"""One command at a time in a folder: who is rejected, whose lock is taken over."""

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket

import pytest

import files
import storage
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from errors import InputError
from locks import locked
from model import EncoderConfig
from tests.command_support import Command
from tests.process_support import Started

OWNER = {"host": socket.gethostname(), "process": 1, "command": "python x.py", "time": "then"}


def write(path, **changes):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**OWNER, **changes}))


def is_rejected(folder, *named, **options):
    with pytest.raises(InputError) as error, locked(str(folder), **options):
        pytest.fail("it is another's")
    for text in named:
        assert str(text) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("beside", "name"), [(False, "runs/m/.lock"), (True, "runs/m.lock")], ids=["inside", "beside"]
)
def test_the_second_is_rejected_and_nothing_is_left(tmp_path, beside, name):
    folder = tmp_path / "runs" / "m"
    with locked(str(folder), beside=beside):
        owner = json.loads((tmp_path / name).read_text())
        assert (owner["host"], owner["process"]) == (socket.gethostname(), os.getpid())
        with locked(str(tmp_path / "runs" / "other"), beside=beside):
            message = is_rejected(
                folder, folder, os.getpid(), owner["host"], owner["time"], beside=beside
            )
        assert "delete" not in message  # whether it is at work is known
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("text")  # which stays
    with pytest.raises(KeyError), locked(str(folder), beside=beside):
        raise KeyError
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_of_another_machine_is_explained(tmp_path):
    write(tmp_path / ".lock", host="elsewhere", process=77)
    named = ("elsewhere", "process 77", "then", f"delete {tmp_path / '.lock'}")
    is_rejected(tmp_path, *named)
    assert os.listdir(tmp_path) == [".lock"]


@pytest.mark.parametrize("text", [json.dumps(OWNER), "", "{", "[1]", '{"host": "a"}'])
def test_a_lock_that_was_left_behind_is_taken_over(tmp_path, text):
    (tmp_path / ".lock").write_text(text)
    with locked(str(tmp_path)):
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
        is_rejected(tmp_path, os.getpid())
    assert os.listdir(tmp_path) == []


HOLDING = """
import sys, time
from locks import locked
with locked(sys.argv[1]):
    print("begun", flush=True)
    time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_process_that_ends_by_a_signal(tmp_path, number):
    """Also one whose status nobody has asked for yet."""
    started = Started(HOLDING, tmp_path / "m").until("begun")
    is_rejected(tmp_path / "m", started.process.pid)
    started.send(number).process.stdout.read()  # until it has ended
    os.waitid(os.P_PID, started.process.pid, os.WEXITED | os.WNOWAIT)
    if number != signal.SIGKILL:
        assert os.listdir(tmp_path) == []
    with locked(str(tmp_path / "m")):
        pass
    started.ended()
    assert os.listdir(tmp_path) in ([], ["m"])


def test_another_owner_keeps_the_lock(tmp_path):
    """Somebody deleted ours while we were at work, and another command began."""
    with locked(str(tmp_path)):
        os.remove(tmp_path / ".lock")
        write(tmp_path / ".lock", process=os.getppid())
    assert os.listdir(tmp_path) == [".lock"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="file"), locked(str(tmp_path / "file" / "m")):
        pytest.fail("that is no folder")
    with pytest.raises(InputError, match="cannot be written"), locked("/proc/none/m"):
        pytest.fail("nobody can write there")


def test_a_full_disk_leaves_no_half_lock(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(InputError, match="cannot be written"), locked(str(tmp_path / "m")):
            pytest.fail("there is no room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_without_flock_a_living_process_keeps_its_lock(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    alive = Started("input()")
    write(tmp_path / ".lock", process=alive.process.pid)
    is_rejected(tmp_path, alive.process.pid)
    alive.say("")
    alive.ended()
    with locked(str(tmp_path)):
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()


TAKING = """
import sys
from errors import InputError
from locks import locked
print("ready", flush=True)
sys.stdin.readline()
try:
    with locked(sys.argv[1]):
        print("got it", flush=True)
        sys.stdin.readline()  # until all the others have been rejected
except InputError:
    print("rejected", flush=True)
"""


@pytest.mark.parametrize(
    "left_behind", [pytest.param(False, marks=pytest.mark.slow), True]
)  # each starts many processes
def test_of_many_at_once_one_gets_it(tmp_path, left_behind):
    if left_behind:
        write(tmp_path / ".lock", process=999999999)
    processes = [Started(TAKING, tmp_path).until("ready") for _ in range(8)]
    for process in processes:
        process.say("")
    found = [process.process.stdout.readline() for process in processes]
    for process in processes:
        process.process.stdin.close()
        process.process.wait(timeout=60)
    assert sorted(found) == ["got it\n"] + ["rejected\n"] * 7
    assert os.listdir(tmp_path) == []


def test_the_commands_are_rejected(tmp_path):
    """Before they write or import TensorFlow; none needs the lock of what it only reads."""
    model, data, made = (str(tmp_path / name) for name in ("model", "data", "made"))
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a"))
    for folder in (model, data):
        vocabulary.save(folder)
    EncoderConfig(vocab_size=vocabulary.size).save(model)
    (tmp_path / "text").write_text("a\n")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("x\t1\t\ta\n")
    tuning = ["--model_dir", model, "--task", "cola", "--data_dir", str(tmp_path)]
    commands = {
        model: ["run_pretraining.py", "--data_dir", data, "--model_name=m", "--model_dir", model],
        os.path.join(model, "finetuning"): ["run_finetuning.py", *tuning],
        f"{model}_tuned": ["run_finetuning.py", *tuning, "--output_dir", f"{model}_tuned"],
        data: [
            *("build_pretraining_data.py", "--corpus", str(tmp_path / "text")),
            *("--output_dir", data),
        ],
        made: ["export_savedmodel.py", "--model_dir", model, "--output_dir", made],
        f"{made}_2": [
            *("-m", "checkpoints.convert", "--target", "tf1"),
            *("--input", model, "--output", f"{made}_2"),
        ],
    }
    beside = (made, f"{made}_2")
    found = sorted(tmp_path.rglob("*"))
    for folder, command in commands.items():
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(folder, beside=folder in beside))
            if folder != model:
                stack.enter_context(locked(model))
            before = sorted(tmp_path.rglob("*"))
            done = Command(*command).finish()
            assert sorted(tmp_path.rglob("*")) == before
        assert done.returncode == 1, command
        assert done.stderr.startswith(f"error: {folder}: another command is at work here"), command
    assert sorted(tmp_path.rglob("*")) == found


def test_a_link_has_the_lock_of_what_it_leads_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    second = locked(str(tmp_path / "link"), beside=True)
    with locked(str(tmp_path / "folder"), beside=True), pytest.raises(InputError):
        second.__enter__()


def test_a_job_that_is_queued_again_takes_over_its_lock(tmp_path, monkeypatch):
    """It may start on other nodes; the start before has ended."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    own = {"host": "another", "job": "7", "starts_of_job": 0}
    write(tmp_path / ".lock", **own)
    is_rejected(tmp_path, "another")  # a step of the same start
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with locked(str(tmp_path)):
        assert json.loads((tmp_path / ".lock").read_text())["starts_of_job"] == 1
    write(tmp_path / ".lock", **own | {"job": "8"})
    is_rejected(tmp_path, "another")


def test_a_lock_of_a_bucket_that_cannot_be_read_is_not_taken_over(monkeypatch):
    """An error that passes must not let two commands into a folder."""
    folder = "ram://locks"
    files.write_text(f"{folder}/.lock", json.dumps({**OWNER, "host": "another"}))
    found = storage.open

    def unreachable(path, *args, **options):
        raise OSError(errno.EIO, "503", path)

    monkeypatch.setattr(storage, "open", unreachable)
    with pytest.raises(OSError, match="503"), locked(folder):
        pytest.fail("it is another's")
    monkeypatch.setattr(storage, "open", found)
    is_rejected(folder, "another")
