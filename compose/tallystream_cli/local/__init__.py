"""The whole system on one machine: its components, what keeps them running, and the record that others read."""
