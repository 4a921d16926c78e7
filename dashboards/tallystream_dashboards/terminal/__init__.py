"""What the commands show in a terminal: lag, sums, instances, records processed twice, and the overview of `top`."""
