"""Fine-tuning on labelled data: tasks, their files, metrics, runs and reports."""
