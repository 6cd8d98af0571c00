"""What is learned from labels: tasks, their files, metrics, runs and reports."""
