"""Fine-tunes a pre-trained encoder on tasks and reports scores by the papers' protocol.

    python run_finetuning.py --model_dir MODEL --task cola --data_dir GLUE --num_trials 9

Run the same command again after an interruption: finished runs are kept, the others go on.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported
import stopping

if __name__ == "__main__":
    stopping.install()  # before what takes seconds to import

# isort: split
import dataclasses
import hashlib
import itertools
import os
import sys
from typing import Any

import tensorflow as tf
import tf_keras
from absl import app, flags, logging

from data.vocabulary import Vocabulary
from errors import InputError, LossNotFinite, main_with_clear_errors, require_flags
from files import read_json
from finetune.glue import GLUE_TASKS
from finetune.hparams import (
    FLAG_NAMES,
    TASK_NAMES,
    FinetuningHParams,
    RunSettings,
    check_model_names,
    resolve_hparams,
    split_hparams,
)
from finetune.report import summary_line, write_report
from finetune.submission import write_glue_archive
from finetune.sweep import (
    NOT_SWEPT,
    PAPER_GRID,
    folder_name,
    grid_points,
    run_all,
    setting_of,
    with_seed,
)
from finetune.task import Task, load_task, load_tasks
from finetune.task_data import load_task_data
from finetune.trial import Context, Trial
from locks import locking
from model import SIZES, Encoder, EncoderConfig, build_encoder
from pretrain.load import load_encoder, load_vocabulary
from training.checkpointing import HPARAMS_FILE, latest_checkpoint
from training.distribution import create_strategy
from training.hyperparameters import (
    checked_bool,
    field_names,
    read_json_object,
    refuse_unknown,
    replace_checked,
)

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "model_dir", None, "Model directory of run_pretraining.py, or of a fine-tuning."
)
flags.DEFINE_list("task", None, "Names of tasks, `glue` for the eight, or a JSON declaration.")
flags.DEFINE_string("data_dir", None, "Folder of the tasks' files; tfds[:FOLDER] to download.")
flags.DEFINE_string("output_dir", None, "Where runs are kept. Default: MODEL_DIR/finetuning.")
flags.DEFINE_string("recipe", "", "JSON file of hyper-parameters, such as those in configs/.")
flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
flags.DEFINE_integer(
    "num_trials", None, "Runs of each setting, each with its own seed. Default: 1."
)
flags.DEFINE_string("sweep", "", "JSON of lists of values to try, or `paper` for the papers' grid.")
flags.DEFINE_integer(
    "seed", None, "Of the first trial's new weights, order and dropout. Default: 0."
)
flags.DEFINE_string("strategy", None, "one_device, mirrored (all GPUs) or mirrored:N.")
flags.DEFINE_enum("precision", None, ["float32", "mixed_bfloat16"], "Of the arithmetic.")
flags.DEFINE_bool("xla", None, "Compile the training step, for each length of batch.")
flags.DEFINE_list("init", None, "Weights to start from: pretrained (default), random, or both.")
flags.DEFINE_bool("do_train", True, "Train; --nodo_train measures finished runs again.")
flags.DEFINE_integer(
    "show_errors",
    0,
    "Write each run's N largest errors on the dev split; of finished runs with --nodo_train.",
)
flags.DEFINE_enum(
    "glue_submission",
    None,
    ["available", "filled"],
    "Write submission.zip for the GLUE server; `filled`: with the commonest label where not run.",
)


def output_directory() -> str:
    """Where runs are kept."""
    return FLAGS.output_dir or os.path.join(FLAGS.model_dir, "finetuning")


@locking(output_directory)
def main(argv: list[str]) -> None:
    """Flags -> hyper-parameters -> runs -> report. Reads all files before the first run."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    require_flags(FLAGS, {"model_dir": "a model directory, such as run_pretraining.py writes"})
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("ERROR")  # it warns of tracing again; every run traces its own step
    settings = Settings.read()
    config, vocabulary = load_model(settings.model_values)
    strategy = create_strategy(settings.run.strategy)
    create_encoder = encoder_creator(config)
    output_dir = output_directory()
    trials = []
    for task in settings.tasks:
        trials += plan_trials(task, settings, config, vocabulary, output_dir)
    check_devices(trials, settings.run, strategy)
    warn_about_compiling(settings.run)
    tf_keras.mixed_precision.set_global_policy(trials[0].hparams.precision)
    context = Context(
        settings.run,
        strategy,
        vocabulary,
        create_encoder,
        about_model(config),
        {"pretraining": saved_hparams()},
        config,
        checkpoint_digest(),
        FLAGS.show_errors,
    )
    try:
        results, stopped = run_all(trials, context, train=FLAGS.do_train)
    except stopping.Stopped as stopped_by:
        print(f"{stopped_by}; run the same command to go on", file=sys.stderr)
        sys.exit(stopped_by.status)
    if results:
        print(summary_line(results))
        print(f"report: {write_report(output_dir)}")
    if stopped:
        raise LossNotFinite("\n".join(stopped))
    if FLAGS.glue_submission:
        fill = FLAGS.glue_submission == "filled"
        print(f"submission: {write_glue_archive(output_dir, fill_missing=fill)}")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What recipe, --hparams and flags say, each before the one it overrules.

    Attributes:
        tasks: declarations, in order.
        run: settings that do not change scores.
        recipe: hyper-parameters of the recipe, for all tasks.
        per_task: task name -> hyper-parameters of the recipe for this task.
        given: those of --hparams and flags.
        model_values: what was said about the model, to be checked.
        grid: of the sweep.
    """

    tasks: list[Task]
    run: RunSettings
    recipe: dict[str, Any]
    per_task: dict[str, dict[str, Any]]
    given: dict[str, Any]
    model_values: dict[str, Any]
    grid: dict[str, list]

    @classmethod
    def read(cls) -> Settings:
        """From the flags; see the class."""
        recipe = read_json_object(FLAGS.recipe)
        recipe.pop("about", None)  # source, cost and expected score
        per_task = read_task_settings(recipe.pop("tasks", {}))
        given = read_json_object(FLAGS.hparams)
        names = FLAGS.task or given.get(TASK_NAMES) or recipe.get(TASK_NAMES)
        if not names:
            raise InputError("--task should name a task, `glue`, or a JSON declaration")
        names = [part for name in names for part in (GLUE_TASKS if name == "glue" else [name])]
        recipe_hparams, recipe_run, recipe_model, _ = split_hparams(recipe)
        hparams, run, model_values, ignored = split_hparams(given)
        if ignored:
            print(f"not used here, flags say this: {', '.join(ignored)}", file=sys.stderr)
        for name in FLAG_NAMES:  # the original's JSON may hold them; the command line goes first
            if name in given and not FLAGS[name].present:
                FLAGS[name].value = checked_bool(name, given[name])
        for target, flag_names in (
            (hparams, ("seed", "precision")),
            (run, ("strategy", "xla", "num_trials")),
        ):
            target |= {n: FLAGS[n].value for n in flag_names if FLAGS[n].value is not None}
        return cls(
            load_tasks(names),
            replace_checked(RunSettings(), {**recipe_run, **run}),
            recipe_hparams,
            per_task,
            hparams,
            {**recipe_model, **model_values},
            PAPER_GRID if FLAGS.sweep == "paper" else read_json_object(FLAGS.sweep),
        )

    def of_task(
        self, task: Task, swept: dict[str, Any], config: EncoderConfig
    ) -> FinetuningHParams:
        """The resolved hyper-parameters of one setting of a task."""
        values = {**self.recipe, **self.per_task.get(task.name, {}), **self.given, **swept}
        return resolve_hparams(values, task, config)


def read_task_settings(tasks: Any) -> dict[str, dict[str, Any]]:
    """A recipe's hyper-parameters of single tasks, by the task's name."""
    if not isinstance(tasks, dict) or not all(isinstance(v, dict) for v in tasks.values()):
        raise InputError(
            f"{FLAGS.recipe}: `tasks` should be an object of objects, by the names of tasks."
            f" Received: {tasks!r}"
        )
    known = [name for name in field_names(FinetuningHParams) if name not in NOT_SWEPT]
    for values in tasks.values():
        refuse_unknown(values, known)
    return {load_task(name).name: values for name, values in tasks.items()}


def load_model(said: dict[str, Any]) -> tuple[EncoderConfig, Vocabulary]:
    """Architecture and vocabulary of the model directory; they must fit each other."""
    config = EncoderConfig.load(FLAGS.model_dir)
    vocabulary = load_vocabulary(FLAGS.model_dir, config, saved_hparams().get("vocabulary"))
    known = {**saved_hparams(), **dataclasses.asdict(config)}
    check_model_names(said, known | {"do_lower_case": vocabulary.do_lower_case}, FLAGS.model_dir)
    return config, vocabulary


def saved_hparams() -> dict[str, Any]:
    """What the encoder was pre-trained with, as far as the model directory says it."""
    path = os.path.join(FLAGS.model_dir, HPARAMS_FILE)
    record = read_json(path) if os.path.exists(path) else {}
    if "pretraining" in record.get("run_settings", {}):  # fine-tuned before
        return record["run_settings"]["pretraining"]
    return record.get("hparams", {})


def about_model(config: EncoderConfig) -> dict[str, Any]:
    """The model's name, and its size if it has the architecture of a named one, for the report."""
    parts = os.path.abspath(FLAGS.model_dir).split(os.sep)
    name = "/".join(parts[-3:] if parts[-1].startswith("trial_") else parts[-1:])
    free = ("vocab_size", "max_position_embeddings", "mask_padding")
    free += ("hidden_dropout_prob", "attention_probs_dropout_prob")
    changes = {field: getattr(config, field) for field in free}
    sizes = [size for size, named in SIZES.items() if named.replace(**changes) == config]
    return {"model": name, "model_size": sizes[0] if sizes else None}


