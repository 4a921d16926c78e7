"""Mutation testing: small errors in a package, one at a time, and which of them no test notices."""
