"""The last lines of the quickstart hold what its steps measured."""

import json

from examples.quickstart.summary import MODEL, summary


def test_what_was_measured_is_said(tmp_path):
    baselines = {"most frequent token": 0.05, "left": 0.184, "both": 0.326}
    learned = {"model": {"masked_lm_accuracy": 0.258}, "baselines": baselines}
    (tmp_path / "learned.json").write_text(json.dumps(learned))
    for init, score in (("pretrained", 75.2), ("random", 51.4)):
        folder = tmp_path / MODEL / "finetuning" / init / "trial_0"
        folder.mkdir(parents=True)
        result = {"task": "word_order", "setting": {}, "trial": 0, "init": init}
        result |= {"main_metric": "accuracy", "scores": {"dev": {"accuracy": score}}}
        (folder / "result.json").write_text(json.dumps(result))
    text = summary(str(tmp_path))
    for figure in ("25.8%", "18.4%", "32.6%", "75.2%", "51.4%", f"{tmp_path}/savedmodel"):
        assert figure in text
