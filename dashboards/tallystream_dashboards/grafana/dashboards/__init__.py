"""The dashboards, one module each."""
