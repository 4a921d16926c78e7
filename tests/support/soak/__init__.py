"""The soak test, `make soak`: hours of churn and restarts, and the curves of what each part takes."""
