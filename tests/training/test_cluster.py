"""The workers of a group as TF_CONFIG and SLURM say them."""

import json

import pytest
from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm

from errors import InputError
from training.cluster import expand_nodes, expand_tasks, from_slurm, from_tf_config, read_cluster
from training.strategies import check_strategy, parse_strategy

SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "n[001-002],r7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_JOB_ID": "0",
}


def config(**changes) -> str:
    """A TF_CONFIG of two workers with some of its parts replaced; None leaves one out."""
    parts = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    return json.dumps({k: v for k, v in {**parts, **changes}.items() if v is not None})


def test_tf_config():
    cluster = from_tf_config(config())
    assert cluster.addresses == ("a:1", "b:2")
    assert cluster.index == 1
    assert from_tf_config(cluster.tf_config()) == cluster
    assert from_tf_config(cluster.tf_config(0)).index == 0


def test_a_chief_of_its_own_is_the_first():
    jobs = {"worker": ["b:2", "c:3"], "chief": ["a:1"]}
    for task, index in ((("chief", 0), 0), (("worker", 0), 1), (("worker", 1), 2)):
        cluster = from_tf_config(config(cluster=jobs, task=dict(zip(("type", "index"), task))))
        assert cluster.addresses == ("a:1", "b:2", "c:3")
        assert cluster.index == index
        assert json.loads(cluster.tf_config())["task"] == {"type": task[0], "index": task[1]}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "JSON"),
        ("[]", "cluster"),
        (config(cluster=None), "cluster"),
        (config(cluster={}), "cluster"),
        (config(cluster={"ps": ["a:1"]}), "ps"),
        (config(cluster={"worker": "a:1"}), "worker"),
        (config(cluster={"worker": []}), "worker"),
        (config(cluster={"worker": ["a"]}), "'a'"),
        (config(cluster={"worker": ["a:99999"]}), "a:99999"),
        (config(cluster={"worker": ["a:1", "a:1"]}), "a:1"),
        (config(cluster={"chief": ["a:1", "b:1"], "worker": ["c:1"]}), "chief"),
        (config(task=None), "task"),
        (config(task={"type": "worker"}), "index"),
        (config(task={"type": "worker", "index": 2}), "index"),
        (config(task={"type": "worker", "index": "1"}), "index"),
        (config(task={"type": "evaluator", "index": 0}), "type"),
    ],
)
def test_a_broken_tf_config_is_rejected(text, part, monkeypatch):
    with pytest.raises(InputError, match="TF_CONFIG") as caught:
        from_tf_config(text)
    assert part in str(caught.value)
    monkeypatch.setenv("TF_CONFIG", text)
    check_strategy("mirrored:2", None)  # which does not read it
    with pytest.raises(InputError, match="TF_CONFIG"):
        check_strategy("multi_worker", None)


def test_a_number_of_workers_is_not_for_the_flag():
    assert parse_strategy("multi_worker") == ("multi_worker", None)
    with pytest.raises(InputError, match="multi_worker:2"):
        parse_strategy("multi_worker:2")


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n[001-003,7]", ["n001", "n002", "n003", "n7"]),
        ("n[1-2],m5,o[3-4,6,7-9]", ["n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"]),
        ("n-1,n-2", ["n-1", "n-2"]),
        ("a", ["a"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
    ],
)
def test_lists_of_nodes_are_read_as_tensorflow_reads_them(text, nodes):
    assert expand_nodes(text) == nodes == slurm.expand_hostlist(text)


def test_lists_of_nodes_with_several_ranges():
    assert expand_nodes("r[1-2]n[1-2]-ib") == ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]


@pytest.mark.parametrize("text", ["", "n[", "n]", "n[]", "n[3-1]", "n[a]", "a,,b", ",", "n[1--2]"])
def test_what_is_no_list_of_nodes(text):
    with pytest.raises(InputError, match="SLURM_STEP_NODELIST"):
        expand_nodes(text)


def test_slurm(monkeypatch):
    cluster = read_cluster(SLURM)
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    resolver = slurm.SlurmClusterResolver(
        port_base=16384, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False
    )
    assert list(cluster.addresses) == resolver.cluster_spec().as_dict()["worker"]
    assert ("worker", cluster.index) == resolver.get_task_info() == ("worker", 2)
    assert expand_tasks("2(x3),1") == slurm.expand_tasks_per_node("2(x3),1") == [2, 2, 2, 1]


def test_jobs_of_slurm_have_ports_of_their_own():
    """And steps of a job; also where they share their nodes."""
    many = SLURM | {"SLURM_STEP_TASKS_PER_NODE": "8(x3)"}
    jobs = [many | {"SLURM_JOB_ID": str(job)} for job in range(30)]
    steps = [many | {"SLURM_STEP_ID": str(step)} for step in range(1, 5)]
    addresses = [address for step in jobs + steps for address in from_slurm(step).addresses]
    assert len(set(addresses)) == len(addresses) == 34 * 24


def test_a_task_on_another_node_than_computed_is_rejected():
    own = from_slurm(SLURM).addresses[int(SLURM["SLURM_PROCID"])].rpartition(":")[0]
    assert from_slurm(SLURM | {"SLURMD_NODENAME": own}) == from_slurm(SLURM)
    with pytest.raises(InputError, match="--distribution=block"):  # of cyclic distribution
        from_slurm(SLURM | {"SLURMD_NODENAME": "another"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_STEP_NODELIST", ""),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x"),
        ("SLURM_PROCID", "5"),
        ("SLURM_PROCID", "-1"),
    ],
)
def test_what_slurm_cannot_say(name, value):
    with pytest.raises(InputError, match=name):
        from_slurm(SLURM | {name: value})


def test_tf_config_goes_before_slurm():
    assert read_cluster({**SLURM, "TF_CONFIG": config()}).addresses == ("a:1", "b:2")
    with pytest.raises(InputError, match="SLURM"):
        read_cluster({})
