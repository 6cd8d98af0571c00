"""Pre-trains an encoder on the records that build_pretraining_data.py wrote.

    python run_pretraining.py --data_dir DATA --model_name mine --recipe configs/convbert_small.json

Run the same command again after an interruption: it goes on from the last checkpoint.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported
import stopping

if __name__ == "__main__":
    stopping.install()  # before what takes seconds to import

# isort: split
import contextlib
import dataclasses
import os
import sys
from typing import Any

import orbit
import tensorflow as tf
import tf_keras
from absl import app, flags, logging

from data.input_pipeline import clear_read_errors, pretraining_dataset, record_files
from data.manifest import read_manifest, refuse_other_data, settings_digest
from data.vocabulary import Vocabulary
from errors import InputError, main_with_clear_errors, require_flags
from files import read_json
from locks import locking
from model import EncoderConfig
from pretrain.continuation import Start, continued_values, plan_start
from pretrain.evaluation import evaluate
from pretrain.hparams import (
    ADDED_LATER,
    FLAG_NAMES,
    PretrainingHParams,
    RunSettings,
    encoder_config,
    resolve_hparams,
    split_hparams,
)
from pretrain.load import special_ids
from pretrain.objectives import build_objective, build_optimizer
from training import checkpointing, monitoring
from training.distribution import create_strategy
from training.hyperparameters import checked_bool, read_json_object, replace_checked
from training.loop import Evaluator, Trainer
from training.memory import peak_memory_gib
from training.objective import Objective

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Folder with vocab.txt and pretrain_tfrecords/.")
flags.DEFINE_string("model_name", None, "Names the run.")
flags.DEFINE_string("model_dir", None, "Where it is kept. Default: DATA_DIR/models/MODEL_NAME.")
flags.DEFINE_string("recipe", "", "JSON file of hyper-parameters, such as those in configs/.")
flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
flags.DEFINE_integer("seed", None, "Of weights, data order, masking and dropout. Default: 0.")
flags.DEFINE_string("strategy", None, "one_device, mirrored (all GPUs) or mirrored:N.")
flags.DEFINE_enum("precision", None, ["float32", "mixed_bfloat16"], "Of the arithmetic.")
flags.DEFINE_bool("xla", None, "Compile the training step.")
flags.DEFINE_bool("do_train", True, "Train.")
flags.DEFINE_bool(
    "do_eval",
    False,
    "Evaluation on held-out records at every checkpoint; with --nodo_train, of the last one, also"
    " on a --data_dir that the model was not trained on.",
)
flags.DEFINE_string("continue_from", None, "Model directory to take weights, optimizer, step from.")
flags.DEFINE_enum(
    "continue_optimizer",
    None,
    ["carried", "fresh"],
    "Its moments: those of --continue_from (default, where it has them) or zero.",
)
flags.DEFINE_integer(
    "additional_steps",
    None,
    "Steps beyond --continue_from's; warm-up and decay of learning_rate run over these alone.",
)
flags.DEFINE_bool(
    "new_networks",
    False,
    "What --continue_from lacks (generator, heads) starts from random weights.",
)
NEEDED_FLAGS = {"data_dir": "the folder that build_pretraining_data.py wrote"}
CONTINUE_FLAGS = ("continue_from", "continue_optimizer", "additional_steps", "new_networks")

# What the progress bar and the picture show.
BAR = {"loss": "loss", "disc_auc": "AUC", "masked_lm_accuracy": "MLM accuracy"}
CURVES = ("loss", "masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_auc", "learning_rate")


def model_directory() -> str:
    """Where the model is kept."""
    return FLAGS.model_dir or os.path.join(FLAGS.data_dir, "models", FLAGS.model_name)


@locking(model_directory)
def main(argv: list[str]) -> None:
    """Flags -> hyper-parameters -> objective -> training loop. Checks all before writing any."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    require_flags(FLAGS, NEEDED_FLAGS)
    if not FLAGS.model_dir:
        require_flags(FLAGS, {"model_name": "a name for the run (or --model_dir, its folder)"})
    logging.set_verbosity(logging.WARNING)  # orbit logs a block of text per loop of steps
    hparam_values, run_values = read_settings()
    model_dir = model_directory()
    if FLAGS.do_eval and not FLAGS.do_train:
        evaluate_only(model_dir, hparam_values, run_values)
        return
    vocabulary = load_vocabulary(FLAGS.data_dir, hparam_values.get("do_lower_case"))
    hparam_values["do_lower_case"] = vocabulary.do_lower_case
    if FLAGS.continue_from:
        hparam_values = continued_values(
            hparam_values, FLAGS.continue_from, model_dir, FLAGS.additional_steps
        )
    hparams = resolve_hparams(hparam_values, vocabulary.size)
    run = replace_checked(RunSettings(), run_values)
    strategy = create_strategy(run.strategy)  # before anything uses TensorFlow
    config = encoder_config(hparams, vocabulary.size)
    start = check_start(model_dir, hparams, config, vocabulary)
    described = describe_hparams(model_dir, hparams, vocabulary, start)
    checkpointing.check_run(model_dir, described, before=ADDED_LATER)
    train_batches = RecordBatches("train", hparams, hparams.train_batch_size)
    heldout_batches = None
    if FLAGS.do_eval:
        size = run.eval_batch_size or hparams.train_batch_size
        heldout_batches = RecordBatches("heldout", hparams, size)

    for batches in filter(None, (train_batches, heldout_batches)):
        if batches.batch_size % strategy.num_replicas_in_sync:
            raise InputError(
                f"the {batches.split} batch should be divisible by the"
                f" {strategy.num_replicas_in_sync} devices. Received: {batches.batch_size}"
            )
    tf_keras.utils.set_random_seed(hparams.seed)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    with strategy.scope():
        objective = build_objective(hparams, config, special_ids(vocabulary))
        optimizer = build_optimizer(hparams, objective)
    manager = restore(objective, optimizer, run, model_dir, start, strategy)
    write_model_directory(model_dir, described, run, config, vocabulary)
    trainer = Trainer(
        objective, optimizer, train_batches, seed=hparams.seed, strategy=strategy, xla=run.xla
    )
    evaluator = Evaluator(objective, heldout_batches, seed=hparams.seed, strategy=strategy)
    files = train_batches.files + (heldout_batches.files if heldout_batches else [])
    with clear_read_errors(files, hparams.max_seq_length, hparams.vocab_size):
        run_controller(hparams, run, trainer, evaluator, model_dir, manager)


