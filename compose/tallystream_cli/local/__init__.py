"""The whole system on one machine: its components, their supervisor, and the file that describes it to commands."""
