"""`tallystream doctor`: checks of the installation, the broker, the store and the checkpoint. It changes nothing.

`findings` has what a check returns. `installation`, `broker`, `permissions` and `store` have the checks. `cluster`
fetches what the broker knows. `run` does all of them.
"""
