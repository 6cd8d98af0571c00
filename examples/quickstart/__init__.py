"""Scripts of `make quickstart` besides the commands: n-gram baselines, a task, a summary."""