def checkpoint_digest() -> str | None:
    """SHA-256 that tells the encoder's weights from others; None where no run takes them."""
    if FLAGS.init == ["random"]:
        return None
    path = latest_checkpoint(FLAGS.model_dir) + ".index"  # holds a checksum of every tensor
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def plan_trials(
    task: Task,
    settings: Settings,
    config: EncoderConfig,
    vocabulary: Vocabulary,
    output_dir: str,
) -> list[Trial]:
    """The runs of a task: every setting of the grid, every seed."""
    trials, loaded = [], {}
    cached = settings.run.use_tfrecords_if_existing
    cache_dir = os.path.join(output_dir, "tokenized") if cached else None
    inits = [{"init": init} for init in FLAGS.init or []] or [{}]
    for init, swept in itertools.product(inits, grid_points(settings.grid)):
        hparams = settings.of_task(task, {**swept, **init}, config)
        warn_about_length(task, hparams)
        shape = (hparams.max_seq_length, hparams.max_query_length, hparams.doc_stride)
        shape += (hparams.double_unordered,)
        if shape not in loaded:
            loaded[shape] = load_task_data(
                task,
                FLAGS.data_dir or "",
                vocabulary,
                hparams,
                cache_dir=cache_dir,
                train=FLAGS.do_train,
                test=settings.run.write_test_outputs,
            )
        setting = setting_of(hparams, swept)
        folder = os.path.join(output_dir, task.name, folder_name(setting, hparams.init))
        for number in range(settings.run.num_trials):
            trial = os.path.join(folder, f"trial_{number}")
            own = with_seed(hparams, number)
            trials.append(Trial(trial, number, setting, own, loaded[shape]))
    return trials


