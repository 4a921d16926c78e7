"""What spark-submit is given: the command line of `tallystream`."""

from tallystream.compose.cli import main

main()