def evaluate_only(model_dir: str, hparam_values: dict, run_values: dict) -> None:
    """Measures a finished model on the held-out records of --data_dir, its own data or other."""
    if FLAGS.continue_from:
        hparam_values = continued_values(
            hparam_values, FLAGS.continue_from, model_dir, FLAGS.additional_steps
        )
    report(model_dir, evaluate(model_dir, FLAGS.data_dir, hparam_values, run_values))


class RecordBatches:
    """Creates the dataset of one split; looks at the files at once, so that errors come early.

    Args:
        split: "train" or "heldout".
        hparams: length, vocabulary and seed.
        batch_size: over all devices.
    """

    def __init__(self, split: str, hparams: PretrainingHParams, batch_size: int):
        self.split, self.hparams, self.batch_size = split, hparams, batch_size
        try:
            self.files = record_files(FLAGS.data_dir, split)
            self()
        except InputError as error:
            hint = "; nothing is held out, so do without --do_eval" if split == "heldout" else ""
            raise InputError(f"{error}{hint}") from error

    def __call__(self, start_step: int = 0) -> tf.data.Dataset:
        """Training batches from a step on, or one pass over the held-out ones."""
        training = self.split == "train"
        return pretraining_dataset(
            self.files,
            batch_size=self.batch_size,
            max_seq_length=self.hparams.max_seq_length,
            vocab_size=self.hparams.vocab_size,
            seed=self.hparams.seed,
            start_step=start_step,
            shuffle=training,
            repeat=training,
            drop_remainder=training,
        )


def read_settings() -> tuple[dict, dict]:
    """Recipe, then --hparams, then flags; returns hyper-parameters and run settings."""
    values = read_json_object(FLAGS.recipe)
    values.update(read_json_object(FLAGS.hparams))
    values.pop("about", None)  # a recipe's source, cost and expected score
    check_continue_flags()
    hparams, run, ignored = split_hparams(values)
    for name in FLAG_NAMES:  # the original's JSON may hold them; the command line goes first
        if name in values and not FLAGS[name].present:
            FLAGS[name].value = checked_bool(name, values[name])
    if ignored:
        print(f"not used here, flags say this: {', '.join(ignored)}", file=sys.stderr)
    for target, names in ((hparams, ("seed", "precision")), (run, ("strategy", "xla"))):
        target.update({name: FLAGS[name].value for name in names if FLAGS[name].value is not None})
    return hparams, run


