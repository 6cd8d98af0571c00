"""Pre-trains an encoder on the records that build_pretraining_data.py wrote.

    python run_pretraining.py --data_dir DATA --model_name mine --recipe configs/convbert_small.json

Run the same command again after an interruption: it goes on from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import sys

import orbit
import tensorflow as tf
import tf_keras
from absl import app, flags, logging

from data.input_pipeline import clear_read_errors, pretraining_dataset, record_files
from data.vocabulary import Vocabulary
from errors import InputError, main_with_clear_errors
from model import EncoderConfig
from pretrain.hparams import (
    PretrainingHParams,
    RunSettings,
    encoder_config,
    resolve_hparams,
    split_hparams,
)
from pretrain.load import special_ids
from pretrain.replaced_token_detection import build_objective
from training import checkpointing, monitoring
from training.distribution import create_strategy
from training.hyperparameters import read_json_object, replace_checked
from training.loop import Evaluator, Trainer
from training.optimizer import WarmupTimesDecay, create_optimizer

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

# What the progress bar and the picture show.
BAR = {"loss": "loss", "disc_auc": "AUC", "masked_lm_accuracy": "MLM accuracy"}
CURVES = ("loss", "masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_auc", "learning_rate")


def main(argv: list[str]) -> None:
    """Flags -> hyper-parameters -> objective -> training loop."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    logging.set_verbosity(logging.WARNING)  # orbit logs a block of text per loop of steps
    hparam_values, run_values = read_settings()
    model_dir = FLAGS.model_dir or os.path.join(FLAGS.data_dir, "models", FLAGS.model_name)
    vocabulary = load_vocabulary(FLAGS.data_dir, hparam_values.get("do_lower_case"))
    hparam_values["do_lower_case"] = vocabulary.do_lower_case
    hparams = resolve_hparams(hparam_values, vocabulary.size)
    run = replace_checked(RunSettings(), run_values)
    config = encoder_config(hparams, vocabulary.size)
    check_continuation(FLAGS.continue_from, config)

    strategy = create_strategy(run.strategy)
    write_model_directory(model_dir, hparams, run, config, vocabulary)
    tf_keras.utils.set_random_seed(hparams.seed)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    with strategy.scope():
        objective = build_objective(hparams, config, special_ids(vocabulary))
        optimizer = build_optimizer(hparams, objective)
    run_controller(hparams, run, objective, optimizer, strategy, model_dir)


def read_settings() -> tuple[dict, dict]:
    """Recipe, then --hparams, then flags; returns hyper-parameters and run settings."""
    values = read_json_object(FLAGS.recipe)
    values.pop("about", None)  # a recipe's source, cost and expected score
    values.update(read_json_object(FLAGS.hparams))
    hparams, run, ignored = split_hparams(values)
    if ignored:
        print(f"not used here, flags say this: {', '.join(ignored)}", file=sys.stderr)
    for target, names in ((hparams, ("seed", "precision")), (run, ("strategy", "xla"))):
        target.update({name: FLAGS[name].value for name in names if FLAGS[name].value is not None})
    return hparams, run


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


def check_continuation(source: str | None, config: EncoderConfig) -> None:
    """Refuses to continue from an encoder of another architecture."""
    if source is None:
        return
    there = EncoderConfig.load(source)
    changed = [
        f"{field.name}: {getattr(there, field.name)!r} there, {getattr(config, field.name)!r} now"
        for field in dataclasses.fields(config)
        if getattr(there, field.name) != getattr(config, field.name)
    ]
    if changed:
        raise InputError(f"--continue_from {source}: another encoder:\n  " + "\n  ".join(changed))
    checkpointing.latest_checkpoint(source)


def write_model_directory(
    model_dir: str,
    hparams: PretrainingHParams,
    run: RunSettings,
    config: EncoderConfig,
    vocabulary: Vocabulary,
) -> None:
    """Makes the model directory self-describing, or refuses one of another configuration."""
    described = {**dataclasses.asdict(hparams), "vocabulary": vocabulary.digest}
    checkpointing.describe_run(model_dir, described, dataclasses.asdict(run))
    config.save(model_dir)
    vocabulary.save(model_dir)


