"""The commands of `tallystream`, one module a group. Heavy imports wait until a command runs."""
