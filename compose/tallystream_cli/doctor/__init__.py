"""`tallystream doctor`: the checks that the commands make at their start, with their remedies. It changes nothing.

`findings` has what a check returns. `broker`, `permissions` and `store` have the checks. `run` does all of them.
"""
