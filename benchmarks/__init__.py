"""Speed, memory and cost, against the peers; one command each."""