def check_continue_flags() -> None:
    """Refuses flags of --continue_from without it, and two ways to say how many steps there are."""
    given = [name for name in CONTINUE_FLAGS if FLAGS[name].value]
    if given and FLAGS.continue_from is None:
        raise InputError(f"--{given[0]} is for going on from another model with --continue_from")
    if FLAGS.additional_steps is None:
        return
    if FLAGS.additional_steps < 1:
        raise InputError(
            f"--additional_steps should be at least 1. Received: {FLAGS.additional_steps}"
        )
    values = read_json_object(FLAGS.hparams)
    for name in ("num_train_steps", "schedule_from_step"):
        if name in values:
            raise InputError(f"--additional_steps sets `{name}`, so --hparams should not")


def load_vocabulary(data_dir: str, do_lower_case: bool | None) -> Vocabulary:
    """The data's vocabulary; folders built by ELECTRA do not say how their text was cased."""
    vocabulary = Vocabulary.load(data_dir)
    if do_lower_case in (None, vocabulary.do_lower_case):
        return vocabulary
    if os.path.exists(os.path.join(data_dir, "tokenizer_config.json")):
        raise InputError(
            f"`do_lower_case` should be {vocabulary.do_lower_case}, as {data_dir} was built."
            f" Received: {do_lower_case}"
        )
    return Vocabulary.load(data_dir, do_lower_case=do_lower_case, strip_accents=do_lower_case)


def check_start(
    model_dir: str, hparams: PretrainingHParams, config: EncoderConfig, vocabulary: Vocabulary
) -> Start | None:
    """Refuses to start from what is not there or does not fit; returns what --continue_from gives.

    None is returned where training starts from random weights, or goes on in `model_dir`.
    """
    manifest = read_manifest(FLAGS.data_dir) or {}
    if manifest.get("vocabulary_digest", vocabulary.digest) != vocabulary.digest:
        raise InputError(f"{FLAGS.data_dir}: vocab.txt is not the one the records were built with")
    if not FLAGS.do_train:
        checkpointing.latest_checkpoint(model_dir)
    if checkpointing.has_checkpoint(model_dir):
        if FLAGS.do_train:
            record = read_json(os.path.join(model_dir, checkpointing.HPARAMS_FILE))
            refuse_other_data(model_dir, record, FLAGS.data_dir)
        return None
    if FLAGS.continue_from is None:
        if hparams.schedule_from_step:
            raise InputError(
                "`schedule_from_step` should be 0 without --continue_from."
                f" Received: {hparams.schedule_from_step}"
            )
        return None
    steps, warmup = FLAGS.additional_steps, hparams.num_warmup_steps
    if steps is not None and warmup >= steps:
        raise InputError(
            f"`num_warmup_steps` should be less than --additional_steps {steps}. Received: {warmup}"
        )
    return plan_start(
        FLAGS.continue_from,
        hparams,
        config,
        vocabulary,
        optimizer=FLAGS.continue_optimizer,
        new_networks=FLAGS.new_networks,
    )


def describe_hparams(
    model_dir: str, hparams: PretrainingHParams, vocabulary: Vocabulary, start: Start | None
) -> dict[str, Any]:
    """Everything that decides a run's weights."""
    described = {**dataclasses.asdict(hparams), "vocabulary": vocabulary.digest}
    data = settings_digest(read_manifest(FLAGS.data_dir))
    described |= {"data": data} if data else {}
    if start is not None:
        described["continue_optimizer"] = "carried" if start.carries_optimizer else "fresh"
    elif checkpointing.has_checkpoint(model_dir):  # it was decided when the run began
        saved = read_json(os.path.join(model_dir, checkpointing.HPARAMS_FILE)).get("hparams", {})
        decided = FLAGS.continue_optimizer or saved.get("continue_optimizer")
        described |= {"continue_optimizer": decided} if decided else {}
    return described


