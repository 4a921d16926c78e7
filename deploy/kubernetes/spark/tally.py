"""What spark-submit is given: the command line of `tallystream`."""

from tallystream_cli.main import main

main()