def warn_about_length(task: Task, hparams: FinetuningHParams) -> None:
    """Says when a task uses positions that pre-training never saw."""
    seen = saved_hparams().get("max_seq_length")
    if seen and hparams.max_seq_length > seen and hparams.init == "pretrained":
        print(
            f"{task.name}: `max_seq_length` is {hparams.max_seq_length}, but pre-training saw only"
            f" the first {seen} positions",
            file=sys.stderr,
        )


def check_devices(trials: list[Trial], run: RunSettings, strategy: tf.distribute.Strategy) -> None:
    """Refuses batches that the devices cannot share evenly."""
    devices = strategy.num_replicas_in_sync
    sizes = {trial.hparams.train_batch_size for trial in trials} | {run.eval_batch_size}
    for size in sizes:
        if size % devices:
            raise InputError(
                f"batches should be divisible by the {devices} devices. Received: {size}"
            )


def warn_about_compiling(run: RunSettings) -> None:
    """Says what --xla costs where it saves nothing."""
    if run.xla and not tf.config.list_physical_devices("GPU"):
        print(
            "warning: XLA on a CPU compiles the training step anew for every length of batch, for"
            ' minutes each; do without --xla, or set "length_buckets" to false for one length',
            file=sys.stderr,
        )


def encoder_creator(config: EncoderConfig):
    """A function that makes a run's encoder: pre-trained or random, with its own dropout.

    Raises:
        InputError: the checkpoint does not hold the encoder; found here, before data is read.
    """
    if FLAGS.init != ["random"]:
        load_encoder(FLAGS.model_dir)

    def create(hparams: FinetuningHParams) -> Encoder:
        own = config.replace(
            hidden_dropout_prob=hparams.hidden_dropout_prob,
            attention_probs_dropout_prob=hparams.attention_probs_dropout_prob,
        )
        if hparams.init == "random":
            return build_encoder(own)
        return load_encoder(FLAGS.model_dir, own)

    return create


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
