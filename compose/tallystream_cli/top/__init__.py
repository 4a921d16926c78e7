"""`tallystream top`: `run` is the loop, `screen` what is drawn, `keyboard` the keys."""
