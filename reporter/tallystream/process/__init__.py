"""What forks and signals of the process mean for its reporters."""
