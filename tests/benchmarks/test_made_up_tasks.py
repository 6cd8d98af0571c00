"""Made-up tasks: as many sequences as asked for, all of the length asked for."""

import pytest

from benchmarks.made_up_tasks import made_up_task
from benchmarks.texts import made_up_vocabulary
from errors import InputError
from finetune import kinds
from finetune.hparams import resolve_hparams
from finetune.task_data import load_task_data
from model import named_size


@pytest.mark.parametrize("kind", kinds.names())
def test_no_padding(tmp_path, kind):
    task, values = made_up_task(kind, 6, 40, str(tmp_path))
    assert task.kind == kind
    hparams = resolve_hparams(values, task, named_size("small"))
    vocabulary = made_up_vocabulary(8192)
    data = load_task_data(task, str(tmp_path), vocabulary, hparams, cache_dir=None)
    assert data.train.lengths.tolist() == [40] * 6


def test_unknown_kind(tmp_path):
    with pytest.raises(InputError, match="made_up_tasks"):
        made_up_task("other", 2, 32, str(tmp_path))
