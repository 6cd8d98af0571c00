"""Word error rates after rescoring by small models of equal width and budget, several seeds.

    python -m benchmarks.spoken_text --corpus wiki_en/ --corpus_format wikiextractor \\
        --output spoken.txt
    python build_pretraining_data.py --corpus spoken.txt --vocab_size 8192 --output_dir my_spoken
    python -m benchmarks.rescoring --data_dir my_spoken --dev dev-clean.am.json \\
        --test dev-other.am.json --output_dir my_comparison

Trains by run_pretraining.py what is not trained yet, scores all hypotheses, and rescores after
every model with all models so far; see scoring/rescore.py. Run the same command again after an
interruption: it resumes. `--hparams '{"num_train_steps": 20000}'` is a larger budget, which takes
another --output_dir.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

import files
import storage
from benchmarks.table import Report
from errors import InputError, main_with_clear_errors, require_flags
from scoring.rescore_report import REPORT
from settings import read_json_object
from training.model_directory import CHECKPOINT_FOLDER

_ROOT = pathlib.Path(__file__).parent.parent
_ATTENTION = {"conv_type": "noconv", "head_ratio": 1}
_BERTS_MASKING = {"mask_token_prob": 0.8, "random_token_prob": 0.1}
_MASKED_LM = {"objective": "masked_lm", **_BERTS_MASKING}
_SELF_CRITIC = {"objective": "self_critic", **_BERTS_MASKING}
_CAUSAL = {"objective": "causal_lm", "model_hparam_overrides": {"causal": True}}
# What each system says beside --recipe and --hparams. Scoring methods are the models' defaults:
# pseudo-log-likelihood, one pass of the critic, one of the discriminator (a heuristic), one causal.
SYSTEMS = {
    "bert": {**_MASKED_LM, **_ATTENTION},
    "convbert_mlm": _MASKED_LM,
    "script": {**_SELF_CRITIC, **_ATTENTION},
    "script_convbert": _SELF_CRITIC,
    "electra": {"objective": "replaced_token_detection", **_ATTENTION},
    "causal_transformer": {**_CAUSAL, **_ATTENTION},
    "causal_mixed": _CAUSAL,
}

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder that build_pretraining_data.py wrote.")
_DEV = flags.DEFINE_string("dev", None, "N-best lists on which lambda is chosen.")
_TEST = flags.DEFINE_string("test", None, "N-best lists to which it is applied.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder of models, scores and report.")
_RECIPE = flags.DEFINE_string("recipe", "configs/wiki_tiny.json", "Recipe that all systems share.")
_HPARAMS = flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
_SYSTEMS = flags.DEFINE_multi_enum(
    "systems", list(SYSTEMS), list(SYSTEMS), "Systems compared, one each time."
)
_SEEDS = flags.DEFINE_multi_integer("seeds", [0, 1], "Seeds, one each time.")
_LAMBDAS = flags.DEFINE_string("lambdas", "0:1:0.05", "Weights to search; see scoring.rescore.")


def main(argv: list[str]) -> None:
    """Trains, scores, rescores; prints a row per system."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    needed = {"data_dir": "a folder of pre-training data", "output_dir": "a folder for all else"}
    lists = dict.fromkeys(("dev", "test"), "a file of n-best lists")
    require_flags(flags.FLAGS, needed | lists)
    done: list[str] = []
    for seed in _SEEDS.value:
        for name in _SYSTEMS.value:
            model_dir = os.path.join(_OUTPUT_DIR.value, "models", f"{name}-{seed}")
            train(model_dir, hparams(name), seed)
            done.append(model_dir)
            rescore(done)
    print_table(files.read_json(os.path.join(_OUTPUT_DIR.value, REPORT)))


def hparams(name: str) -> dict[str, Any]:
    """A system's settings; `model_hparam_overrides` of all sources are joined."""
    recipe = read_json_object(_RECIPE.value, "--recipe")
    sources = [recipe, SYSTEMS[name], read_json_object(_HPARAMS.value)]
    values = {key: value for source in sources for key, value in source.items()}
    overrides = [source.get("model_hparam_overrides", {}) for source in sources]
    values["model_hparam_overrides"] = {k: v for one in overrides for k, v in one.items()}
    values.pop("about", None)
    return values


def train(model_dir: str, values: dict[str, Any], seed: int) -> None:
    """Pre-trains a model, unless it has its last checkpoint."""
    last = f"model.ckpt-{values['num_train_steps']}.index"
    if storage.exists(os.path.join(model_dir, CHECKPOINT_FOLDER, last)):
        return
    where = [f"--data_dir={_DATA_DIR.value}", f"--model_dir={model_dir}", f"--seed={seed}"]
    run("run_pretraining.py", *where, f"--hparams={json.dumps(values)}", "--do_eval")


def rescore(model_dirs: Sequence[str]) -> None:
    """Scores by the models that have not scored yet, and rescores by all."""
    lists = [f"--dev={_DEV.value}", f"--test={_TEST.value}", f"--lambdas={_LAMBDAS.value}"]
    models = [f"--model={model_dir}" for model_dir in model_dirs]
    run("-m", "scoring.rescore", *lists, *models, f"--output_dir={_OUTPUT_DIR.value}")


def run(*arguments: str) -> None:
    """Runs a command of the project; raises InputError where it fails."""
    status = subprocess.run([sys.executable, *arguments], cwd=_ROOT).returncode
    if status:
        raise InputError(f"{' '.join(arguments[:2])} ended with {status}; its messages are above")


def print_table(report: dict[str, Any]) -> None:
    """Prints means over seeds, the spread of the test rate, and the intervals' lowest ends."""
    columns = {"system": "", "seeds": "d", "lambda": "", "dev WER": ".2f", "test WER": ".2f"}
    columns |= {"min to max": "", "better by": "+.2f", "at least (95 %)": "+.2f"}
    table = Report(columns | {"s / 1,000": ".2f"})
    rates = {
        row: [report[s][row]["wer"] for s in ("dev", "test")] for row in ("one_best", "oracle")
    }
    table.row("1-best", "", "", *rates["one_best"], "", "", "", "")
    for name in _SYSTEMS.value:
        found = [report["systems"][f"{name}-{seed}"] for seed in _SEEDS.value]
        test = [one["test"]["wer"] for one in found]
        table.row(
            name,
            len(found),
            ", ".join(f"{one['lambda']:g}" for one in found),
            statistics.mean(one["dev"]["wer"] for one in found),
            statistics.mean(test),
            f"{min(test):.2f} to {max(test):.2f}",
            statistics.mean(one["improvement"]["points"] for one in found),
            min(one["improvement"]["interval"][0] for one in found),
            statistics.mean(one["seconds_per_1000"] for one in found),
        )
    table.row("oracle", "", "", *rates["oracle"], "", "", "", "")
    table.end()


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
