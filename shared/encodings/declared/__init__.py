"""One module per built-in encoding: what the programs know of it without PyArrow."""
