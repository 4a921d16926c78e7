"""The demonstration: real events, two real consumers that embed the reporter, a kill -9, and all counts compared."""
