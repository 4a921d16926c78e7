"""`tallystream replay`: the points of a past period, written to a store again."""
