"""Serve the page: Streamlit behind a middleware with an optional password."""
