"""The launcher of several workers, with shell commands as workers."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import stopping
from errors import InputError
from training.launch import expand_hosts

ROOT = os.path.dirname(stopping.__file__)
INDEX = 'case "$TF_CONFIG" in *\'"index": 0\'*) index=0;; *) index=1;; esac; '


def launch(script, *flags, hosts="localhost:2", environment=None) -> subprocess.Popen:
    """A launcher of workers that run a script of the shell, which knows its `index`."""
    command = [sys.executable, "-m", "training.launch", f"--hosts={hosts}", *flags, "--"]
    return subprocess.Popen(
        [*command, "sh", "-c", INDEX + script],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process) -> tuple[int, list[str], str]:
    """Status, sorted lines of standard output, and standard error."""
    out, err = process.communicate(timeout=120)
    return process.returncode, sorted(out.splitlines()), err


def test_hosts():
    assert expand_hosts(["a:2", "b"]) == ["a", "a", "b"]
    for hosts in (["a:0"], ["a:x"], [""], ["a:1:2"]):
        with pytest.raises(InputError, match="--hosts"):
            expand_hosts(hosts)
    with pytest.raises(InputError, match="localhost"):
        expand_hosts(["localhost", "b"])


def test_every_worker_has_its_tf_config_and_its_number_before_its_lines():
    status, out, err = ended(launch('echo "$TF_CONFIG"; printf "a\\rb\\n" >&2'))
    assert status == 0, err
    assert out[:2] == ["[0] a", "[0] b"]
    configs = [json.loads(line[4:]) for line in (out[2], out[5])]
    assert [c["task"] for c in configs] == [{"type": "worker", "index": i} for i in range(2)]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2


def test_one_that_fails_ends_all_and_an_error_is_not_repeated(tmp_path):
    script = f"echo x >> {tmp_path}/$index; if [ $index = 1 ]; then exit 3; fi; exec sleep 2"
    status, _, err = ended(launch(script, "--restarts=2"))
    assert status == 3
    assert (tmp_path / "1").read_text() == "x\n"
    assert "worker 1 ended with status 3" in err


def test_lost_workers_are_started_again_so_often(tmp_path):
    script = f"echo x >> {tmp_path}/$index; [ $index = 1 ] && kill -9 $$; exit 75"
    status, _, _ = ended(launch(script, "--restarts=2"))
    assert status in (75, 128 + signal.SIGKILL)
    assert [(tmp_path / name).read_text() for name in "01"] == ["x\n" * 3] * 2
    script = f"echo x >> {tmp_path}/$index; [ $(wc -l < {tmp_path}/$index) = 5 ] || exit 75"
    assert ended(launch(script, "--restarts=2"))[0] == 0


def test_a_signal_goes_to_all_workers(tmp_path):
    script = f"trap 'echo stopped; exit 143' TERM; touch {tmp_path}/$index; sleep 60 & wait"
    process = launch(script, "--restarts=2")
    deadline = time.monotonic() + 60
    while len(os.listdir(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    status, out, _ = ended(process)
    assert status == 143
    assert out == ["[0] stopped", "[1] stopped"]


def test_a_list_of_hosts_by_ssh(tmp_path):
    """With an `ssh` that says to which host it was asked to go, and runs the command here."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ $1 = -o ] && shift; shift; done\n'
        'echo "host $1"; shift; exec sh -c "$*"\n'
    )
    ssh.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    folder = tmp_path / "a folder"
    folder.mkdir()
    options = {"hosts": "n1,n2:2", "environment": path}
    process = launch('pwd; echo "$TF_CONFIG"', f"--directory={folder}", "--port=7000", **options)
    status, out, err = ended(process)
    assert status == 0, err
    assert [line for line in out if " host n" in line] == [
        "[0] host n1",
        "[1] host n2",
        "[2] host n2",
    ]
    assert out.count(f"[1] {pathlib.Path(folder).resolve()}") == 1
    addresses = ["n1:7000", "n2:7000", "n2:7001"]
    configs = [json.loads(line[4:]) for line in out if "cluster" in line]
    assert [c["cluster"]["worker"] for c in configs] == [addresses] * 3


def test_no_command():
    done = subprocess.run(
        [sys.executable, "-m", "training.launch", "--hosts=localhost:2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "error: " in done.stderr


def test_a_progress_bar_is_shown_while_it_is_drawn():
    """Its states end with a carriage return, and no line feed comes."""
    process = launch("printf '1%%\\r2%%\\r'; sleep 60")
    try:
        assert process.stdout.readline() in ("[0] 1%\n", "[1] 1%\n")
    finally:
        process.send_signal(signal.SIGTERM)
        _, out, _ = ended(process)
    assert not any("2%" in line for line in out)  # ten seconds had not gone by


def test_a_folder_that_is_not_there():
    status, _, err = ended(launch("exit 0", "--directory=/no/such/folder"))
    assert status == 1
    assert "--directory /no/such/folder" in err
