"""The demonstration: a million real events, two consumers, a kill in the worst moment, and sums that agree."""
