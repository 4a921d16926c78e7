"""The demonstration: a million real events, two consumers, a kill between report and commit, and exact sums."""
