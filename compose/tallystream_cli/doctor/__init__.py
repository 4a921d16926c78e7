"""`tallystream doctor`: checks of the installation, the broker, the store and the checkpoint. It changes nothing.

`findings` has what a check returns. `installation`, `broker`, `permissions`, `clock`, `store` and `checkpoint` have the
checks: pure functions, and beside them the functions that fetch what they check. `cluster` fetches what the broker
knows. `run` does all of them.
"""
