"""One module per built-in format: what the program has to know of it before Spark starts."""
