"""How the page is served: Streamlit behind a gate with an optional password."""