def build_optimizer(hparams: PretrainingHParams, objective):
    """The optimizer of the hyper-parameters, with its slots."""
    schedule = WarmupTimesDecay(
        hparams.learning_rate,
        hparams.num_train_steps,
        hparams.num_warmup_steps,
        hparams.lr_decay_power,
    )
    return create_optimizer(
        hparams.optimizer, schedule, hparams.weight_decay_rate, objective.trainable_variables
    )


def run_controller(
    hparams: PretrainingHParams, run: RunSettings, objective, optimizer, strategy, model_dir: str
) -> None:
    """Trains and evaluates as the flags say."""
    files = record_files(FLAGS.data_dir, "train")
    heldout = record_files(FLAGS.data_dir, "heldout") if FLAGS.do_eval else []
    step, length = optimizer.iterations, hparams.max_seq_length

    def train_batches(start_step: int) -> tf.data.Dataset:
        return pretraining_dataset(
            files,
            batch_size=hparams.train_batch_size,
            max_seq_length=length,
            seed=hparams.seed,
            start_step=start_step,
            vocab_size=hparams.vocab_size,
        )

    def heldout_batches() -> tf.data.Dataset:
        return pretraining_dataset(
            heldout,
            batch_size=run.eval_batch_size or hparams.train_batch_size,
            max_seq_length=length,
            seed=0,
            shuffle=False,
            repeat=False,
            drop_remainder=False,
            vocab_size=hparams.vocab_size,
        )

    trainer = Trainer(
        objective, optimizer, train_batches, seed=hparams.seed, strategy=strategy, xla=run.xla
    )
    evaluator = Evaluator(objective, heldout_batches, seed=hparams.seed, strategy=strategy)
    manager = checkpointing.create_manager(
        tf.train.Checkpoint(objective=objective, optimizer=optimizer),
        model_dir,
        step=step,
        interval=run.save_checkpoints_steps,
        max_to_keep=run.keep_checkpoint_max,
        continue_from=FLAGS.continue_from,
    )
    # orbit prints a block of text per loop; the bar and metrics.jsonl say the same, better.
    with contextlib.redirect_stdout(io.StringIO()):
        controller = orbit.Controller(
            global_step=step,
            trainer=trainer,
            evaluator=evaluator,
            strategy=strategy,
            steps_per_loop=min(run.iterations_per_loop, run.save_checkpoints_steps),
            checkpoint_manager=manager,
            summary_dir=os.path.join(model_dir, "train"),
            eval_summary_dir=os.path.join(model_dir, "heldout"),
        )
        with clear_read_errors([*files, *heldout], length, hparams.vocab_size):
            train_and_evaluate(controller, hparams, run, model_dir)


def train_and_evaluate(
    controller: orbit.Controller, hparams: PretrainingHParams, run: RunSettings, model_dir: str
) -> None:
    """Drives the controller, with progress bar, metrics.jsonl and curves."""
    step, total = controller.global_step, hparams.num_train_steps
    log = monitoring.MetricsLog(model_dir, step)
    controller.eval_actions = (log.action("heldout"),)
    if FLAGS.do_train and int(step.numpy()) < total:
        bar = monitoring.ProgressBar(total, step, hparams.train_batch_size, BAR)
        interrupt = monitoring.InterruptBetweenLoops()
        controller.train_actions = (log.action("train"), bar, interrupt)
        try:
            if FLAGS.do_eval:
                controller.train_and_evaluate(
                    total, run.num_eval_steps, eval_interval=run.save_checkpoints_steps
                )
            else:
                controller.train(total)
        except monitoring.Interrupted:
            controller.save_checkpoint()
            print(
                f"stopped at step {int(step.numpy())}; run the same command to go on",
                file=sys.stderr,
            )
            sys.exit(130)
        finally:
            bar.close()
            interrupt.close()
    elif FLAGS.do_eval:
        controller.evaluate(run.num_eval_steps)
    picture = monitoring.plot_curves(model_dir, CURVES)
    last = monitoring.read_metrics(model_dir)[-1:]
    print(
        f"step {int(step.numpy())}, model in {model_dir}, curves in {picture},"
        f" peak memory {monitoring.peak_memory_gib():.1f} GiB",
        file=sys.stderr,
    )
    for row in last:
        shown = {k: round(v, 4) for k, v in row.items() if isinstance(v, float) and k != "time"}
        print(f"{row['split']}: {shown}", file=sys.stderr)


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "model_name"])
    app.run(main_with_clear_errors(main))
