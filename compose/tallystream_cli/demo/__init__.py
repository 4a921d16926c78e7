"""The demonstration: a million real events, two consumers, four kills, and exact sums."""