def restore(
    objective: Objective,
    optimizer: tf_keras.optimizers.Optimizer,
    run: RunSettings,
    model_dir: str,
    start: Start | None,
    strategy: tf.distribute.Strategy,
) -> checkpointing.CheckpointManager | None:
    """Restores what is there, else what --continue_from gives.

    Returns:
        What saves the next checkpoints; None without training, which takes the weights alone.
    """

    def initialize() -> None:
        if start is not None:
            start.restore(objective, optimizer)
            print(start.describe(), file=sys.stderr)

    with strategy.scope():
        if not FLAGS.do_train:
            path = checkpointing.restore(tf.train.Checkpoint(objective=objective), model_dir)
            optimizer.iterations.assign(checkpointing.checkpoint_step(path))
            return None
        return checkpointing.create_manager(
            tf.train.Checkpoint(objective=objective, optimizer=optimizer),
            model_dir,
            step=optimizer.iterations,
            interval=run.save_checkpoints_steps,
            max_to_keep=run.keep_checkpoint_max,
            initialize=initialize,
        )


def write_model_directory(
    model_dir: str,
    described: dict[str, Any],
    run: RunSettings,
    config: EncoderConfig,
    vocabulary: Vocabulary,
) -> None:
    """Makes the model directory self-describing; after all that may be wrong has been looked at."""
    settings = {**dataclasses.asdict(run), "data_dir": FLAGS.data_dir}
    settings |= {name: FLAGS[name].value for name in CONTINUE_FLAGS}
    checkpointing.describe_run(model_dir, described, settings, before=ADDED_LATER)
    config.save(model_dir)
    vocabulary.save(model_dir)


def run_controller(
    hparams: PretrainingHParams,
    run: RunSettings,
    trainer: Trainer,
    evaluator: Evaluator,
    model_dir: str,
    manager: checkpointing.CheckpointManager | None,
) -> None:
    """Trains and evaluates as the flags say."""
    step = trainer.optimizer.iterations
    # orbit prints a block of text per loop; the bar and metrics.jsonl say the same, better.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        controller = orbit.Controller(
            global_step=step,
            trainer=trainer,
            evaluator=evaluator,
            strategy=trainer.strategy,
            steps_per_loop=run.iterations_per_loop,
            checkpoint_manager=manager,
            summary_dir=os.path.join(model_dir, "train"),
            eval_summary_dir=os.path.join(model_dir, "heldout"),
        )
        log = monitoring.MetricsLog(model_dir, step)
        controller.eval_actions = (log.action("heldout"),)
        if FLAGS.do_train and int(step.numpy()) < hparams.num_train_steps:
            train(controller, hparams, run, log)
        elif FLAGS.do_eval:
            controller.evaluate(run.num_eval_steps)
    report(model_dir, int(step.numpy()))


def train(
    controller: orbit.Controller,
    hparams: PretrainingHParams,
    run: RunSettings,
    log: monitoring.MetricsLog,
) -> None:
    """Trains to the end, saving and evaluating at every multiple of `save_checkpoints_steps`."""
    step, total = controller.global_step, hparams.num_train_steps
    bar = monitoring.ProgressBar(total, step, hparams.train_batch_size, BAR)
    try:
        at_checkpoint = int(step.numpy()) % run.save_checkpoints_steps == 0
        if FLAGS.do_eval and at_checkpoint and log.has("train") and not log.has("heldout"):
            controller.evaluate(run.num_eval_steps)  # which it was stopped in
        while (now := int(step.numpy())) < total:
            multiple = (now // run.save_checkpoints_steps + 1) * run.save_checkpoints_steps
            with stopping.deferred("this loop of steps") as stop_if_asked:
                controller.train_actions = (log.action("train"), bar, stop_if_asked)
                controller.train(min(multiple, total))  # ends with a checkpoint
            if FLAGS.do_eval:
                controller.evaluate(run.num_eval_steps)
    except stopping.Stopped as stopped:
        controller.save_checkpoint()
        message = f"{stopped} at step {int(step.numpy())}; run the same command to go on"
        print(message, file=sys.stderr)
        sys.exit(stopped.status)
    finally:
        bar.close()


def report(model_dir: str, step: int) -> None:
    """Says where everything is and what was measured last."""
    picture = monitoring.plot_curves(model_dir, CURVES)
    last = monitoring.read_metrics(model_dir)[-1:]
    print(
        f"step {step}, model in {model_dir}, curves in {picture},"
        f" peak memory {peak_memory_gib():.1f} GiB",
        file=sys.stderr,
    )
    for row in last:
        shown = {k: round(v, 4) for k, v in row.items() if isinstance(v, float) and k != "time"}
        print(f"{row['split']}: {shown}", file=sys.stderr)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
