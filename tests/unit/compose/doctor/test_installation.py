"""`doctor`: the checks of the installation."""

from __future__ import annotations

from tallystream_cli.doctor.run import package


def test_a_missing_package_is_a_warning() -> None:
    """Without PySpark or Streamlit, as in the images, other commands run."""
    assert package("page", "no_such_package", "the page", "install it").status == "warning"
    assert package("Spark", "pyspark", "aggregate", "install it").status == "ok"
