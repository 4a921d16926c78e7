"""`tallystream doctor`: the checks that the commands make at their start, with their remedies. It changes nothing."""
