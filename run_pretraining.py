"""Pre-trains an encoder on the records that build_pretraining_data.py wrote.

    python run_pretraining.py --data_dir DATA --model_name mine --recipe configs/convbert_small.json

Run the same command again after an interruption: it goes on from the last checkpoint.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import stopping

if __name__ == "__main__":
    stopping.install()  # before what takes seconds to import

import contextlib
import dataclasses
import hashlib
import json
import os
import sys

import orbit
import tensorflow as tf
import tf_keras
from absl import app, flags, logging

from data.input_pipeline import clear_read_errors, pretraining_dataset, record_files
from data.manifest import read_manifest
from data.vocabulary import Vocabulary
from errors import InputError, main_with_clear_errors
from files import read_json
from locks import locking
from model import EncoderConfig
from pretrain.continuation import Start, continued_values, plan_start
from pretrain.hparams import (
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
flags.DEFINE_bool("do_eval", False, "Evaluate on held-out records at every checkpoint.")
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
    logging.set_verbosity(logging.WARNING)  # orbit logs a block of text per loop of steps
    hparam_values, run_values = read_settings()
    model_dir = model_directory()
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
    write_model_directory(model_dir, hparams, run, config, vocabulary, start)
    trainer = Trainer(
        objective, optimizer, train_batches, seed=hparams.seed, strategy=strategy, xla=run.xla
    )
    evaluator = Evaluator(objective, heldout_batches, seed=hparams.seed, strategy=strategy)
    files = train_batches.files + (heldout_batches.files if heldout_batches else [])
    with clear_read_errors(files, hparams.max_seq_length, hparams.vocab_size):
        run_controller(hparams, run, trainer, evaluator, model_dir, start)


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


def write_model_directory(
    model_dir: str,
    hparams: PretrainingHParams,
    run: RunSettings,
    config: EncoderConfig,
    vocabulary: Vocabulary,
    start: Start | None,
) -> None:
    """Makes the model directory self-describing, or refuses one of another configuration."""
    described = {**dataclasses.asdict(hparams), "vocabulary": vocabulary.digest}
    data = (read_manifest(FLAGS.data_dir) or {}).get("settings")
    if data is not None:  # folders built by ELECTRA do not say what is in them
        described["data"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    settings = {**dataclasses.asdict(run), "data_dir": FLAGS.data_dir}
    settings |= {name: FLAGS[name].value for name in CONTINUE_FLAGS}
    if start is not None:
        described["continue_optimizer"] = "carried" if start.carries_optimizer else "fresh"
    elif checkpointing.has_checkpoint(model_dir):  # it was decided when the run began
        record = read_json(os.path.join(model_dir, checkpointing.HPARAMS_FILE))
        decided = FLAGS.continue_optimizer or record["hparams"].get("continue_optimizer")
        described |= {"continue_optimizer": decided} if decided else {}
    checkpointing.describe_run(model_dir, described, settings, before={"schedule_from_step": 0})
    config.save(model_dir)
    vocabulary.save(model_dir)


def run_controller(
    hparams: PretrainingHParams,
    run: RunSettings,
    trainer: Trainer,
    evaluator: Evaluator,
    model_dir: str,
    start: Start | None,
) -> None:
    """Restores what is there, then trains and evaluates as the flags say."""
    step = trainer.optimizer.iterations

    def initialize() -> None:
        if start is not None:
            start.restore(trainer.objective, trainer.optimizer)
            print(start.describe(), file=sys.stderr)

    manager = checkpointing.create_manager(
        tf.train.Checkpoint(objective=trainer.objective, optimizer=trainer.optimizer),
        model_dir,
        step=step,
        interval=run.save_checkpoints_steps,
        max_to_keep=run.keep_checkpoint_max,
        initialize=initialize,
    )
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
        message = f"\n{stopped} at step {int(step.numpy())}; run the same command to go on"
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
    flags.mark_flags_as_required(["data_dir", "model_name"])
    app.run(main_with_clear_errors(main))
