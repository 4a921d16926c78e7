"""The commands of `tallystream`, each thin: options, settings, run; heavy imports wait until needed."""
