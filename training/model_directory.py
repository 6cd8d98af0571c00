"""Names of what a model directory holds. Needs no TensorFlow."""

CHECKPOINT_FOLDER = "checkpoints"
HPARAMS_FILE = "hparams.json"
TASK_FILE = "task.json"  # of a fine-tuned model
