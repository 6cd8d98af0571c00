"""What `make quickstart` adds to the commands: its corpus, its task, baselines, a summary."""
